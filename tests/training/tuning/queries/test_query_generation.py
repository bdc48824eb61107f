from __future__ import annotations

import json
import math
from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binocle.core.errors import InputError
from binocle.core.sentences import plain, spans
from binocle.training.data.source_documents import Source, SourcePassage, from_corpus, from_index, split
from binocle.training.mining.bm25 import split_terms
from binocle.training.tuning.queries import links
from binocle.training.tuning.queries.query_generation import SyntheticPair, make
from binocle.training.tuning.queries.query_kinds import KINDS
from binocle.training.tuning.queries.term_weights import CountSketch, TermWeights, normalised

FIRST = "osm gall rhod niob hafn tant ind thall yttr cer".split()
NAMES = [
    first + middle + last
    for last in "ium ate ide".split()
    for middle in "ar el ot im und osk".split()
    for first in FIRST
]
TOOLS = [
    first + last
    for last in "oscope ometer ette ograph ophone itron".split()
    for first in (*FIRST, "micr", "spectr", "cal", "centr", "helic")
]


def sentence(random):
    first, second = random.sample(NAMES, 2)
    return (
        f"The {first} in the {random.choice(TOOLS)} {random.randint(2, 9_999)} was mixed with the {second} of the day."
    )


def document(number, passages=1):
    """Passages of six sentences each, without a common word in a name."""
    random = Random(number)
    title = f"The nature of {NAMES[number % len(NAMES)]} and its {TOOLS[number * 7 % len(TOOLS)]} {number}"
    sections = []
    for number_of_passage in range(passages):
        section = (
            (f"{random.choice(NAMES)} {random.choice(TOOLS)} of {number}.{number_of_passage}",) if passages > 1 else ()
        )
        sections.append(SourcePassage(" ".join(sentence(random) for _ in range(6)), (title, *section)))
    return Source(f"d{number}", title, tuple(sections))


@pytest.fixture(scope="session")
def abstracts():
    return [document(number) for number in range(40)]


@pytest.fixture(scope="session")
def books():
    return [document(number, passages=3) for number in range(20)]


def sentences(text):
    return [text[start:end] for start, end in spans(text)]


# Sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains. It pours! Does it? Yes.", ["It rains.", "It pours!", "Does it?", "Yes."]),
        ("See e.g. Fig. 3 by Dr. J. Smith et al. here. Then go.", ["See e.g. Fig. 3 by Dr. J. Smith et al. here.", "Then go."]),
        ("Done by Smith et al. Then others came.", ["Done by Smith et al.", "Then others came."]),
        ("It is 3.5 m long. p = .05 was met.", ["It is 3.5 m long. p = .05 was met."]),
        ("all is lower case . so is this .", ["all is lower case .", "so is this ."]),
        ("all is lower case. so is this.", ["all is lower case.", "so is this."]),
        ("He said “stop.” Then he went.", ["He said “stop.”", "Then he went."]),
        ("今日は晴れ。明日は雨！「そう。」と言う。", ["今日は晴れ。", "明日は雨！", "「そう。」", "と言う。"]),
        ("A heading\n\nA paragraph\nof two lines.\n- an item\n- another", ["A heading", "A paragraph\nof two lines.", "- an item", "- another"]),
        ("Das gilt z.B. hier, d.h. überall. Über allem gilt es.", ["Das gilt z.B. hier, d.h. überall.", "Über allem gilt es."]),
        ("", []),
        (" ... !!! \n\n ", []),
    ],
)  # fmt: skip
def test_sentences_end_where_a_reader_would_say(text, expected):
    assert sentences(text) == expected


@given(st.text(alphabet="ab AB.!?\n。”é1-", max_size=80))
@settings(max_examples=200, deadline=None)
def test_sentences_are_in_order_and_hold_every_letter(text):
    words = list(spans(text))
    assert all(start < end for start, end in words)
    assert all(first[1] <= second[0] for first, second in pairwise(words))
    outside = "".join(
        text[end:start] for (_, end), (start, _) in zip([(0, 0), *words], [*words, (len(text), 0)], strict=True)
    )
    assert not any(character.isalnum() for character in outside)
    assert all(text[start:end] == text[start:end].strip() for start, end in words)


def test_splitting_a_long_text_takes_time_in_proportion_to_it():
    assert len(list(spans("ab cd. " * 40_000))) == 40_000
    assert len(list(spans("\n \t" * 20_000 + "x" + "." * 20_000))) == 1


# Weights of terms


def test_words_are_case_folded_and_those_without_spaces_come_in_pairs():
    assert split_terms("Don’t STOP the χ2 test_case") == ["don’t", "stop", "the", "χ2", "test_case"]
    assert split_terms("東京の天気 ok") == ["東京", "京の", "の天", "天気", "ok"]
    assert split_terms("हिन्दी भाषा cafe\u0301 l'e\u0301te\u0301") == [
        "हिन्दी",
        "भाषा",
        "cafe\u0301",
        "l'e\u0301te\u0301",
    ]


def test_counts_are_never_too_low_and_exact_where_there_is_room():
    truth, exact, small = Counter(), CountSketch(), CountSketch(bits=6)
    random = Random(0)
    for _ in range(200):
        tokens = [f"w{random.randint(0, 99)}" for _ in range(10)]
        truth.update(set(tokens))
        exact.add(tokens)
        small.add(tokens)
    assert exact.of(list(truth)).tolist() == list(truth.values())
    assert all(count >= true for count, true in zip(small.of(list(truth)), truth.values(), strict=True))
    assert exact.of(["never"]).tolist() == [0]
    assert exact.of([]).tolist() == []


def test_inverse_document_frequency_is_that_of_bm25(abstracts):
    weights = TermWeights.of(abstracts)
    for word in ("osmium", "the", "kiln", "absent"):
        count = sum(word in split_terms(source.passages[0].context) for source in abstracts)
        assert weights.idf([word])[0] == pytest.approx(math.log(1 + (40 - count + 0.5) / (count + 0.5)))


def test_terms_are_shares_of_the_bm25_score_of_a_text():
    sources = [
        Source(str(i), "", (SourcePassage(text),))
        for i, text in enumerate(["a red red fox", "a blue owl"] + ["a dull day here"] * 10)
    ]
    weights = TermWeights.of(sources)
    mean = (4 + 3 + 40) / 12
    assert weights.mean_length == pytest.approx(mean)

    def gain(times, containing):
        idf = math.log(1 + (12 - containing + 0.5) / (containing + 0.5))
        return idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * 4 / mean))

    red, fox = gain(2, 1), gain(1, 1)
    terms = weights.terms("a red red fox")
    assert list(terms) == ["red", "fox"]
    assert terms["red"] == pytest.approx(red / (red + fox))
    assert sum(terms.values()) == pytest.approx(1)
    assert weights.terms("a a a") == {}


def test_a_sentence_of_three_documents_is_boilerplate_and_one_repeated_in_a_document_is_not():
    text = "All rights are reserved by us."
    sentence = "This one stands here and is said again."
    sources = [Source(str(i), "", (SourcePassage(f"{text} Number {i} is nice."),)) for i in range(3)]
    sources.append(Source("x", "", (SourcePassage(f"{sentence} {sentence}"), SourcePassage(sentence))))
    weights = TermWeights.of(sources)
    assert weights.is_boilerplate("all RIGHTS are reserved, by us")
    assert not weights.is_boilerplate(sentence)


# Pairs


def test_pairs_are_the_same_for_the_same_seed_and_others_for_another(abstracts):
    assert list(make(abstracts, seed=3)) == list(make(abstracts, seed=3))
    assert list(make(abstracts, seed=3)) != list(make(abstracts, seed=4))


def test_a_document_gives_the_same_pairs_wherever_it_stands(abstracts):
    chosen = ["title", "cloze", "keywords"]
    forward = {pair for pair in make(abstracts, kinds=chosen) if pair.document == "d7"}
    backward = {pair for pair in make(abstracts[::-1], kinds=chosen) if pair.document == "d7"}
    assert forward == backward != set()


def test_every_kind_can_be_had_alone_and_says_its_name_and_weight(abstracts, books):
    text = "A borrow checker is a part of the compiler that looks at references. [The osmarium melts](d1) at night."
    for name, kind in KINDS.items():
        pairs = list(make([*abstracts, *books, Source("z", "", (SourcePassage(text),))], kinds=[name]))
        assert {(pair.kind, pair.weight) for pair in pairs} == {(name, kind.weight)}


def test_an_unknown_kind_is_told_with_those_there_are(abstracts):
    with pytest.raises(InputError, match="no kind of pairs 'nonsense': expected some of title, section"):
        make(abstracts, kinds=["nonsense"])


def test_documents_that_can_be_read_only_once_are_refused(abstracts):
    with pytest.raises(InputError, match="read more than once"):
        make(iter(abstracts))


def test_no_documents_give_no_pairs():
    assert list(make([])) == []
    assert list(make([Source("a", "", ()), Source("b", "Title", (SourcePassage(""),))])) == []


def test_queries_are_unique_and_good(abstracts, books):
    everything = [*abstracts, *books]
    weights = TermWeights.of(everything)
    pairs = list(make(everything))
    assert len({normalised(pair.query) for pair in pairs}) == len(pairs) > 300
    for pair in pairs:
        assert len(weights.content(split_terms(pair.query))) >= KINDS[pair.kind].content
        assert 3 <= len(pair.query) <= 400
        assert len(pair.positive) >= 40
        assert normalised(pair.query) != normalised(pair.positive)


def test_a_title_finds_its_passage_without_itself(abstracts):
    pairs = {pair.document: pair for pair in make(abstracts, kinds=["title"])}
    for source in abstracts:
        assert pairs[source.id] == SyntheticPair(source.title, source.passages[0].text, "title", source.id, 1.0)


def test_a_title_finds_the_passage_that_shares_most_with_it():
    passages = (
        SourcePassage("Some remarks on rather different matters, at length."),
        SourcePassage("The narwhal dives below the ice for its prey."),
    )
    documents = [document(number) for number in range(9)]
    (pair,) = [
        pair
        for pair in make([Source("x", "Narwhal dives", passages), *documents], kinds=["title"])
        if pair.document == "x"
    ]
    assert pair.positive == passages[1].text


def test_a_section_is_found_by_its_heading_and_by_its_path(books):
    pairs = [pair for pair in make(books, kinds=["section"]) if pair.document == "d4"]
    assert {pair.query for pair in pairs} == {passage.heading[-1] for passage in books[4].passages}
    for pair in pairs:
        assert pair.query not in pair.positive
        assert pair.positive.split("\n")[-1] in {passage.text for passage in books[4].passages}


def test_a_sentence_finds_the_passage_after_its_own(books):
    pairs = [pair for pair in make(books, kinds=["next"]) if pair.document == "d2"]
    assert len(pairs) == 2
    contexts = [passage.context for passage in books[2].passages]
    for pair in pairs:
        index = contexts.index(pair.positive)
        assert pair.query in books[2].passages[index - 1].text


def test_a_cloze_is_taken_out_of_its_passage_but_once_in_ten_times(abstracts):
    pairs = [pair for seed in range(5) for pair in make(abstracts, seed=seed, kinds=["cloze"])]
    count = 0
    for pair in pairs:
        passage = next(source for source in abstracts if source.id == pair.document).passages[0]
        assert pair.query in passage.text
        if pair.query in pair.positive:
            count += 1
            assert pair.positive == passage.context
        else:
            start = passage.text.index(pair.query)
            rest = f"{passage.text[:start]}{passage.text[start + len(pair.query) :]}"
            assert pair.positive.split() == f"{passage.heading[0]} {rest}".split()
    assert 390 <= len(pairs) <= 400  # two of each of 40 documents, without the few with too common words
    assert 0.05 < count / len(pairs) < 0.15


def test_a_claim_is_a_telling_sentence_and_its_positive_the_rest_of_the_abstract():
    telling = "We show that osmium in a crucible melts the gallium."
    texts = [
        "It was a day as the others are.",
        "Nothing of the kind was seen there.",
        telling,
        "There was not much more to say of it.",
    ]
    documents = [
        Source(f"o{i}", "", (SourcePassage(" ".join(texts[j] + f" x{i}y{j}" for j in (0, 1, 3))),)) for i in range(2)
    ]
    source = Source("a", "Osmium melts gallium", (SourcePassage(" ".join(texts), ("Osmium melts gallium",)),))
    pairs = [
        pair
        for pair in make([source, *documents, *[document(i) for i in range(10)]], kinds=["claim"])
        if pair.document == "a"
    ]
    assert (
        SyntheticPair(
            telling, "Osmium melts gallium\n" + " ".join(text for text in texts if text != telling), "claim", "a", 1.0
        )
        in pairs
    )


def test_claims_are_for_documents_of_one_passage_only(books):
    assert list(make(books, kinds=["claim"])) == []


def test_what_is_defined_is_asked_for():
    text = (
        "A borrow checker is a part of the compiler that looks at references. It is the best part of all of them.\n"
        "**Lifetime elision** lets one leave annotations out of a signature.\n\n"
        "- trait object: a value that implements a trait unknown before the program runs\n"
        "let numbers = vec![1]: it is code, and no glossary for the people who read it\n"
    )
    german = "Ein Lebensraum ist ein Gebiet, in dem eine Art von Tieren dauerhaft vorkommt."
    documents = [document(number) for number in range(12)]
    pairs = list(
        make([Source("a", "", (SourcePassage(text), SourcePassage(german))), *documents], kinds=["definition"])
    )
    assert {(pair.query, pair.positive) for pair in pairs} == {
        ("what is borrow checker", text.strip()),
        ("Lifetime elision", text.strip()),
        ("trait object", text.strip()),
        ("was ist Lebensraum", german),
    }


def test_keywords_are_telling_words_of_a_passage_in_its_order(abstracts):
    weights = TermWeights.of(abstracts)
    pairs = list(make(abstracts, kinds=["keywords"]))
    assert {pair.document for pair in pairs} == {source.id for source in abstracts}
    for pair in pairs:
        query_terms, there = split_terms(pair.query), split_terms(pair.positive)
        assert 2 <= len(query_terms) <= 6
        assert [there.index(word) for word in query_terms] == sorted(there.index(word) for word in query_terms)
        assert weights.content(query_terms) == query_terms


def test_a_sentence_with_words_dropped_keeps_its_order_and_more_of_what_tells(abstracts):
    weights = TermWeights.of(abstracts)
    chosen, left_out = Counter(), Counter()
    for pair in make(abstracts, kinds=["dropped"]):
        whole = next(
            sentence
            for sentence in sentences(pair.positive.split("\n")[-1])
            if is_within(pair.query.split(), sentence.split())
        )
        content = set(weights.content(split_terms(whole)))
        missing = Counter(split_terms(whole)) - Counter(split_terms(pair.query))
        chosen.update(word in content for word in split_terms(pair.query))
        left_out.update(word in content for word in missing.elements())
    assert chosen[True] / (chosen[True] + left_out[True]) > 0.6
    assert chosen[False] / (chosen[False] + left_out[False]) < 0.5


def test_a_crop_is_a_stretch_of_one_sentence(abstracts):
    pairs = list(make(abstracts, kinds=["crop"]))
    assert len(pairs) >= 60
    lengths = {len(pair.query.split()) for pair in pairs}
    assert min(lengths) >= 5  # six words of which one was a mark
    assert max(lengths) <= 16
    for pair in pairs:
        assert any(pair.query in sentence for sentence in sentences(pair.positive.split("\n")[-1]))


def is_within(part, sequence):
    rest = iter(sequence)
    return all(word in rest for word in part)


def test_boilerplate_is_never_a_query():
    line = "Copyright osmium foundation, gallium licence applies to rhodium."
    sources = [Source(str(i), "", (SourcePassage(f"{line} {document(i).passages[0].text} {line}"),)) for i in range(5)]
    pairs = list(make(sources))
    assert {pair.document for pair in pairs} == {source.id for source in sources}
    assert all(normalised(pair.query) != normalised(line) for pair in pairs)


def test_text_of_any_alphabet_gives_pairs():
    texts = [
        "東京の天気は晴れです。明日は雨が降るでしょう。気象庁によると週末は雪になる見込みです。",
        "Кошка сидела на большом ковре у печи. Собака бежала домой через ночной лес. Корабль плыл по морю при луне.",
        "Η γάτα κάθεται στο μεγάλο χαλί δίπλα. Ο σκύλος τρέχει προς το σπίτι τη νύχτα. Το πλοίο πλέει στη θάλασσα με φως.",
    ]
    sources = [Source(str(i), "", (SourcePassage(text),)) for i, text in enumerate(texts)]
    assert {pair.document for pair in make(sources)} == {"0", "1", "2"}


@given(st.lists(st.text(alphabet="ab cd.:*[]()#\n_–AB", max_size=120), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_any_text_makes_pairs_without_an_error(texts):
    source = Source("a/b.md", texts[0][:20], tuple(SourcePassage(text, (texts[0][:20],)) for text in texts))
    for pair in make([source, document(1)]):
        assert pair.query == " ".join(pair.query.split())


def test_markup_is_taken_out_of_queries():
    assert plain("## See [the `Box<T>` type][box], **really**\n_now_") == "See the Box<T> type, really now"
    assert plain("One <!-- not said --> two\n> three") == "One two three"
    assert plain("p<0.05 and a*b > 3_000") == "p<0.05 and a*b > 3_000"


# Links


def test_a_link_finds_the_section_it_points_to_in_another_document():
    guide = Source(
        "docs/guide.md",
        "Guide",
        (
            SourcePassage("See [how osmium is melted](kiln.md#melting-it) and [the heliograph chapter][s], not [this gallium](#here).\n\n[s]: ../heliograph.html"),
            SourcePassage("Also [hafnium elsewhere](https://example.org/kiln.md), ![an indium picture](kiln.md)."),
        ),
    )  # fmt: skip
    kiln = Source(
        "docs/kiln.md",
        "Kiln",
        (SourcePassage("How a kiln is made of bricks and clay, by hand.", ("Kiln",)), SourcePassage("It is put in the kiln until it glows bright.", ("Kiln", "Melting it!"))),
    )  # fmt: skip
    page = Source("heliograph.md", "", (SourcePassage("The heliograph sends its signals by means of sunlight."),))
    pairs = list(make([guide, kiln, page, *[document(i) for i in range(9)]], kinds=["link"]))
    assert {(pair.query, pair.positive, pair.document) for pair in pairs} == {
        ("how osmium is melted", kiln.passages[1].context, "docs/kiln.md"),
        ("the heliograph chapter", page.passages[0].text, "heliograph.md"),
    }


def test_links_are_collected_once_each():
    text = "[one two](b.md) [one two](b.md) [three four](./b.md#x) [out](../../etc.md) [mail me](mailto:a@b.c)"
    definitions = links.collect([Source("a.md", "", (SourcePassage(text),))])
    assert definitions == {"b": [("one two", ""), ("three four", "x")], "../../etc": [("out", "")]}


# Where documents come from


def test_an_index_gives_its_documents_with_their_passages(retriever):
    sources = {source.id: source for source in from_index(retriever.snapshot())}
    assert set(sources) == {row["path"] for row in retriever.documents() if row["chunks"]}
    for row in retriever.documents():
        if row["chunks"]:
            assert len(sources[row["path"]].passages) == row["chunks"]
            assert sources[row["path"]].title == row["title"]
    for row in retriever.snapshot().read("chunks", ["document", "text", "context"]).to_pylist():
        path = next(
            document_row["path"] for document_row in retriever.documents() if document_row["id"] == row["document"]
        )
        assert row["context"] in {passage.context for passage in sources[path].passages}


def test_an_index_can_be_read_again_and_makes_pairs(retriever):
    documents = from_index(retriever.snapshot())
    assert list(documents) == list(documents)
    pairs = list(make(documents))
    assert {pair.document for pair in pairs} <= {source.id for source in documents}


def test_a_collection_gives_its_documents_below_their_titles(tmp_path):
    rows = [{"_id": "1", "title": "Kiln", "text": "It glows."}, {"_id": 2, "text": "No title."}]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    documents = from_corpus(tmp_path)
    assert list(documents) == list(documents) == [
        Source("1", "Kiln", (SourcePassage("It glows.", ("Kiln",)),)),
        Source("2", "", (SourcePassage("No title."),)),
    ]  # fmt: skip
    assert [source.passages[0].context for source in documents] == ["Kiln\nIt glows.", "No title."]


def test_a_split_holds_out_whole_documents_by_their_id_alone(abstracts):
    sources = [Source(f"n{i}", "", ()) for i in range(2_000)]
    train, held_out = split(sources, 0.2)
    assert sorted([*train, *held_out], key=lambda source: int(source.id[1:])) == sources
    assert 0.17 < len(list(held_out)) / 2_000 < 0.23
    assert {source.id for source in split(sources[::-1][:500], 0.2)[1]} == {
        source.id for source in held_out if source in sources[1500:]
    }
    assert list(split(sources, 0.2, seed=1)[1]) != list(held_out)
    assert {pair.document for pair in make(split(abstracts, 0.3)[1])} == {
        source.id for source in split(abstracts, 0.3)[1]
    }


def test_where_a_document_falls_never_changes():
    assert [
        source.id for source in split([document(i) for i in range(20)], 0.2)[1]
    ] == "d1 d8 d9 d10 d11 d14 d15".split()


@pytest.mark.parametrize("share", [0, 1, -0.5, 2])
def test_a_share_that_leaves_nothing_is_refused(share):
    with pytest.raises(InputError, match="between 0 and 1"):
        split([], share)
