from __future__ import annotations

import sys

import pytest

from binocle.retriever.search.results.hit import Hit
from binocle.retriever.search.results.snippet import blocks, highlights, sentences

FIELDS = {
    "rank": 1,
    "score": 1.25,
    "scores": {"lexical": 3.5, "semantic": None},
    "path": "docs/guide.md",
    "sha256": "",
    "char_start": 0,
    "char_end": 5,
    "line_start": 7,
    "line_end": 9,
    "page": None,
    "heading": (),
    "text": "Cancel the task.",
    "title": "",
    "format": "text",
    "metadata": {},
    "document_row": 1,
    "passage": 1,
    "explanation": {"mode": "hybrid", "ranks": {"lexical": 2, "semantic": None}, "milliseconds": {"lexical": 1.234}},
} | ({"source": "file"} if "source" in Hit.__dataclass_fields__ else {})


def shown(query="cancel", *, colour=False, width=80, explain=False, **changes):
    (block,) = blocks([Hit(**{**FIELDS, **changes})], query, colour=colour, width=width, explain=explain)
    return block


def test_a_hit_is_a_place_and_a_passage():
    assert shown() == " 1  docs/guide.md:7\n    Cancel the task.\n"
    assert (
        shown(page=3, heading=("Guide", "Tasks")) == " 1  docs/guide.md:7  p. 3  Guide > Tasks\n    Cancel the task.\n"
    )


def test_ranks_stand_in_a_column():
    hits = [Hit(**{**FIELDS, "rank": rank}) for rank in (9, 10)]
    assert [block[:4] for block in blocks(hits, "x", colour=False, width=80)] == [" 9  ", "10  "]


def test_an_explanation_names_each_stage():
    last = shown(explain=True).splitlines()[-1].strip()
    assert last == "score 1.250 = hybrid of lexical 3.500 (rank 2), semantic –; lexical 1.2 ms"


def test_lines_stand_as_they_do_in_the_document():
    code = "def f(x):\n    if x:\n\n        return 1\nf(3)\n"
    assert shown(text=code) == " 1  docs/guide.md:7\n    def f(x):\n        if x:\n            return 1\n    f(3)\n"
    assert shown(text="first\n\tsecond\n\tthird") == " 1  docs/guide.md:7\n    first\n        second\n        third\n"


def test_long_lines_are_wrapped_to_the_terminal():
    for width in (20, 40, 80):
        lines = shown(text="words of a passage " * 20, width=width).splitlines()
        assert max(map(len, lines)) <= max(width, len(lines[0]))
        assert len(lines) == 6


def test_letters_that_take_two_columns_are_counted_so():
    text = "単にコルーチンを呼び出しただけでは、実行スケジュールは予約されていない。"
    lines = passage(text, "予約", width=40)
    assert lines == ["単にコルーチンを呼び出しただけでは", "、実行スケジュールは予約されていな", "い。"]
    assert passage("𠮷" * 20, width=40) == ["𠮷" * 17, "𠮷" * 3]


def passage(text, query="cancel", *, width=40, form="text"):
    """The shown part of a passage, without the four blanks before it."""
    return [line[4:] for line in shown(query, text=text, width=width, format=form).splitlines()[1:]]


def test_no_line_ends_within_a_letter_that_takes_two_columns():
    lines = passage("x" + "日" * 40, "x", width=40)
    assert lines == ["x" + "日" * 16, "日" * 17, "日" * 7]  # at most 34 columns each


def test_a_paragraph_wrapped_wider_than_is_shown_flows_on():
    text = "It was a bright cold day in April, and the clocks\nwere striking thirteen. Winston Smith, his chin\nnuzzled.\n\nNext."
    assert passage(text) == [
        "It was a bright cold day in April,",
        "and the clocks were striking",
        "thirteen. Winston Smith, his chin",
        "nuzzled.",
        "Next.",
    ]


def test_items_headings_and_rows_begin_their_own_lines():
    text = "- the first item of a list that is long\n  and goes on\n- the second\n# a heading that is longer than the line\n| a row |"
    assert passage(text) == [
        "- the first item of a list that is",
        "  long and goes on",
        "- the second",
        "# a heading that is longer than",
        "the line …",
    ]


def test_indented_and_fenced_lines_and_records_are_not_taken_for_more_of_a_paragraph():
    text = (
        "words and words and words and so on to here\n  indented\n```js\nlet value = compute(first, second, third);\n"
    )
    assert passage(text) == [
        "words and words and words and so",
        "on to here",
        "  indented",
        "```js",
        "let value = compute(first, …",
    ]
    log = "2026-11-22 01:02:03 the server is gone\n2026-11-22 01:02:04 the server is back\n"
    assert passage(log) == ["2026-11-22 01:02:03 the server is", "gone", "2026-11-22 01:02:04 the server is", "back"]
    long = "word " * 22
    assert passage(f"{long}\nnext")[-1] == "next"


def test_lines_of_code_are_cut_unless_that_would_hide_a_match():
    code = "def f(first, second, third, fourth):\n    return stop(first, second, third, fourth, cancel)\n"
    assert passage(code, "stop", form="python") == [
        "def f(first, second, third, …",
        "    return stop(first, second, …",
    ]
    assert passage(code, "cancel", form="python") == [
        "def f(first, second, third, …",
        "    return stop(first, second,",
        "    third, fourth, cancel)",
    ]


@pytest.mark.parametrize("after", ["", "\n```python\nx\n```", "\n```\nx\n```"])
def test_a_passage_that_begins_inside_a_fence_is_code_up_to_the_end_of_the_fence(after):
    text = (
        f"let value = compute(first, second, third);\n```\nwords and words and words and so on to here\nand on{after}"
    )
    assert passage(text)[:4] == [
        "let value = compute(first, …",
        "```",
        "words and words and words and so",
        "on to here and on",
    ]


def test_a_single_record_is_shown_in_as_many_lines_as_there_is_room_for():
    record = '{"title": "Swans", "text": "Swans are large white birds of rivers and lakes, and they sing."}'
    assert passage(record, form="jsonl") == [
        '{"title": "Swans", "text": "Swans',
        "are large white birds of rivers",
        'and lakes, and they sing."}',
    ]
    assert passage(f"{record}\n{record}\n", form="jsonl") == ['{"title": "Swans", "text": …'] * 2


def test_prose_in_xml_flows_as_other_prose_does():
    text = "It was a bright cold day in April, and the clocks\nwere striking thirteen."
    assert (
        passage(text, form="xml")
        == passage(text)
        == [
            "It was a bright cold day in April,",
            "and the clocks were striking",
            "thirteen.",
        ]
    )


@pytest.mark.parametrize("width", [0, 1, 4, 5, 10])
def test_a_narrow_terminal_still_gets_an_answer(width):
    assert "docs/guide.md:7" in shown(width=width)


def test_no_hits_give_no_blocks():
    assert list(blocks([], "cancel", colour=True, width=80)) == []


def marked(text, query):
    block = shown(query, text=text, colour=True, width=400).splitlines()[1]
    return [piece.split("\x1b")[0] for piece in block.split("\x1b[1;33m")[1:]]


def test_words_of_the_query_are_marked_in_all_their_forms():
    text = "Cancelling, cancelled, CANCELS: a cancel of canals and can."
    assert marked(text, "how do I cancel it?") == ["Cancelling", "cancelled", "CANCELS", "cancel"]


def test_common_words_are_not_marked():
    assert marked("the task is in the queue", "is the task in it") == ["task"]


def test_other_alphabets_are_marked_without_regard_to_case():
    assert marked("ΔΟΚΙΜΉ и ЁЛКА und STRASSE", "δοκιμή ёлка straße") == ["ΔΟΚΙΜΉ", "ЁЛКА", "STRASSE"]


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("cafe", "le Café, cafe\u0301s", ["Café", "cafe\u0301s"]),
        ("résumé", "RESUME", ["RESUME"]),
        ("case", "snake_case", ["case"]),
        ("हिन्दी", "यह हिन्दी है", ["हिन्दी"]),
        ("東京の天気", "今日、東京都は天気がいい", ["東京", "天気"]),
        ("東京都", "今日の東京都だ", ["東京都"]),
        ("水", "水を飲む", ["水"]),
        ("서울", "나는 서울에서", ["서울에서"]),
        ("학교에서", "큰 학교", ["학교"]),
        ("사랑 학살", "사람 사랑 학생 학살", ["사랑", "학살"]),
        ("대한", "대한은 대한에서 대한민국 대한에서는 대한민국헌법", ["대한은", "대한에서", "대한민국"]),
        ("카페", "\u110f\u1161\u1111\u1166", ["\u110f\u1161\u1111\u1166"]),  # taken apart, as macOS names files
    ],
)
def test_words_are_marked_as_full_text_search_finds_them(query, text, expected):
    assert marked(text, query) == expected


def test_highlights_are_the_spans_of_words_that_are_not_common():
    assert highlights("how to install the package", "how do I install a package?") == [(7, 14), (19, 26)]
    assert highlights("東京都の天気", "東京都") == [(0, 3)]  # of pairs of signs that overlap, one span
    assert highlights("水火", "水 火") == [(0, 2)]  # of neighbours too
    assert highlights("nothing", "how do I install it") == []


@pytest.mark.parametrize(("is_colour", "remark"), [(False, "  [weak]"), (True, "\x1b[1;33m  [weak]\x1b[0m")])
def test_a_weak_hit_says_so(is_colour, remark):
    assert shown(colour=is_colour, weak=True).partition("\n")[0].endswith(remark)


def test_the_lines_that_match_are_shown_also_in_scripts_without_spaces():
    text = "\n".join([*["何もない。"] * 9, "今日の東京都の天気。"])
    assert "東京都" in shown("東京の天気", text=text)


def test_without_colour_there_is_no_escape():
    assert "\x1b" not in shown(heading=("A",), page=2, explain=True)


@pytest.mark.parametrize("field", ["text", "path", "heading"])
@pytest.mark.parametrize(
    "hostile",
    ["\x1b[31mred", "\x07bell", "\x9b2J", "a\rb", "\u202eevil", "\x1b]0;title\x07", "\x00", "\u2066x"],
    ids=ascii,
)
def test_a_document_cannot_command_the_terminal(field, hostile):
    value = (hostile,) if field == "heading" else hostile
    block = shown(**{field: value})
    body = block.replace("\n", "")
    assert all(char.isprintable() for char in body), ascii(block)
    assert len(block.splitlines()) <= 3


@pytest.mark.parametrize(
    ("path", "expected"),
    [("new\nline.md", "new\\nline.md"), ("e\x1b[2J.md", "e\\x1b[2J.md"), ("a\u00a0b", "a\\xa0b"), ("ü 東", "ü 東")],
    ids=ascii,
)
def test_a_path_tells_which_file_it_is_whatever_its_name(path, expected):
    assert shown(path=path).startswith(f" 1  {expected}:")


@pytest.mark.parametrize("text", ["👩‍🚀 and 👨‍👩‍👧", "می‌خواهم", "क्‍ष", "soft\u00adhyphen", "flag 🏴󠁧󠁢󠁥󠁮󠁧󠁿"], ids=ascii)
def test_joiners_that_writing_needs_stay(text):
    assert "\N{REPLACEMENT CHARACTER}" not in shown(text=text)


def excerpt(text, query="cancel"):
    return [line.strip() for line in shown(query, text=text, width=100).splitlines()[1:]]


def test_a_long_passage_is_shown_where_most_words_match():
    lines = [f"filler words on line {number}" for number in range(40)]
    lines[20] = "a task waits here"
    lines[22] = "cancel it in the queue"
    lines[35] = "another task"
    given = excerpt("\n".join(lines), "cancel task queue")
    assert len(given) == 5
    assert {"a task waits here", "cancel it in the queue"} <= {
        line.removeprefix("… ").removesuffix(" …") for line in given
    }
    assert given[0].startswith("… ")
    assert given[-1].endswith(" …")


def test_a_passage_of_one_long_line_is_shown_where_most_words_match():
    given = excerpt(
        "filler words here " * 60 + "cancel a task in the queue " + "more filler there " * 60, "cancel task queue"
    )
    assert "cancel a task in the queue" in " ".join(given)
    assert len(given) == 5


def test_a_long_passage_without_a_match_is_shown_from_its_start():
    given = excerpt("\n".join(f"line {number}" for number in range(20)), "xyzzy")
    assert given == ["line 0", "line 1", "line 2", "line 3", "line 4 …"]


def test_a_match_at_the_end_is_shown():
    assert excerpt("\n".join([f"line {number}" for number in range(20)] + ["cancel"])) == [
        "… line 16",
        "line 17",
        "line 18",
        "line 19",
        "cancel",
    ]


@pytest.mark.parametrize(
    "text", ["x" * 5_000, "天" * 5_000, "x" * 400 + " cancel " + "y" * 400], ids=lambda text: ascii(text[:3])
)
def test_words_longer_than_a_line_are_cut(text):
    given = excerpt(text)
    assert 0 < len(given) <= 6
    assert max(map(len, given)) <= 100


def test_the_steps_of_an_excerpt_grow_as_the_passage_does():
    def steps(words):
        count = 0

        def on_call(*_):
            nonlocal count
            count += 1

        sys.setprofile(on_call)
        try:
            excerpt("cancel task " * words, "cancel task queue")
        finally:
            sys.setprofile(None)
        return count

    assert steps(1_000) < 2.2 * steps(500)


def test_an_empty_passage_is_an_empty_line():
    assert shown(text=" ") == " 1  docs/guide.md:7\n    \n"


ANSWER = (
    "The capital of Mongolia is Ulaanbaatar, a city of over a million people on the river Tuul, where winters are long."
)
FILLER = " ".join(f"Sentence number {number} is about the country and its capital letters." for number in range(12))


def test_the_sentence_with_the_rare_words_is_shown_whole_and_its_line_is_cited():
    text = f"{FILLER}\n{ANSWER}\n{FILLER}\nThe end."
    block = shown("what is the capital of mongolia", text=text, line_start=7, line_end=10, width=60)
    assert ANSWER in " ".join(line.strip() for line in block.splitlines())
    assert 6 <= len(block.splitlines()) <= 7
    assert block.startswith(" 1  docs/guide.md:7")  # the line in the file of the first shown line
    wrapped = "\n".join([*FILLER.replace(". ", ".\n").splitlines(), ANSWER, *FILLER.replace(". ", ".\n").splitlines()])
    block = shown("capital of mongolia", text=wrapped, line_start=7, line_end=7 + wrapped.count("\n"), width=200)
    assert block.startswith(" 1  docs/guide.md:17\n    … Sentence number 10")


def test_blank_lines_before_an_item_are_passed_in_linear_time():  # else this runs for minutes
    assert sentences("some words here" + "\n" * 400_000 + "- an item too") == ["some words here", "- an item too"]


def test_the_line_in_the_source_of_a_page_is_that_of_the_passage():
    text = "\n".join(f"line {number}" for number in range(20)) + "\ncancel"
    assert shown(text=text, line_start=7, line_end=90, format="html").startswith(" 1  docs/guide.md:7\n    … line 16")
    assert shown(text=text, line_start=7, line_end=27).startswith(" 1  docs/guide.md:23\n    … line 16")


def test_a_long_sentence_that_answers_is_not_cut():
    long = "We cancel " + "one after the other " * 18 + "every task."
    block = shown(text=f"Before it.\n\n{long}\n\nAfter it. " + "More. " * 60, width=80)
    assert "every task." in block
    assert 6 < len(block.splitlines()) <= 9


def test_a_whole_passage_is_shown_on_request():
    text = "\n".join(f"line {number}" for number in range(20))
    (block,) = blocks([Hit(**{**FIELDS, "text": text})], "x", colour=False, width=80, full=True)
    assert [line.strip() for line in block.splitlines()[1:]] == text.splitlines()


def test_a_path_is_a_link_in_colour_alone():
    hits = [Hit(**{**FIELDS, "path": "a\x1b]b.md"})]
    (block,) = blocks(hits, "x", url_of=lambda _: "file:///x/a%1B%5Db.md", colour=True, width=80)
    assert "\x1b]8;;file:///x/a%1B%5Db.md\x1b\\a\\x1b]b.md:7\x1b]8;;\x1b\\" in block
    (block,) = blocks(hits, "x", url_of=lambda _: "file:///x/a%1B%5Db.md", colour=False, width=80)
    assert "\x1b" not in block
