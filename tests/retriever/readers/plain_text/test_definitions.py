from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binocle.retriever.documents.chunker import chunk
from binocle.retriever.readers import read
from binocle.retriever.readers.document_builder import MAX_LEVEL
from binocle.retriever.readers.plain_text import definitions

pytest.importorskip("tree_sitter")


def headings(source, name):
    """The heading of each line that has a word, as "outer inner"."""
    document = read(source.encode(), name)
    lines = {}
    for part in document.parts:
        for number, line in enumerate(document.text[part.start : part.end].split("\n"), part.line):
            if any(map(str.isalnum, line)):
                lines[number] = " ".join(part.heading)
    return [lines[number] for number in sorted(lines)]


CASES = {
    "a.py": (
        (
            "import os\n\n# About area.\n@cache\n@other\ndef area(width):\n    return width\n\nclass Shape:\n"
            '    """A shape."""\n\n    name = 1\n\n    async def draw(self):\n        def inner(pen):\n'
            "            return pen\n        return inner\n\nSIZE = 1\n"
        ),
        ["", *["area"] * 5, *["Shape"] * 3, "Shape draw", *["Shape draw inner"] * 2, "Shape draw", ""],
    ),
    "a.js": (
        (
            "const a = 1;\n/** Adds numbers. */\nexport function add(x) {\n  return x;\n}\nexport const twice = (x) => {\n"
            "  return x;\n};\nclass Box {\n  open() {\n    return 1;\n  }\n}\nBox.prototype.close = function () {\n"
            "  return 2;\n};\nmodule.exports.run = function () {\n  return 3;\n};\nconst api = {\n  get: function () {\n"
            "    return 4;\n  },\n};\n"
        ),
        [
            "",
            *["add"] * 3,
            *["twice"] * 2,
            "Box",
            *["Box open"] * 2,
            *["Box close"] * 2,
            *["run"] * 2,
            "",
            *["get"] * 2,
        ],
    ),
    "a.tsx": (
        (
            "interface Props {\n  width: number;\n}\nnamespace View {\n  export class Panel {\n    @Input() size = 1;\n"
            "    draw(): Element {\n      return <div>text</div>;\n    }\n  }\n}\n"
        ),
        [*["Props"] * 2, "View", *["View Panel"] * 2, *["View Panel draw"] * 2],
    ),
    "a.go": (
        (
            "package main\n\n// Tree holds things.\ntype Tree[T any] struct {\n\troot T\n}\n\n// Add adds.\n"
            "func (t *Tree[T]) Add(x T) {\n\tt.root = x\n}\n\nfunc main() {\n\tprintln(1)\n}\n"
        ),
        ["", *["Tree"] * 3, *["Tree Add"] * 3, *["main"] * 2],
    ),
    "a.rs": (
        (
            "use std::fmt;\n/// A point.\n#[derive(Debug)]\npub struct Point<T> {\n    x: T,\n}\n\n"
            "impl<T> fmt::Display for Point<T> {\n    /// Writes.\n    fn fmt(&self) -> u8 {\n        1\n    }\n}\n"
            "mod inner {\n    pub fn go() {\n        run();\n    }\n}\n"
        ),
        [
            "",
            *(["Point"] * 4),
            "impl<T> fmt::Display for Point<T>",
            *(["impl<T> fmt::Display for Point<T> fmt"] * 3),
            "inner",
            *(["inner go"] * 2),
        ],
    ),
    "A.java": (
        (
            "package a;\n\n/** A stack. */\n@Deprecated\npublic class Stack<T> {\n    private int size;\n\n"
            "    /** Pushes. */\n    @Override\n    public void push(T item) {\n        size++;\n    }\n}\n"
        ),
        ["", *["Stack"] * 4, *["Stack push"] * 4],
    ),
    "a.c": (
        (
            "#include <stdio.h>\n\ntypedef struct {\n    int width;\n} Shape;\n\nstatic char *\nname_of(const Shape *shape)\n"
            "{\n    return 0;\n}\n\nstruct other use;\n"
        ),
        ["", *["Shape"] * 3, *["name_of"] * 3, ""],
    ),
    "a.h": (
        (
            "namespace space {\ntemplate <typename T>\nclass Tree {\n  int size() { return 1; }\n};\n}\n"
            "int space::Tree::depth(int x) {\n  return x;\n}\n"
        ),
        ["space", *["space Tree"] * 2, "space Tree size", *["space Tree depth"] * 2],
    ),
    "a.cs": (
        (
            "namespace Space {\n  public class Box {\n    public int Size { get; set; }\n    /// <summary>Opens.</summary>\n"
            "    [Fact]\n    public void Open() {\n      Run();\n    }\n  }\n}\n"
        ),
        ["Space", "Space Box", "Space Box Size", *["Space Box Open"] * 4],
    ),
    "a.rb": (
        (
            "module Space\n  # A box.\n  class Box\n    def open\n      run\n    end\n\n    def self.make\n      new\n    end\n"
            "  end\nend\nputs 1\n"
        ),
        ["Space", *["Space Box"] * 2, *["Space Box open"] * 3, *["Space Box make"] * 5, ""],
    ),
    "a.php": (
        (
            "<?php\nnamespace App;\n/** A box. */\nfinal class Box {\n  public function open(): int {\n    return 1;\n  }\n}\n"
            "function close_all() {\n  return 2;\n}\n"
        ),
        ["", "", *["Box"] * 2, *["Box open"] * 2, *["close_all"] * 2],
    ),
    "a.sh": ("set -e\n# Cleans.\nclean_up() {\n  rm -r build\n}\nclean_up now\n", ["", *["clean_up"] * 3, ""]),
}


@pytest.mark.parametrize("name", CASES)
def test_each_line_of_code_has_the_heading_of_its_definition(name):
    source, expected = CASES[name]
    assert headings(source, name) == expected


def test_places_are_counted_in_characters():
    source = "größe = '天気 𝔘𝔫𝔦'\n\n\ndef straße(x):\n    return 'é' * x\n\n\ndef next_one(x):\n    return x\n"
    document = read(source.encode(), "a.py")
    assert [document.text[part.start : part.end].split("(")[0] for part in document.parts] == [
        "größe = '天気 𝔘𝔫𝔦'",
        "def straße",
        "def next_one",
    ]
    assert [part.line for part in document.parts] == [1, 4, 8]


def test_code_with_errors_keeps_the_headings_of_what_is_whole():
    source = "x = = 3 +\n\nclass Whole:\n    def method(self):\n        return )1\n"
    assert headings(source, "a.py") == ["", "Whole", "Whole method", "Whole method"]


HOSTILE = {
    "brackets": "(" * 10_000,
    "pairs": "(" * 4_000 + ")" * 4_000,
    "blocks": "func(){" * 4_000,
    "classes": "class A{" * 4_000,
    "calls": "a(" * 4_000,
    "tags": "<a>" * 4_000,
    "templates": "`${" * 4_000,
    "indentation": "".join(" " * number + "if a:\n" for number in range(300)),
    "functions": "".join(" " * number + f"def f{number}():\n" for number in range(300)),
    "escapes": '"\\' * 4_000,
    "dashes": "-" * 100_000,
    "operators": "-" * 4_000 + "a",
}


@pytest.mark.parametrize("name", ["a.py", "a.rs", "a.ts"])
def test_absurd_code_loses_nothing_and_ends(name, monkeypatch):
    monkeypatch.setattr(definitions, "_MAX_SECONDS", 0.03)
    for source in HOSTILE.values():
        document = read(source.encode(), name)
        kept = "".join(document.text[part.start : part.end] for part in document.parts)
        assert "".join(kept.split()) == "".join(document.text.split())
        assert max(len(part.heading) for part in document.parts) <= MAX_LEVEL


def test_a_file_that_takes_too_long_leaves_nothing_to_the_next(monkeypatch):
    source, expected = CASES["a.py"]
    monkeypatch.setattr(definitions, "_MAX_SECONDS", 0.0)
    read(b"func(){" * 4_000, "a.py")
    monkeypatch.undo()
    assert headings(source, "a.py") == expected


def test_what_takes_too_long_or_is_too_large_is_cut_as_before(monkeypatch):
    source = CASES["a.py"][0] * 200
    assert any(headings(source, "a.py"))
    monkeypatch.setattr(definitions, "_MAX_SECONDS", 0.0)
    assert not any(headings(source, "a.py"))
    monkeypatch.undo()
    monkeypatch.setattr(definitions, "_MAX_BYTES", 1000)
    assert not any(headings(source, "a.py"))


def test_without_the_parser_code_has_one_part(monkeypatch):
    monkeypatch.setattr(definitions, "has_parser", lambda: False)
    (part,) = read(CASES["a.py"][0].encode(), "a.py").parts
    assert (part.kind, part.heading) == ("code", ())


PIECES = [
    "def f(a):\n",
    "class A:\n",
    "    x = 1\n",
    "    def g(self):\n",
    "        return '天'\n",
    "# note\n",
    "\n",
    ")",
]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from([*PIECES, "@cache\n", '"""text\n', "    # inner\n", "}", "x = {", "é = 𝔘\r\n"]), max_size=40
    )
)
def test_parts_of_any_code_are_in_order_and_lose_nothing(pieces):
    document = read("".join(pieces).encode(), "a.py")
    position = 0
    for part in document.parts:
        assert not document.text[position : part.start].strip()
        assert position <= part.start < part.end
        assert part.line == document.text.count("\n", 0, part.start) + 1
        position = part.end
    assert not document.text[position:].strip()


METHOD = "    def {}(self):\n        task = error\n        return task + error\n\n"


def passages(tiny, source, max_tokens=62):
    return chunk(read(source.encode(), "a.py"), tiny.offsets, max_tokens)


def test_a_definition_that_fits_is_one_passage_and_small_ones_join(tiny):
    body = "    task = error + error\n" * 5
    source = f"class Small:\n    def one(self):\n    {body}\n\ndef large(task):\n{body}\n\ndef other(task):\n{body}"
    assert [(piece.heading, piece.text.split("(")[0]) for piece in passages(tiny, source)] == [
        (("Small",), "class Small:\n    def one"),
        (("large",), "def large"),
        (("other",), "def other"),
    ]


def test_small_neighbours_join_under_what_is_around_them(tiny):
    pieces = passages(tiny, "class Work:\n    task = error\n\n" + "".join(METHOD.format(name) for name in "abcd"))
    assert [(piece.heading, piece.text.count("def ")) for piece in pieces] == [(("Work",), 2), (("Work",), 2)]


def test_a_large_class_is_divided_at_its_methods_and_a_large_method_at_its_statements(tiny):
    large = "    def large(self):\n" + "".join(
        f"        error(\n            task,\n            {number},\n        )\n" for number in range(40)
    )
    source = "class Work:\n    task = error\n\n" + "".join(METHOD.format(name) for name in "abcdef") + large
    pieces = passages(tiny, source)
    assert {piece.heading for piece in pieces[:-1]} >= {("Work",), ("Work", "large")}
    inside = [piece for piece in pieces if piece.heading == ("Work", "large")]
    assert len(inside) > 3
    assert inside[0].text.startswith("def large")
    assert all(piece.text.startswith("error(") and piece.text.endswith(")") for piece in inside[1:])


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        (
            (
                "'use strict'\n\n/**\n * Patch the socket.\n */\n\n// istanbul ignore next\nfunction patch (socket) {\n"
                "  return socket\n}\n\n/**\n * Wrap it.\n */\n\nfunction wrap (fn) {\n  return fn\n}\n"
            ),
            "a.js",
            ["", *["patch"] * 4, *["wrap"] * 3],
        ),
        (
            "/**\n * Copyright of the file.\n */\n\nfunction patch (socket) {\n  return socket\n}\n",
            "a.js",
            ["", *["patch"] * 2],
        ),
        (
            (
                "impl Dir {\n    /// Opens it.\n    #[allow(dead_code)] // unused on Windows\n    fn open(&self) -> u32 {\n"
                "        1\n    }\n\n    // Nothing else is needed here.\n}\n"
            ),
            "a.rs",
            ["impl Dir", *["impl Dir open"] * 5],
        ),
        (
            "class First(Exception):\n    pass\n\n# ===== SECOND =====\n\nclass Second(Exception):\n    pass\n",
            "a.py",
            [*["First"] * 2, *["Second"] * 3],
        ),
        (
            "class First(Exception):\n    pass\n\n" + "# a long comment\n" * 40 + "\nclass Second:\n    pass_on = 1\n",
            "a.py",
            [*["First"] * 2, *[""] * 40, *["Second"] * 2],
        ),
    ],
)
def test_a_comment_belongs_to_the_definition_that_it_is_about(source, name, expected):
    assert headings(source, name) == expected
