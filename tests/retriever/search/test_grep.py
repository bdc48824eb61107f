from __future__ import annotations

import subprocess
import unicodedata

import pytest

from binocle import Retriever
from binocle.core.errors import InputError
from binocle.retriever.documents import file_parts
from binocle.retriever.readers import large_files
from binocle.retriever.search import grep as module
from binocle.retriever.search.grep import LinePattern

TEXTS = {
    "a.py": "def max_size(x):\n    return max(x)  # 12.5 %\n\n\nclass Über:\n    größe = 3\n    GRÖSSE = 4\n",
    "b/c.txt": "The cat sat on the mat.\ncat's cradle, concat, cat_flap\n\n\ta tab\n"
    + "filler line\n" * 40
    + "the last cat",
    "d.md": "# Title\n\nfoo.bar foo-bar foo_bar (foo) [bar] a+b \\d $5 ^x\n\n- élan vital\n- ΣΊΣΥΦΟΣ σίσυφος\n",
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("grep") / "folder"
    for path, text in TEXTS.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")
    return root


@pytest.fixture(scope="session")
def retriever(folder, tiny_model):
    retriever = Retriever.open(folder, model=tiny_model)
    retriever.sync()
    return retriever


def lines_of(retriever, pattern, **options):
    return [
        (document.path, line.number, line.text)
        for document in retriever.grep(pattern, **options)
        for group in document.groups
        for line in group
        if line.is_match
    ]


def by_grep(folder, pattern, *flags):
    command = ["grep", "-rn", "--exclude-dir=.binocle", *flags, "-e", pattern, "."]
    output = subprocess.run(command, cwd=folder, capture_output=True, env={"LC_ALL": "C.UTF-8"}, check=False).stdout
    rows = (row.split(":", 2) for row in output.decode().splitlines())
    return sorted((path.removeprefix("./"), int(number), text) for path, number, text in rows)


FIXED = ["cat", "foo.bar", "(foo)", "a+b", "\\d", "$5", "^x", "Über", "größe", "12.5 %", "[bar]", "\t", "nowhere"]
PATTERNS = [
    *("cat", "c.t", "^The", "cat$", "^$", "^#", r"\bcat\b", r"\bÜber", r"größe\b", r"\w+_\w+", "[a-c]at", "(max|cat)_"),
    *(r"\w+\(", "fo{2}", "x*", r"[^[:alnum:][:space:]]{2}", r"\.$", "é|ü", r"^\s*class\s", r"[[:space:]]a[[:space:]]"),
    *(r"gr\w\we", r"\W\wlan", r"[_[:alpha:]]lan", r"\S\wlan"),
]


@pytest.mark.parametrize("flags", [(), ("-i",), ("-w",), ("-i", "-w")])
def test_lines_are_those_that_grep_finds(flags, folder, retriever):
    options = {"ignore_case": "-i" in flags, "word": "-w" in flags}
    for text in FIXED:
        assert lines_of(retriever, text, fixed=True, **options) == by_grep(folder, text, "-F", *flags), text
    for pattern in PATTERNS:
        if "*" not in pattern or "-w" not in flags:  # grep's -w takes no empty match between two signs
            assert lines_of(retriever, pattern, **options) == by_grep(folder, pattern, "-E", *flags), pattern


def test_case_is_folded_in_every_alphabet(retriever):
    assert [number for _, number, _ in lines_of(retriever, "größe", ignore_case=True)] == [6]
    assert [number for _, number, _ in lines_of(retriever, "ÉLAN", ignore_case=True)] == [5]
    assert [number for _, number, _ in lines_of(retriever, "σίσυφοσ", ignore_case=True)] == [6]


def test_context_is_joined_to_groups(retriever):
    (document,) = retriever.grep("^ *(return|class|GR)", before=1, after=1)
    assert [[(line.number, line.is_match) for line in group] for group in document.groups] == [
        [(1, False), (2, True), (3, False), (4, False), (5, True), (6, False), (7, True)]
    ]
    (document,) = retriever.grep("^def|^class", after=1)
    assert [[line.number for line in group] for group in document.groups] == [[1, 2], [5, 6]]
    assert document.count == 2


def test_matches_are_spans_of_the_line(retriever):
    (document,) = retriever.grep("cat", where="path=b/*")
    spans = [[line.text[start:end] for start, end in line.matches] for (line,) in document.groups]
    assert spans == [["cat"], ["cat", "cat", "cat"], ["cat"]]
    (document,) = retriever.grep("cat", word=True, where="path=b/*")
    assert [line.matches for (line,) in document.groups] == [((4, 7),), ((0, 3),), ((9, 12),)]


def test_counts_come_without_lines(retriever):
    assert [(found.path, found.count, found.groups) for found in retriever.grep("a", lines=False)] == [
        ("a.py", 3, ()),
        ("b/c.txt", 4, ()),
        ("d.md", 2, ()),
    ]


def test_small_batches_change_nothing(retriever, monkeypatch):
    expected = lines_of(retriever, "a")
    monkeypatch.setattr(module, "_BATCH_BYTES", 10)
    assert lines_of(retriever, "a") == expected


def test_lines_are_numbered_as_citations_number_them(tmp_path, tiny_model, monkeypatch):
    """In HTML they count in the source, in a part of a large file they count in the file."""
    monkeypatch.setattr(file_parts, "PART_BYTES", 1_000)
    monkeypatch.setattr(large_files, "MAX_WHOLE", 2_000)
    (tmp_path / "page.html").write_text("<html><body>\n\n\n<p>first words</p>\n\n\n<p>a needle</p>\n</body></html>\n")
    (tmp_path / "code.html").write_text("<html>\n\n<pre>\none\ntwo needles\nthree</pre>\n")
    (tmp_path / "big.log").write_text("".join(f"line {number}\n" for number in range(1, 400)) + "one needle\n")
    retriever = Retriever.open(tmp_path, model=tiny_model)
    retriever.sync()
    part, code, page = lines_of(retriever, "needle")
    assert code == ("code.html", 5, "two needles")
    assert file_parts.file_of(part[0]) == "big.log" != part[0]
    assert part[1:] == (400, "one needle")
    (hit,) = retriever.search("needle", 1, mode="lexical", where="path=page.html")
    assert page == ("page.html", hit.line_start, "a needle")


def test_blank_lines_between_the_passages_of_a_large_file_have_the_lines_of_the_file(tmp_path, tiny_model, monkeypatch):
    monkeypatch.setattr(file_parts, "PART_BYTES", 1_000)
    monkeypatch.setattr(large_files, "MAX_WHOLE", 2_000)
    lines = [word for number in range(200) for word in (f"the cat sat on mat {number}", "", "")]
    (tmp_path / "big.log").write_text("\n".join(lines) + "\n")
    retriever = Retriever.open(tmp_path, model=tiny_model)
    retriever.sync()
    matches = lines_of(retriever, "^$")
    assert len({path for path, _, _ in matches}) > 2
    assert [number for _, number, _ in matches] == [number for number, line in enumerate(lines, 1) if not line]


@pytest.mark.parametrize("pattern", ["(a", "a(?=b)", r"(a)\1", "[z-a]", "a{2000}", "", "own)|(rules", "a\\"])
def test_what_is_no_pattern_is_refused(pattern, retriever):
    with pytest.raises(InputError, match="pattern|regular expression"):
        retriever.grep(pattern)


def test_an_open_quote_ends_with_the_pattern(retriever):
    assert lines_of(retriever, r"\Q(foo) [bar]") == lines_of(retriever, "(foo) [bar]", fixed=True) != []
    assert LinePattern.parse("\\Qa\\").spans(["a\\b"]) == [((0, 2),)]


@pytest.mark.parametrize("pattern", [r"\B", r"\C"])
def test_matches_within_a_character_are_no_spans(pattern, retriever):
    assert ("d.md", 5, "- élan vital") in lines_of(retriever, pattern)
    assert LinePattern.parse(pattern).spans(["é"]) == [()]


def test_no_pattern_takes_long(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "x", "text": "a" * 20_000 + "b"}])
    assert list(retriever.grep("(a+)+$")) == []  # 2^20,000 steps of backtracking


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (r"\bcat\b", "concat a cat, the cat cats", ["cat", "cat"]),
        (r"\bcat", "concat a cat, the cat cats", ["cat", "cat", "cat"]),
        (r"cat\b", "concat a cat", ["cat", "cat"]),
        (r"\bcat.*dog\b", "concat dog cat dog", ["cat dog"]),
        (r"\bcat|dog\b", "concat cat dogs hotdog", ["cat", "dog"]),
        (r"\bété\b", "bétéx l'été étés", ["été"]),
    ],
)
def test_edges_of_words_count_in_spans_too(pattern, line, expected):
    (spans,) = LinePattern.parse(pattern).spans([line])
    assert [line[start:end] for start, end in spans] == expected


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_letters_with_marks_match_in_both_forms(form, tmp_path, tiny_model):
    text = unicodedata.normalize(form, "Ein Café.\nViele Cafés.\nEin Cafe.\n")
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "x", "text": text}])
    for other in ("NFC", "NFD"):
        pattern = unicodedata.normalize(other, "café")
        options = {"fixed": True, "ignore_case": True}
        assert [line for _, line, _ in lines_of(retriever, pattern, **options)] == [1, 2]
        assert [line for _, line, _ in lines_of(retriever, pattern, word=True, **options)] == [1]
        assert [line for _, line, _ in lines_of(retriever, pattern.title() + "+s?[.]")] == [1, 2]
        assert [line for _, line, _ in lines_of(retriever, rf"\Q{pattern.title()}\E|Nothing")] == (
            [1, 2] if form == "NFC" else []
        )
    (document,) = retriever.grep(pattern, ignore_case=True, word=True, fixed=True)
    ((line,),) = document.groups
    assert [line.text[start:end] for start, end in line.matches] == [unicodedata.normalize(form, "Café")]


def test_marks_in_a_text_are_no_spans():
    pattern = LinePattern.parse("b")
    assert pattern.spans(["a\ue000b\ue001", "abc"]) == [(), ((1, 2),)]
