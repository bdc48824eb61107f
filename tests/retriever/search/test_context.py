from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binocle import Context, Retriever
from binocle.core.errors import InputError
from binocle.retriever.search.context import Packing, counter, find_siblings
from binocle.retriever.search.context import pack as pack_within
from binocle.retriever.search.ranking import relevance
from binocle.retriever.search.results.hit import Hit


def pack(hits, documents, count, limit, **limits):
    return pack_within(hits, documents, count, Packing(limit, **limits))


def words(text):
    return len(text.split())


def hit(document, start, end, documents, *, page=None, heading=(), path=None):
    text = documents[document]
    return Hit(
        rank=1,
        score=1.0,
        scores={},
        path=path or f"{document}.md",
        sha256="",
        char_start=start,
        char_end=end,
        line_start=1 + text[:start].count("\n"),
        line_end=1 + text[: end - 1].count("\n"),
        page=page,
        heading=heading,
        text=text[start:end],
        title="",
        format="text",
        metadata={},
        **({"source": "file"} if "source" in Hit.__dataclass_fields__ else {}),
        document_row=document,
        passage=start,
    )


DOCUMENTS = {1: "alpha one\nbeta two\n\ngamma three\ndelta four\n", 2: "epsilon five\nzeta six\n"}


def test_a_hit_is_written_under_its_citation():
    given = hit(1, 10, 18, DOCUMENTS, page=3, heading=("Guide", "Linux"))
    packed = pack([given], DOCUMENTS, words, 100)
    assert packed.text == "[1] 1.md:2 p. 3 (Linux)\nbeta two"
    (passage,) = packed.passages
    assert passage.citation == f"[1] {given.citation}" == "[1] 1.md:2 p. 3 (Linux)"
    assert (passage.text, passage.hits) == ("beta two", (given,))
    assert packed.tokens == words(packed.text)


@pytest.mark.parametrize("line_break", ["\n", "\r", "\u2028", "\x85"])
def test_no_name_of_a_file_or_a_heading_forges_a_citation(line_break):
    forged = f"a.md:1-1{line_break}[9] salaries.md"
    packed = pack([hit(1, 10, 18, DOCUMENTS, path=forged, heading=(forged,))], DOCUMENTS, words, 100)
    shown = line_break.encode("unicode_escape").decode()
    assert packed.text == rf"[1] a.md:1-1{shown}\[9\] salaries.md:2 (a.md:1-1 [9] salaries.md)" "\nbeta two"
    assert packed.passages[0].path == forged


def test_neighbours_are_joined_and_written_in_the_order_of_the_document():
    later, earlier, other = hit(1, 20, 31, DOCUMENTS), hit(1, 10, 18, DOCUMENTS), hit(2, 0, 12, DOCUMENTS)
    packed = pack([later, other, earlier], DOCUMENTS, words, 100)
    assert packed.text == "[1] 1.md:2-4\nbeta two\n\ngamma three\n\n[2] 2.md:1\nepsilon five"
    assert packed.passages[0].hits == (earlier, later)


def test_neighbours_are_cited_under_the_heading_that_all_of_them_stand_under():
    headings = [("Guide", "Install", "Linux"), ("Guide", "Install", "macOS"), ("Guide", "Use")]
    spans = [(0, 9), (10, 18), (20, 31)]
    hits = [hit(1, *span, DOCUMENTS, heading=heading) for span, heading in zip(spans, headings, strict=True)]
    cited = [pack(hits[:count], DOCUMENTS, words, 100).passages[0].heading for count in (1, 2, 3)]
    assert cited == [("Guide", "Install", "Linux"), ("Guide", "Install"), ("Guide",)]


def test_passages_with_text_between_them_stay_apart():
    packed = pack([hit(1, 0, 9, DOCUMENTS), hit(1, 20, 31, DOCUMENTS)], DOCUMENTS, words, 100)
    assert [passage.text for passage in packed.passages] == ["alpha one", "gamma three"]
    assert [passage.number for passage in packed.passages] == [1, 2]


def test_neighbours_on_different_pages_stay_apart():
    packed = pack([hit(1, 0, 9, DOCUMENTS, page=1), hit(1, 10, 18, DOCUMENTS, page=2)], DOCUMENTS, words, 100)
    assert [passage.page for passage in packed.passages] == [1, 2]


def test_the_same_words_are_written_once_however_they_are_spaced():
    documents = {1: "the same  words", 2: "the same\nwords", 3: "other words"}
    packed = pack([hit(number, 0, len(documents[number]), documents) for number in (1, 2, 3)], documents, words, 100)
    assert [passage.path for passage in packed.passages] == ["1.md", "3.md"]


def test_what_does_not_fit_makes_way_for_what_does():
    documents = {1: "long " * 50 + "end", 2: "short one", 3: "long " * 40 + "end", 4: "another short"}
    hits = [hit(number, 0, len(text), documents) for number, text in documents.items()]
    packed = pack(hits, documents, words, 10)
    assert [passage.path for passage in packed.passages] == ["2.md", "4.md"]
    assert packed.tokens <= 10


def test_a_hit_that_does_not_fit_is_cut_to_its_sentences_about_the_query():
    text = (
        "Cats sleep a lot. Some like milk.\nDogs bark at night. They guard the door. Fish swim in the sea. " + "x " * 50
    )
    documents = {1: "a cat sat here", 2: text}
    hits = [hit(number, 0, len(text), documents) for number, text in documents.items()]
    packed = pack_within(hits, documents, words, Packing(18), query="why do dogs bark")
    assert [passage.text for passage in packed.passages] == [
        "a cat sat here",
        "Dogs bark at night. They guard the door.",
    ]
    cut = packed.passages[1]
    assert (cut.line_start, cut.line_end, text[cut.char_start : cut.char_end]) == (2, 2, cut.text)
    assert packed.tokens == words(packed.text) <= 18
    tight = pack_within(hits, documents, words, Packing(9), query="why do dogs bark")
    assert [passage.path for passage in tight.passages] == ["1.md"]


def test_a_long_context_has_extracts_of_hits_that_do_not_fit_whole():
    filler = "Nothing about it stands here, {} of {}. " * 15
    documents = {n: filler.format(*(f"{n}x{m}" for m in range(30))) + f"Dogs bark at {n}." for n in range(12)}
    hits = [hit(number, 0, len(text), documents) for number, text in documents.items()]
    packed = pack_within(hits, documents, words, Packing(1_000, siblings=0), query="why do dogs bark")
    is_whole = [passage.text == documents[number] for number, passage in enumerate(packed.passages)]
    assert is_whole == [True] * 5 + [False] * (len(is_whole) - 5)
    assert all(f"Dogs bark at {number}." in packed.text for number in range(len(is_whole)))
    assert len(is_whole) > 7  # as many as fit whole
    few = pack_within(hits[:7], documents, words, Packing(1_000, siblings=0), query="why do dogs bark")
    assert [passage.text for passage in few.passages] == list(documents.values())[:7]
    short = pack_within(hits, documents, words, Packing(500, siblings=0), query="why do dogs bark")
    assert [passage.text == documents[number] for number, passage in enumerate(short.passages)][:3] == [True] * 3


def test_a_rare_word_of_the_query_chooses_the_sentence():
    text = "The cat and the dog sat. " + "x " * 30 + ". A walrus came. " + "y " * 30
    cat = hit(1, 0, len(text), {1: text})
    for weights, start in (({"cat": 1.0, "dog": 1.0, "walrus": 5.0}, "A walrus"), (None, "The cat")):
        packed = pack_within([cat], {1: text}, words, Packing(10), query="cat dog walrus", weights=weights)
        assert [passage.text.startswith(start) for passage in packed.passages] == [True]


def test_code_is_cut_between_lines_and_hidden_text_is_not_cut():
    text = "def cat():\n    return 1\n\ndef dog():\n    return bark()\n" + "x = 1\n" * 30
    code = replace(hit(1, 0, len(text) - 1, {1: text}), format="python")
    (passage,) = pack_within([code], {1: text}, words, Packing(7), query="dog bark").passages
    assert (passage.text.strip(), passage.line_start) == ("def dog():\n    return bark()", 4)
    hidden = replace(code, hidden=((0, 5),))
    assert pack_within([hidden], {1: text}, words, Packing(7), query="dog bark").passages == ()


def test_what_joining_spares_goes_to_the_next_best():
    """Six neighbours become one passage, so that the seventh fits, which is better than the eighth."""
    documents = {1: "\n".join(["six words stand in this line"] * 6), 2: "word " * 11 + "end", 3: "two words"}
    lines = [(28 * n, 28 * n + 27) for n in range(6)]
    documents[1] = "\n".join(f"line {n} of six words now".ljust(27, ".") for n in range(6))
    hits = [hit(1, start, end, documents) for start, end in lines]
    hits += [hit(2, 0, len(documents[2]), documents), hit(3, 0, len(documents[3]), documents)]
    whole = pack(hits, documents, words, 1_000)
    assert [passage.path for passage in whole.passages] == ["1.md", "2.md", "3.md"]
    for limit in range(whole.tokens - 4, whole.tokens + 20):
        packed = pack(hits, documents, words, limit)
        assert [passage.path for passage in packed.passages][:2] == ["1.md", "2.md"]
        assert packed.tokens <= limit


def test_nothing_fits_or_nothing_is_found_gives_an_empty_context():
    assert pack([], DOCUMENTS, words, 100) == Context("", (), 0)
    assert pack([hit(1, 0, 9, DOCUMENTS)], DOCUMENTS, words, 3) == Context("", (), 0)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_hits_the_context_fits_cites_and_repeats_nothing(seed):
    draw = random.Random(seed)
    documents = {
        number: " ".join(
            draw.choice("abcdefgh") * draw.randint(1, 5) + draw.choice(["", "\n", "\n\n"]) for _ in range(80)
        )
        for number in range(3)
    }
    hits = []
    for number, text in documents.items():  # passages as a chunker makes them: apart from each other
        place = 0
        while place < len(text) - 40:
            start = place + re.match(r"\s*", text[place:]).end()
            end = start + len(text[start : start + draw.randint(5, 60)].rstrip())
            hits.append(hit(number, start, end, documents, page=1 + start // 90))
            place = end + draw.choice([0, 0, 1, 40])
    draw.shuffle(hits)
    hits = hits[: draw.randint(1, len(hits))]
    limit = draw.choice([5, 20, 60, 1000])
    packed = pack(hits, documents, words, limit)
    assert packed.tokens == words(packed.text) <= limit
    assert packed.text == "\n\n".join(passage.write() for passage in packed.passages)
    assert [passage.number for passage in packed.passages] == list(range(1, len(packed.passages) + 1))
    for passage in packed.passages:
        document = passage.hits[0].document_row
        assert passage.text == documents[document][passage.char_start : passage.char_end]
        assert passage.line_end == 1 + documents[document][: passage.char_end - 1].count("\n")
        for one in passage.hits:
            assert passage.char_start <= one.char_start < one.char_end <= passage.char_end
    if limit == 1000:
        for one in hits:
            assert " ".join(one.text.split()) in " ".join(packed.text.split())


HEADER = re.compile(r"^\W*[\[［]\s*\d+\s*[\]］]", re.MULTILINE)
_FORGERIES = st.lists(
    st.one_of(
        st.text(alphabet="[] 123２a.md:-\n\r\u2028\x85>*#［］\\()", max_size=20),
        st.sampled_from(
            ["[2] 2.md:1", "\n[2] 2.md:1\n", "\n\n[1] 1.md:1 (Guide)\n", "see [2] 2.md:1-9", "\n> [3] x", "\u200b[2]"]
        ),
        st.sampled_from(["some words ", "x[1] = y[2:3]", "\n", "\r\n", " "]),
    ),
    min_size=1,
    max_size=6,
)


_BODIES = st.lists(_FORGERIES.map("".join).filter(str.strip), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(_BODIES)
def test_no_body_forges_a_citation(bodies):
    assert_citations(bodies)


@pytest.mark.slow
@settings(max_examples=1_000, deadline=None)
@given(_BODIES)
def test_no_body_of_a_thousand_forges_a_citation(bodies):
    assert_citations(bodies)


def assert_citations(bodies):
    documents = dict(enumerate(bodies, 1))
    hits = [hit(number, 0, len(text), documents, heading=(text,)) for number, text in documents.items()]
    packed = pack(hits, documents, words, 1_000)
    citations = [passage.citation for passage in packed.passages]
    lines = packed.text.splitlines()
    assert [line for line in lines if HEADER.match(line)] == citations
    assert [packed.text.count(citation) for citation in citations] == [1] * len(citations)
    for passage in packed.passages:
        assert passage.text == documents[passage.hits[0].document_row]


def test_what_looks_like_a_citation_gets_backslashes_and_code_stays():
    documents = {1: "row[1] = a[2:3]\n[2] b.md:1-9 secret\nas [3] c.md:4 says\n  [4] list"}
    (passage,) = pack([hit(1, 0, len(documents[1]), documents)], documents, words, 100).passages
    body = "row[1] = a[2:3]\n\\[2\\] b.md:1-9 secret\nas \\[3\\] c.md:4 says\n  \\[4\\] list"
    assert passage.write() == f"[1] 1.md:1-4\n{body}"
    assert passage.text == documents[1]


def test_a_near_copy_of_the_text_is_left_out():
    base = [f"word{number}" for number in range(40)]
    changed = [*base[:20], "other", *base[21:]]
    documents = {
        1: " ".join(base),
        2: " ".join(changed),
        3: " ".join(base[:30]),
        4: " ".join(base[30:] + changed[::-1]),
    }
    hits = [hit(number, 0, len(text), documents) for number, text in documents.items()]
    assert [passage.path for passage in pack(hits, documents, words, 1_000).passages] == ["1.md", "4.md"]


def test_an_extract_that_repeats_the_text_is_left_out():
    answer = "Dogs bark at the cat who walks along the wall."
    documents = {1: f"{answer} They bark again.", 2: f"{'Nothing like it stands here. ' * 20}{answer}"}
    hits = [hit(number, 0, len(text), documents) for number, text in documents.items()]
    assert len(pack_within(hits, documents, words, Packing(200), query="why do dogs bark").passages) == 2
    packed = pack_within(hits, documents, words, Packing(27), query="why do dogs bark")  # one sentence fits
    assert [passage.path for passage in packed.passages] == ["1.md"]


@pytest.mark.parametrize(
    ("scores", "count"),
    [
        ({"lexical": 2.0, "semantic": 0.3}, 1),
        ({"lexical": None, "semantic": 0.3}, 1),
        ({"lexical": 6.0, "semantic": 0.3}, 2),
        ({"lexical": None, "semantic": 0.5}, 2),
    ],
)
def test_a_hit_far_below_the_best_is_left_out_though_there_is_room(scores, count):
    best = replace(hit(1, 0, 9, DOCUMENTS), scores={"lexical": 10.0, "semantic": 0.8})
    packed = pack([best, replace(hit(2, 0, 12, DOCUMENTS), scores=scores)], DOCUMENTS, words, 100)
    assert len(packed.passages) == count


def test_a_hit_far_below_the_best_cosine_is_left_out_of_a_semantic_search():
    scores = ({"semantic": 0.8}, {"semantic": 0.39})
    hits = [replace(hit(number, 0, 9, DOCUMENTS), scores=row) for number, row in enumerate(scores, 1)]
    assert len(pack(hits, DOCUMENTS, words, 100).passages) == 1


def test_room_is_not_filled_with_hits_far_down_the_list():
    documents = {number: " ".join(f"word{number}-{place}" for place in range(50)) for number in range(1, 9)}
    documents[9] = "short"
    hits = [hit(number, 0, len(text), documents) for number, text in documents.items()]
    packed = pack(hits, documents, words, 60)
    assert [passage.path for passage in packed.passages] == ["1.md"]


def test_the_best_can_come_last():
    hits = [hit(1, 0, 9, DOCUMENTS), hit(2, 0, 12, DOCUMENTS)]
    packed = pack(hits, DOCUMENTS, words, 100, order="best_last")
    assert packed.text == "[1] 2.md:1\nepsilon five\n\n[2] 1.md:1\nalpha one"


@pytest.mark.parametrize(
    "tokenizer",
    [len, str.split, lambda text: {"input_ids": text.split()}, lambda text: np.array(text.split()), lambda _: 7],
)
def test_any_tokenizer_counts(tokenizer):
    count = counter(tokenizer)
    hits = [hit(1, 0, 9, DOCUMENTS), hit(1, 20, 31, DOCUMENTS), hit(2, 0, 12, DOCUMENTS)]
    for limit in range(1, 80, 3):
        packed = pack(hits, DOCUMENTS, count, limit)
        assert packed.tokens == (count(packed.text) if packed.text else 0) <= limit


@pytest.mark.parametrize("tokenizer", ["cl100k_base", lambda _: "text", lambda _: None, lambda _: -1, lambda _: True])
def test_a_tokenizer_that_does_not_count_is_refused(tokenizer):
    with pytest.raises(InputError, match="token"):
        counter(tokenizer)("words")


# Through the retriever


def test_a_context_is_counted_in_the_encoders_tokens(retriever, tiny):
    for limit in (1, 20, 60, 200, 2_000):
        packed = retriever.context("cancel a task", max_tokens=limit)
        assert packed.tokens == len(tiny.offsets([packed.text])[0]) <= limit
    assert "notes/guide/tasks.md" in packed.text
    for passage in packed.passages:
        assert retriever.document(passage.path)["text"][passage.char_start : passage.char_end] == passage.text
        assert len(passage.sha256) == 64


def test_a_context_can_be_filtered(retriever):
    packed = retriever.context("cancel a task", where="path=notes/*.txt")
    assert {passage.path for passage in packed.passages} == {"notes/cats.txt"}


def test_a_context_is_empty_where_a_search_says_that_nothing_answers(retriever, monkeypatch):
    assert retriever.context("quixotic zebra").answerable is None  # it was not measured
    monkeypatch.setattr(relevance, "line", lambda *_: 1.1)  # every hit is weak
    context = retriever.context("quixotic zebra")
    assert (context, context.answerable) == (Context("", (), 0), False)
    assert context.messages[1]["content"] == "There are no passages about it.\n\nQuestion: quixotic zebra"
    forced = retriever.context("quixotic zebra", min_relevance=0)
    assert forced.passages and forced.answerable is False


def test_a_context_of_no_tokens_is_refused(retriever):
    for limit in (0, -5):
        with pytest.raises(InputError, match="max_tokens"):
            retriever.context("cat", max_tokens=limit)


def test_a_context_is_of_what_search_finds(retriever, make_reranker, tmp_path):
    for asked in ({"mode": "lexical"}, {"mode": "semantic", "rerank": make_reranker(tmp_path / "model"), "k": 3}):
        found = retriever.context("cancel a task", max_tokens=np.int64(10_000), **asked)
        best = retriever.search("cancel a task", **{"k": 50, **asked})
        cited = {hit.passage: hit.scores for passage in found.passages for hit in passage.hits}
        assert cited == {hit.passage: hit.scores for hit in best}
    with pytest.raises(InputError, match="there is no mode 'words'"):
        retriever.context("cat", mode="words")


def test_the_callers_tokenizer_limits_the_context(retriever):
    for limit in (10, 100, 1_000):
        packed = retriever.context("cancel a task", max_tokens=limit, tokenizer=len)
        assert packed.tokens == len(packed.text) <= limit


def test_the_neighbours_of_a_hit_in_its_section_fill_the_room(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    words = [f"{first}{second}" for first in "abcdefghijklmn" for second in "opqrstuvwxyz"]
    text = "\n\n".join(f"cat {' '.join(words[30 * number :][:30])} part{number}." for number in range(5))
    retriever.add([{"id": "long", "text": text}, {"id": "other", "text": "a ship at sea"}])
    (best,) = retriever.search("part3", k=1)
    alone = retriever.context("part3", k=1, siblings=0)
    assert [passage.text for passage in alone.passages] == [best.text]
    (longer,) = retriever.context("part3", k=1, siblings=1).passages
    assert longer.hits == (best,)
    assert (longer.char_start < best.char_start, longer.char_end > best.char_end) == (True, True)
    assert longer.text == text[longer.char_start : longer.char_end]


def test_neighbours_are_looked_for_only_with_a_tenth_of_the_room_left():
    best, calls = hit(1, 0, 9, DOCUMENTS), []

    def siblings(chosen):
        calls.append(chosen)
        return []

    for hits, packing in [([best], Packing(4)), ([best], Packing(5, siblings=0)), ([], Packing(5))]:
        pack_within(hits, DOCUMENTS, words, packing, siblings)  # `best` takes four words with its citation
        assert calls == []
    pack_within([best], DOCUMENTS, words, Packing(5), siblings)
    assert calls == [[best]]


def test_a_neighbour_may_take_all_the_room_that_is_left():
    best, neighbour = hit(1, 0, 9, DOCUMENTS), hit(1, 10, 18, DOCUMENTS)
    for limit, text in [(7, "alpha one"), (8, "alpha one\nbeta two")]:
        packed = pack_within([best], DOCUMENTS, words, Packing(limit), lambda _: [neighbour])
        assert packed.text.partition("\n")[2] == text


def test_no_more_neighbours_are_looked_for_than_a_document_has(tmp_path, tiny_model, monkeypatch):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    text = "\n\n".join(f"cat {'word ' * 40} part{number}." for number in range(5))
    retriever.add([{"id": f"d{number}", "text": text.replace("cat", f"cat{number}")} for number in range(6)])
    snapshot = retriever.snapshot()
    (best,) = hits = retriever.search("cat3 part2", k=1)
    requested = []
    read = snapshot.passages.of
    monkeypatch.setattr(snapshot.passages, "of", lambda ids: requested.extend(ids) or read(ids))
    siblings = list(find_siblings(snapshot, hits, 10**6))
    passages = retriever.get(best.path).passages
    assert 2 < len(siblings) == passages - 1
    assert {sibling.path for sibling in siblings} == {best.path}
    assert len(requested) == 2 * passages


def test_a_context_is_two_messages_for_a_model(retriever):
    packed = retriever.context("cancel a task")
    system, user = packed.messages
    assert (system["role"], user["role"]) == ("system", "user")
    assert user["content"] == f"{packed.text}\n\nQuestion: cancel a task"
    assert "no passages" in Context("", (), 0, "cat").messages[1]["content"]


def test_an_empty_index_gives_an_empty_context(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([])
    assert retriever.context("cat") == Context("", (), 0)
