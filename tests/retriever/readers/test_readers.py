"""Readers: exact text, lines, pages and headings of every format, and what hostile files cost."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import re
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from binocle.core.errors import UnreadableError
from binocle.retriever.documents.document import LineCounter
from binocle.retriever.readers import FORMATS, UnsupportedError, read
from binocle.retriever.readers.office import drawingml
from binocle.retriever.readers.office import package as package_limits
from binocle.retriever.readers.office.xlsx import read_xls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from binocle.retriever.documents.document import Document


def check(document: Document) -> Document:
    """What every reader promises about parts."""
    position = 0
    for part in document.parts:
        assert position <= part.start < part.end <= len(document.text)
        assert not document.text[position : part.start].strip()
        assert part.line >= 1
        assert part.page is None or part.page >= 1
        assert part.kind in {"prose", "code", "table"}
        assert all(isinstance(title, str) and title for title in part.heading)
        position = part.end
    assert not document.text[position:].strip()
    document.text.encode()
    json.dumps(document.metadata)
    return document


def reading(data: bytes | str, name: str) -> Document:
    return check(read(data.encode() if isinstance(data, str) else data, name))


def outcome(data: bytes, name: str) -> str:
    """ "" when a file is read, else the line that says why it is not."""
    try:
        reading(data, name)
    except UnreadableError as error:
        return str(error)
    return ""


def outline(document: Document) -> list[tuple[tuple[str, ...], int, str, str]]:
    return [(part.heading, part.line, part.kind, document.text[part.start : part.end]) for part in document.parts]


def package(files: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


# Text and encodings


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_unicode_is_read_in_every_encoding(encoding: str) -> None:
    text = "Grüße from the second line\nand 日本語 too\n"
    assert reading(text.encode(encoding), "a.txt").text == text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "Le café était fermé à Noël — “enfin”."),
        ("cp1252", "naïve"),
        ("cp1252", "Smørrebrød på bordet"),
        ("latin-1", "El niño comió piña en España"),
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy"),
        ("iso8859_2", "Zażółć gęślą jaźń"),
        ("cp1251", "Привет, мир. Это проверка кодировки текста."),
        ("koi8_r", "Привет, мир. Это проверка кодировки текста."),
        ("cp1253", "Αυτό είναι ένα δοκιμαστικό κείμενο"),
        ("cp1254", "Şu köşe yaz köşesi, şu köşe kış köşesi"),
        ("cp1255", "זהו קובץ בדיקה בעברית"),
        ("cp1256", "هذا ملف اختبار باللغة العربية"),
        ("cp874", "นี่คือไฟล์ทดสอบภาษาไทย"),
        ("cp932", "名前,年齢,住所\n佐藤太郎,30,東京\n"),
        ("euc_jp", "これは日本語の文章です。"),
        ("iso2022_jp", "これは日本語の文章です。"),
        ("gb18030", "这是一个中文测试文件。"),
        ("big5", "這是一個中文測試檔案。"),
        ("euc_kr", "이것은 한국어 시험 문서입니다."),
        ("mac_roman", "Le café était fermé à Noël."),
    ],
)
def test_a_legacy_code_page_is_recognised(encoding: str, text: str) -> None:
    assert reading(text.encode(encoding), "a.txt").text == text


def test_a_declared_charset_is_used_when_the_bytes_are_valid_in_it() -> None:
    source = "# -*- coding: cp1251 -*-\n# ЁЁ\n"
    assert reading(source.encode("cp1251"), "a.py").text == source
    html = '<meta charset="koi8-r"><p>ЁЁ</p>'
    assert reading(html.encode("koi8-r"), "a.html").text == "ЁЁ"


def test_a_declaration_in_another_charset_than_it_names_is_ignored() -> None:
    page = '<html><head><meta charset="utf-16"></head><p>Grüße aus Köln</p></html>'
    assert reading(page.encode("cp1252"), "a.html").text == "Grüße aus Köln"


def test_utf_8_with_a_bad_byte_stays_utf_8() -> None:
    data = "é".encode() * 200 + b"\xff" + b" ende"
    assert reading(data, "a.txt").text == "é" * 200 + "\ufffd ende"


def test_a_script_with_an_archive_behind_it_is_binary() -> None:
    script = b"#!/bin/sh\n" + b"echo hello world this is a script\n" * 300
    with pytest.raises(UnsupportedError, match="binary file"):
        read(script + random.Random(1).randbytes(30_000), "install.sh")
    assert reading(script + "échec\n".encode("cp1252"), "install.sh").text.endswith("échec\n")


def test_newlines_are_normalised_and_the_text_can_always_be_encoded() -> None:
    assert reading(b"\xef\xbb\xbfa\r\nb\n\0d", "a.txt").text == "a\nb\n\ufffdd"
    assert reading(b"a\rb\r\rc", "a.txt").text == "a\nb\n\nc"
    assert reading(b"\xff\xfe\x00\xd8a\x00b\x00", "a.txt").text.encode()


def test_a_line_that_is_written_over_counts_once() -> None:
    document = reading(b"downloading 1%\rdownloading 99%\ntwo\r\r\nERROR disk full\n", "build.log")
    assert document.text == "downloading 1% downloading 99%\ntwo \nERROR disk full\n"
    assert document.line_at(document.text.index("ERROR")) == 3


def test_a_part_begins_at_the_first_line_with_text() -> None:
    document = reading("\n\n  first\nsecond\n\n", "a.txt")
    assert outline(document) == [((), 3, "prose", "  first\nsecond")]


@pytest.mark.parametrize("data", [b"", b" \n\t\n", b"\xef\xbb\xbf", b"\xe2\x80\x83\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.csv", "a.json", "a"])
def test_an_empty_text_gives_a_document_without_parts(data: bytes, name: str) -> None:
    assert reading(data, name).parts == ()


@pytest.mark.parametrize("name", ["a.docx", "a.pdf", "a.xls", "a.epub", "a.eml", "a.ipynb", "a.xml"])
@pytest.mark.parametrize("data", [b"", b" \n"])
def test_an_empty_file_of_any_name_has_no_text(name: str, data: bytes) -> None:
    assert reading(data, name).parts == ()


@pytest.mark.parametrize("name", ["a.unheard-of", "noending", "a.txt"])
def test_unknown_names_are_text_or_binary_by_their_content(name: str) -> None:
    assert reading("just words", name).text == "just words"
    with pytest.raises(UnsupportedError, match="binary file"):
        read(random.Random(5).randbytes(3000), name)


@pytest.mark.parametrize("name", ["a.png", "b.MP3", "c.7z"])
def test_kinds_without_a_reader_are_named(name: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"^no reader for \.{name[2:].lower()} files$"):
        read(b"\x89PNG", name)


@pytest.mark.parametrize(
    ("name", "language"),
    [("Makefile", "make"), ("x/CMakeLists.txt", "cmake"), ("a.RS", "rust"), ("b.tsx", "typescript")],
)
def test_source_code_is_one_part_of_code(name: str, language: str) -> None:
    document = reading("\n    first:\n\tsecond\n", name)
    assert document.format == language
    assert outline(document) == [((), 2, "code", "    first:\n\tsecond")]


# Markup


MARKDOWN = """---
title: "The Guide"
---
intro

# One `code` [link](http://x)
text
```python
# not a heading
```
Two
words
-----
| a | b |
|---|---|
| 1 | 2 |

## Three ##
end
"""


def test_markdown_is_split_at_headings_code_and_tables() -> None:
    document = reading(MARKDOWN, "a.md")
    assert document.text == MARKDOWN
    assert document.title == "The Guide"
    assert outline(document) == [
        ((), 1, "code", '---\ntitle: "The Guide"\n---'),
        ((), 4, "prose", "intro"),
        (("One code link",), 6, "prose", "# One `code` [link](http://x)\ntext"),
        (("One code link",), 8, "code", "```python\n# not a heading\n```"),
        (("One code link", "Two words"), 11, "prose", "Two\nwords\n-----"),
        (("One code link", "Two words"), 14, "table", "| a | b |\n|---|---|\n| 1 | 2 |"),
        (("One code link", "Three"), 18, "prose", "## Three ##\nend"),
    ]


def test_the_first_heading_is_a_markdown_files_title() -> None:
    assert reading("# tar\n\n> Archiving.\n", "a.md").title == "tar"
    assert reading("## below\n", "a.md").title == ""
    assert reading("# tar\n\nArchiving.\n\n# zip\n", "a.md").title == ""
    assert reading("## below\n\n# Appendix\n", "a.md").title == ""


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("title: Plain", "Plain"),
        ("Title = 'quoted one'", "quoted one"),
        ('title: "a" and "b', '"a" and "b'),
        ("title:", "Heading"),
        ("title: >-\n  folded", "Heading"),
    ],
)
def test_front_matter_names_a_markdown_file_where_it_gives_a_title(line: str, title: str) -> None:
    assert reading(f"---\n{line}\nauthor: Ada\n---\n# Heading\n", "a.md").title == title


@pytest.mark.parametrize(
    ("markdown", "title"),
    [
        ("Using `Box<T>` to Point", "Using Box<T> to Point"),
        ("`int *p` and a * b", "int *p and a * b"),
        ("[`a*b`](x) or `` c`d ``", "a*b or c`d"),
        ("**bold *and* `*`**, ***all***, **bold *it***", "bold and *, all, bold it"),
        ("R&amp;D &#39;&lt;`&amp;`", "R&D '<&amp;"),
        ("A* search, *args and \\*so on\\*", "A* search, *args and *so on*"),
        ("Map<K, V> if a < b > c", "Map<K, V> if a < b > c"),
        ('<a id="x"></a>x<sup>2</sup> <!-- no --> <https://x.y> ![duck](d.png)', "x2 https://x.y duck"),
    ],
)
def test_a_markdown_title_is_what_a_browser_shows(markdown: str, title: str) -> None:
    assert reading(f"# {markdown}\n", "a.md").title == title


@pytest.mark.parametrize("line", ["*", "`", "<a", "[", "*a", "`a``", "a* "])
def test_a_title_of_marks_takes_no_time(line: str) -> None:
    began = time.monotonic()
    reading(f"# {line * 2_000}\n", "a.md")
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("line", ["---\ntitle: a{}b\n---\n", "a|b\n|-{}x\n", "a|b\n{}|\n", "a|b\n-{}|{}-{}x\n"])
def test_a_markdown_line_of_blanks_takes_linear_time(line: str) -> None:
    began = time.process_time()
    reading(line.replace("{}", " " * 300_000), "a.md")
    assert time.process_time() - began < 2  # and minutes if each blank looked at all others


def test_headings_inside_a_comment_or_a_fence_of_markdown_do_not_count() -> None:
    document = reading("<!--\n# no\n```\n-->\n# A\n~~~ `sh`\n# no\n~~~\n# B\n", "a.md")
    assert [(heading, line, kind) for heading, line, kind, _ in outline(document)] == [
        ((), 1, "prose"),
        (("A",), 5, "prose"),
        (("A",), 6, "code"),
        (("B",), 9, "prose"),
    ]


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        (
            "# A\n\n1. x\n2. ```sh\n   # no\n   ```\n\ny\n\n## B\n",
            [(("A",), "prose"), (("A",), "code"), (("A",), "prose"), (("A", "B"), "prose")],
        ),
        ("# A\n> - ~~~\n> # no\n> ~~~\n## B\n", [(("A",), "prose"), (("A",), "code"), (("A", "B"), "prose")]),
        ("# A\n\n- item one\n  goes on\n---\n\nx\n", [(("A",), "prose")]),
        ("# A\n\n- item\n\nB\n---\nx\n", [(("A",), "prose"), (("A", "B"), "prose")]),
        (
            "# A\n\n<pre>\n# no\n</pre>\nx\n\n<PRE class=a># no</PRE>\n## B\n",
            [(("A",), "prose"), (("A",), "code"), (("A",), "prose"), (("A",), "code"), (("A", "B"), "prose")],
        ),
        ("# A\n<prefix>\n## B\n", [(("A",), "prose"), (("A", "B"), "prose")]),
    ],
)
def test_lists_and_html_of_markdown_keep_their_lines(markdown: str, expected: list) -> None:
    document = reading(markdown, "a.md")
    assert [(part.heading, part.kind) for part in document.parts] == expected
    assert document.title == "A"


def test_an_unclosed_fence_runs_to_the_end() -> None:
    assert [part.kind for part in reading("a\n~~~\n# b\n", "a.md").parts] == ["prose", "code"]


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("Go\n==\n\nx\n\nR\n=\n\ny\n", ["Go", "R"]),
        ("A title that is long\n==============\n\nx\n", ["A title that is long"]),
        ("A title\n===\n\nx\n\na line\nand Go\n==\n", []),
        ("Go\n=\n\nx\n", []),
    ],
)
def test_a_short_underline_of_restructured_text_may_be_one(text: str, headings: list[str]) -> None:
    assert [part.heading[-1] for part in reading(text, "a.rst").parts if part.heading] == headings


def test_restructured_text_levels_come_from_the_order_of_adornments() -> None:
    text = "=====\nTitle\n=====\n\nFirst\n=====\ntext::\n\n    code here\n\nSub\n---\n+--+\n|a |\n+--+\nSecond\n======\n.. code:: py\n\n   x = 1\n"
    document = reading(text, "a.rst")
    assert document.text == text
    assert outline(document) == [
        (("Title",), 1, "prose", "=====\nTitle\n====="),
        (("Title", "First"), 5, "prose", "First\n=====\ntext::"),
        (("Title", "First"), 9, "code", "    code here"),
        (("Title", "First", "Sub"), 11, "prose", "Sub\n---"),
        (("Title", "First", "Sub"), 13, "table", "+--+\n|a |\n+--+"),
        (("Title", "Second"), 16, "prose", "Second\n======\n.. code:: py"),
        (("Title", "Second"), 20, "code", "   x = 1"),
    ]


MAN = r"""'\" t
.\" a comment that nobody sees
.de URL
secret macro
..
.TH CP "1" "September 2022" "GNU"
.SH NAME
cp \- copy files \(lqand\(rq di\[u00E4]t na\(:ive
.SH SYNOPSIS
.B cp
[\fI\,OPTION\/\fR]... \fB\-t\fP\ \s-1DIRECTORY\s0 \" gone
.SS "Some ""quoted"" options"
.TP
\fB\-\-backup\fR[=\fICONTROL\fR]
make a backup\&.\e
.BR fork (2),
.IP \(bu 2
.ft CW
.TS
l l.
one\ttwo
.TE
"""


def test_a_manual_page_is_read_as_man_shows_it_and_keeps_its_lines() -> None:
    document = reading(MAN, "cp.1")
    assert (document.title, document.format) == ("cp(1)", "man")
    assert document.text.split("\n") == [
        *[""] * 5,
        "cp(1)",
        "NAME",
        "cp - copy files “and” diät naïve",
        "SYNOPSIS",
        "cp",
        "[OPTION]... -t DIRECTORY ",
        'Some "quoted" options',
        "",
        "--backup[=CONTROL]",
        "make a backup.\\",
        "fork(2),",
        "•",
        *[""] * 3,
        "one\ttwo",
        *[""] * 2,
    ]
    assert [(heading, line) for heading, line, *_ in outline(document)] == [
        (("cp(1)",), 6),
        (("cp(1)", "NAME"), 7),
        (("cp(1)", "SYNOPSIS"), 9),
        (("cp(1)", "SYNOPSIS", 'Some "quoted" options'), 12),
    ]


def test_the_macros_of_mdoc_are_read() -> None:
    page = """.Dd May 1
.Dt DASH 1
.Sh NAME
.Nm dash
.Nd command interpreter
.Sh SYNOPSIS
.Nm
.Op Fl aC
.Op Fl Fl mime Ar type
.It Fl o Ar file , Xr sh 1 .
"""
    assert reading(page, "dash.1").text.split("\n")[1:10] == [
        "dash(1)",
        "NAME",
        "dash",
        "– command interpreter",
        "SYNOPSIS",
        "dash",
        "[-aC]",
        "[--mime type]",
        "-o file, sh(1).",
    ]


MDOC = """.Dd May 1
.Dt FOO 1
.Sh NAME
.Nm foo
.Nd Do So things
.Sh DESCRIPTION
The option
.Po see the zebra
manual
.Pc ,
.Do quoted walrus Dc
.Rs
.%T The Giraffe Book
.Re
.Fo open_file
.Fa "const char *p"
.Fc
"""


def test_enclosures_references_and_functions_of_mdoc_are_read() -> None:
    document = reading(MDOC, "foo.1")
    assert document.text.split("\n")[2:17] == [
        *("NAME", "foo", "– Do So things", "DESCRIPTION", "The option", "(see the zebra", "manual", "),"),
        *("“quoted walrus”", "", "The Giraffe Book", "", "open_file", "const char *p", ""),
    ]


def test_the_title_of_a_section_of_man_may_be_on_the_next_line() -> None:
    text = ".TH FOO 1\n.SH\n.\nNAME\nfoo \\*(lqbar\\*(rq\\*R\n.SS\nMore\nx\n.SH NOTES\ny\n"
    document = reading(text, "foo.1")
    paths = [part.heading for part in document.parts]
    assert paths == [("foo(1)",), ("foo(1)", "NAME"), ("foo(1)", "NAME", "More"), ("foo(1)", "NOTES")]
    assert "foo “bar”®" in document.text


def test_a_rotated_log_is_no_manual_page() -> None:
    log = "Sep 1 host kernel: \\fB.TH is no page\n. SH\n"
    assert reading(log, "syslog.1").text == log


def test_org_headings_lose_their_keywords_and_tags() -> None:
    document = reading("#+TITLE: Plan\n* TODO [#A] Buy  :errand:\n#+begin_src sh\n* no\n#+end_src\n** Milk\n", "a.org")
    assert document.title == "Plan"
    assert [part.heading for part in document.parts] == [(), ("Buy",), ("Buy",), ("Buy", "Milk")]
    assert [part.kind for part in document.parts] == ["prose", "prose", "code", "prose"]


def test_latex_sections_and_listings() -> None:
    document = reading(
        "\\title{On \\emph{Ducks}}\n\\section{One {nested}}\ntext\n\\begin{verbatim}\n\\section{no}\n\\end{verbatim}\n\\subsection*{Two}\n",
        "a.tex",
    )
    assert document.title == "On Ducks"
    assert [part.heading for part in document.parts] == [(), ("One nested",), ("One nested",), ("One nested", "Two")]


def test_asciidoc_sections_and_blocks() -> None:
    document = reading("= Book\n\n== One\n----\n== no\n----\n|===\n|a\n|===\n", "a.adoc")
    assert [(part.heading, part.kind) for part in document.parts] == [
        (("Book",), "prose"), (("Book", "One"), "prose"), (("Book", "One"), "code"), (("Book", "One"), "table"),
    ]  # fmt: skip


# Data


def test_older_titles_and_comments_of_asciidoc() -> None:
    text = "git-add(1)\n==========\n\nNAME\n----\nx\n\n----\ncode\n----\n\n////\n== no\n////\n\nA part\n~~~~~~\ny\n\n- a\n--\n"
    document = reading(text, "a.adoc")
    assert document.title == "git-add(1)"
    assert [(part.heading[1:], part.kind) for part in document.parts] == [
        ((), "prose"),
        (("NAME",), "prose"),
        (("NAME",), "code"),
        (("NAME",), "code"),
        (("NAME", "A part"), "prose"),
    ]


def test_a_listing_of_latex_may_end_on_its_line() -> None:
    text = "\\section{A}\n\\begin{verbatim}x\\end{verbatim}\ny\n\\section{B}\nz\n"
    document = reading(text, "a.tex")
    assert [(part.heading, part.kind) for part in document.parts] == [
        (("A",), "prose"),
        (("A",), "code"),
        (("A",), "prose"),
        (("B",), "prose"),
    ]


def test_an_underlined_heading_of_a_notebook_has_its_level() -> None:
    cells = [
        {"cell_type": "markdown", "source": source} for source in ("# Top", "Sub\n---\nx", "  ### Third", "A\n=\ny")
    ]
    document = reading(json.dumps({"cells": cells}), "a.ipynb")
    assert [part.heading for part in document.parts] == [("Top",), ("Top", "Sub"), ("Top", "Sub", "Third"), ("A",)]


def test_a_notebook_with_a_cell_of_control_characters_is_read() -> None:
    cells = [{"cell_type": "markdown", "source": source} for source in ("\x01\x02", "# A\r\nb \ud800")]
    assert reading(json.dumps({"cells": cells}), "a.ipynb").text == "# A\nb \ufffd"


def test_a_heading_that_comes_again_in_one_cell_of_a_notebook_opens_a_section_again() -> None:
    source = "# f\n\n## Parameters\n\na\n\n## Returns\n\nb\n\n# g\n\n## Parameters\n\nc\n\n## Returns\n\nd\n\n# f\n\n## Parameters"
    document = reading(json.dumps({"cells": [{"cell_type": "markdown", "source": source}]}), "a.ipynb")
    assert [part.heading for part in document.parts] == [part.heading for part in reading(source, "a.md").parts]


def test_displayed_html_of_a_notebook_is_read_instead_of_its_placeholder() -> None:
    shown: list[dict[str, str | list[str]]] = [
        {"text/plain": "<IPython.core.display.Markdown object>", "text/markdown": ["**Result**: 42 ", "ducks"]},
        {"text/plain": "<IPython.core.display.HTML object>", "text/html": "<p>50 <b>geese</b></p>"},
        {"text/plain": "<IPython.core.display.Image object>", "image/png": "iVBORw0KGgo="},
        {"text/plain": "<Figure size 640x480 with 1 Axes>", "image/png": "iVBORw0KGgo="},
        {"text/plain": "   a\n0  1", "text/html": "<table><tr><td>1</table>"},
    ]
    outputs = [{"output_type": "display_data", "data": data} for data in shown]
    cells = [{"cell_type": "code", "source": "x", "outputs": outputs}]
    assert [(kind, text) for _, _, kind, text in outline(reading(json.dumps({"cells": cells}), "a.ipynb"))] == [
        ("code", "x"),
        ("prose", "**Result**: 42 ducks\n\n50 geese"),
        ("code", "   a\n0  1"),
    ]


def test_colours_in_the_output_of_a_notebook_are_left_out() -> None:
    outputs = [{"output_type": "stream", "text": "\x1b[1;31mred\x1b[0m [2m]"}]
    cells = [{"cell_type": "code", "source": "x", "outputs": outputs}]
    assert reading(json.dumps({"cells": cells}), "a.ipynb").text == "x\n\nred [2m]"


def test_a_csv_part_carries_its_header() -> None:
    document = reading("name;age\nAda;36\nBob;41\n", "a.csv")
    assert outline(document) == [(("name, age",), 1, "table", "name;age\nAda;36\nBob;41")]
    assert reading("1,2\n3,4\n", "a.csv").parts[0].heading == ()
    assert len(reading(",".join(f"column {i}" for i in range(90)) + "\n1\n", "a.csv").parts[0].heading[0]) <= 200


def test_json_escapes_are_written_out_where_lines_stay_true() -> None:
    source = r'{"a": "caf\u00e9 \ud83e\udd86 \ud800 \u000a \u0022 \\u00e9 \u0041"}'
    assert reading(source, "a.json").text == '{"a": "café 🦆 \ufffd \\u000a \\u0022 \\\\u00e9 A"}'
    assert json.loads(reading(source, "a.json").text)["a"][:6] == "café 🦆"
    assert reading('{"a": 1}\n{"a": 2}\n', "a.jsonl").parts[0].kind == "table"


def test_json_under_a_text_name_is_json() -> None:
    assert reading('[{"a": "caf\\u00e9"}]', "a.txt").format == "json"
    assert reading("[not json]", "a.txt").format == "text"


def test_a_notebook_gives_its_cells_and_their_output() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Ducks\n", "text"]},
        {"cell_type": "code", "source": "print(1)", "outputs": [{"output_type": "stream", "text": ["1\n"]}]},
        {"cell_type": "markdown", "source": "## Geese"},
        {
            "cell_type": "code",
            "source": "x",
            "outputs": [{"output_type": "error", "ename": "NameError", "evalue": "x"}],
        },
    ]
    document = reading(json.dumps({"cells": cells}), "a.ipynb")
    assert document.title == "Ducks"
    assert [(heading, kind, text) for heading, _, kind, text in outline(document)] == [
        (("Ducks",), "prose", "# Ducks\ntext"),
        (("Ducks",), "code", "print(1)"),
        (("Ducks",), "code", "1"),
        (("Ducks", "Geese"), "prose", "## Geese"),
        (("Ducks", "Geese"), "code", "x"),
        (("Ducks", "Geese"), "code", "NameError: x"),
    ]


# HTML and XML


HTML = """<!doctype html>
<html><head><title>The &amp; Title</title>
<style>p {}</style><script>if (a < b) "<p>no</p>"</script></head>
<body>
<h1>Head
  <em>line</em></h1>
<p>One   <b>bold</b>
word &eacute;<br>next</p>
<div hidden>no</div><p style="display: none">no</p>
<ul><li>first<li>second <!-- no --></ul>
<table><tr><th>a<th>b</tr>
<tr><td>1<td>2<img alt="duck"></table>
<pre>
  kept
    as is</pre>
<h2>Sub</h2>
after
</body></html>
"""


def test_html_is_what_a_browser_shows_with_the_lines_of_the_source() -> None:
    document = reading(HTML, "a.html")
    assert document.title == "The & Title"
    assert document.text == (
        "Head line\n\nOne bold word é\nnext\n\nfirst\nsecond\n\na | b\n1 | 2 duck\n\n  kept\n    as is\n\nSub\n\nafter"
    )
    head = ("Head line",)
    assert outline(document) == [
        (head, 5, "prose", "Head line"),
        (head, 7, "prose", "One bold word é"),
        (head, 8, "prose", "next\n\nfirst"),
        (head, 10, "prose", "second"),
        (head, 11, "table", "a | b\n1 | 2 duck"),
        (head, 14, "code", "  kept\n    as is"),
        (("Head line", "Sub"), 16, "prose", "Sub"),
        (("Head line", "Sub"), 17, "prose", "after"),
    ]


PARAGRAPHS = """
<p>
alpha &eacute;&eacute;&eacute;&eacute;&eacute;&eacute;
beta <b>gamma
delta</b></p>
<!--
-->
<p>one</p><p>two
three</p>
<table><tr><td>four</td><td>five

<i>six</i>
</td></tr></table>
"""


@pytest.mark.parametrize(
    ("name", "source"),
    [("a.html", PARAGRAPHS), ("a.xml", f"<article>{PARAGRAPHS.replace('&eacute;', '&#233;')}</article>")],
)
def test_the_last_line_of_a_paragraph_is_that_of_the_source(name: str, source: str) -> None:
    document = reading(source, name)
    lines = source.split("\n")
    assert document.text.split() == "alpha éééééé beta gamma delta one two three four | five six".split()
    for part in document.parts:
        first, *_, last = [*document.text[part.start : part.end].split()] * 2
        assert first in lines[document.line_at(part.start) - 1]
        assert last in lines[document.line_at(part.end - 1) - 1]
    counter = LineCounter(document)
    assert [counter.at(part.end - 1) for part in document.parts] == [
        document.line_at(part.end - 1) for part in document.parts
    ]


def test_text_after_an_unclosed_head_is_read() -> None:
    document = reading("<head>\n<title>T</title>\n<style>x</style>\nText", "a.html")
    assert (document.title, document.text) == ("T", "Text")


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (
            "<p>a</p>\n<pre>one<br>two<br>three\nfour\nfive</pre>",
            {"one": 2, "two": 2, "three": 2, "four": 3, "five": 4},
        ),
        ("<pre\nclass=x\n>\none\ntwo</pre>", {"one": 4, "two": 5}),
        ('<pre><b>\n</b>one\n<a\nhref="y">two</a>\n\n  three</pre>', {"one": 2, "two": 4, "three": 6}),
        ("<pre><br>one <i\n>two</i> <i\n>three</i>\nfour<br><br></pre>five", {"one": 1, "four": 4, "five": 4}),
    ],
)
def test_lines_of_preformatted_html_are_those_in_the_file(source: str, lines: dict[str, int]) -> None:
    document = reading(source, "a.html")
    assert {word: document.line_at(document.text.index(word)) for word in lines} == lines


def test_preformatted_html_keeps_its_blank_lines() -> None:
    assert reading("<pre>one<br>\n\n  two\nthree <b\n>four</b>\n\nfive</pre>", "a.html").text == (
        "one\n\n\n  two\nthree four\n\nfive"
    )


@pytest.mark.parametrize("mark", ["¶", "#", " § ", "\U0001f517"])
def test_a_headings_link_to_itself_is_left_out(mark: str) -> None:
    source = f'<h1>Install<a href="#install">{mark}</a></h1><h2><a href="#c">{mark}</a> C<a href="#c">C#</a></h2>'
    assert [part.heading for part in reading(source, "a.html").parts] == [("Install",), ("Install", "CC#")]
    assert reading('<p>a <a href="#b">#</a></p>', "a.html").text == "a #"
    assert reading(f'<pre><h1><a href="#b">{mark}</a>a</h1></pre>', "a.html").text == "a"


def test_layout_tables_are_read_as_blocks() -> None:
    document = reading("<table><tr><td><h2>News</h2><p>one</p></td><td><p>side</p></td></tr></table>", "a.html")
    assert [(heading, kind, text) for heading, _, kind, text in outline(document)] == [
        (("News",), "prose", "News"), (("News",), "prose", "one"), (("News",), "prose", "side"),
    ]  # fmt: skip


def test_an_empty_cell_of_an_html_table_keeps_its_place() -> None:
    source = "<table><tr><th>Name<th>Q1<th>Q2</tr><tr><td>Ann<td><td>5</tr><tr><td>Bob<td>7<td></tr><tr><td><td>8</tr></table>"
    assert reading(source, "a.html").text == "Name | Q1 | Q2\nAnn |  | 5\nBob | 7\n | 8"


def test_line_numbers_beyond_65535_are_right() -> None:
    document = reading("<p>a</p>" + "\n" * 70_000 + "<p>b</p>", "a.html")
    assert [part.line for part in document.parts] == [1, 70_001]


@pytest.mark.parametrize("nest", ["<div>", "<table><tr><td>", "<ul><li>", "<b>", "<h1>", "<pre>", "<svg>"])
def test_html_nested_a_hundred_thousand_deep_is_read(nest: str) -> None:
    assert "deep" in reading(nest * 100_000 + "deep", "a.html").text


@pytest.mark.parametrize(
    "piece", ["<a ", "<!--", "<!-->", "<![CDATA[", "</", '<a b="', "<!", "&#", "<a b=", "<title>", "<script>", "<"]
)
def test_broken_html_takes_linear_time(piece: str) -> None:
    began = time.process_time()
    reading(piece * 100_000, "a.html")
    assert time.process_time() - began < 5


RSS = """<?xml version="1.0"?>
<rss><channel><title>Blog</title>
<item><title>Post</title>
<description>&lt;p&gt;Hello &lt;b&gt;world&lt;/b&gt;&lt;/p&gt;</description>
<pubDate>today</pubDate></item>
</channel></rss>"""


def test_feeds_have_their_titles_as_headings_and_their_html_read() -> None:
    document = reading(RSS, "a.xml")
    assert document.title == "Blog"
    assert outline(document) == [
        (("Blog",), 2, "prose", "Blog"),
        (("Blog", "Post"), 3, "prose", "Post"),
        (("Blog", "Post"), 4, "prose", "Hello world\npubDate: today"),
    ]


def test_journal_articles_are_read_by_section() -> None:
    source = (
        "<!DOCTYPE article PUBLIC 'x' 'y.dtd'>\n<article><front><article-meta><title-group><article-title>On <italic>ducks</italic>"
        "</article-title></title-group></article-meta></front><body>\n<sec><title>Methods</title>\n<p>We <bold>saw</bold> 10<sup>6</sup>.</p>"
        "<sec><title>Counting</title><p>Twice.</p></sec></sec></body></article>"
    )
    document = reading(source, "a.nxml")
    assert document.title == "On ducks"
    assert [(heading, text) for heading, _, _, text in outline(document)] == [
        (("On ducks",), "On ducks"),
        (("Methods",), "Methods"),
        (("Methods",), "We saw 106."),
        (("Methods", "Counting"), "Counting"),
        (("Methods", "Counting"), "Twice."),
    ]


def test_xml_without_text_is_read_as_source_code() -> None:
    source = '<config>\n<set key="a" value="b"/>\n</config>'
    assert reading(source, "a.xml").text == source


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.opml", '<opml><head><title>My feeds</title></head><body><outline text="Rust blog"/></body></opml>'),
        ("a.xsl", '<xsl:template xmlns:xsl="x" match="invoice"><h1>An invoice, of some length</h1></xsl:template>'),
        ("a.resx", '<root><data name="Full"><value>The disk is full</value></data></root>'),
        ("a.xml", '<project><description>Builds it</description><target name="compile" depends="init, resources, icons"/></project>'),
    ],
)  # fmt: skip
def test_xml_with_most_text_in_attributes_is_read_as_source_code(name: str, source: str) -> None:
    assert outline(reading(source, name)) == [((), 1, "code", source)]


def test_addresses_in_attributes_do_not_make_xml_source_code() -> None:
    source = f'<a><b resource="https://example.org/{"x" * 50}">Duck</b></a>'
    assert reading(source, "a.rdf").text == "Duck"


def test_translation_files_give_their_texts_without_ids() -> None:
    location = '<context-group purpose="location"><context context-type="sourcefile">app/a.ts</context></context-group>'
    unit = f'<trans-unit id="{"3f9a" * 10}" datatype="html"><source>Save</source><target>Sichern</target>{location}</trans-unit>'
    source = f'<xliff version="1.2"><file original="a"><body>{unit}</body></file></xliff>'
    assert reading(source, "a.xlf").text == "Save Sichern"
    memory = (
        '<tmx version="1.4"><header creationtool="Some long tool"/><body><tu tuid="1"><seg>Duck</seg></tu></body></tmx>'
    )
    assert reading(memory, "a.tmx").text == "Duck"


def test_the_names_of_settings_in_xml_are_read() -> None:
    source = (
        '<resources><string name="app_name">My app</string><string name="quit">Leave <b>now</b></string></resources>'
    )
    assert reading(source, "strings.xml").text == "resources: app_name: My app; quit: Leave now"
    group = f'<group name="colours"><p>{"red " * 200}</p></group>'
    assert reading(f"<a>{group}</a>", "a.xml").text.startswith("colours\n\nred red")


def test_paragraphs_and_items_in_a_cell_stay_apart() -> None:
    cells = "<td>One<br>line<br><br>Two</td><td><p>A</p><p>B</p></td><td><ul><li>C<li>D</ul></td>"
    assert reading(f"<table><tr>{cells}</tr></table>", "a.html").text == "One line / Two | A / B | C / D"
    assert reading("a<br>b<br><br>c", "a.html").text == "a\nb\n\nc"


def test_a_page_that_is_hidden_until_a_script_runs_is_read() -> None:
    assert reading('<body style="display:none"><p>shown</p><p hidden>not</p>', "a.html").text == "shown"


def test_html_inside_xml_keeps_the_lines_of_the_file() -> None:
    source = "<feed>\n<entry><title>T</title>\n<summary>\n&lt;p&gt;a&lt;/p&gt;\n\n\n&lt;p&gt;b&lt;/p&gt;</summary></entry></feed>"
    assert [(line, text) for _, line, _, text in outline(reading(source, "a.xml"))] == [(2, "T\n\na"), (7, "b")]


def test_a_row_of_plain_text_in_xml_is_read() -> None:
    source = "<rows><row>one two</row><row><c>a</c> and b</row><row><c>c</c><c>d</c></row></rows>"
    assert reading(source, "a.xml").text == "one two\na and b\nc | d"


def test_an_empty_cell_in_xml_keeps_its_place() -> None:
    source = "<t><tr><td>Ann</td><td/><td>5</td></tr></t>"
    assert reading(source, "a.xml").text == "Ann |  | 5"


@pytest.mark.parametrize("doctype", ["", '<!DOCTYPE a SYSTEM "a.dtd">'])
def test_html_entities_in_xml_are_read_as_letters(doctype: str) -> None:
    source = f"{doctype}<a><b>caf&eacute;&nbsp;x &amp; &lt;y&LT;</b><b>&mdash;</b></a>"
    assert reading(source, "a.xml").text == "café x & <y< —"


@pytest.mark.parametrize(
    ("declared", "written"), [("utf-16", "utf-8"), ("utf-16", "cp1252"), ("utf-8", "cp1252"), ("iso-8859-1", "cp1252")]
)
def test_xml_with_a_wrong_encoding_declaration_is_read(declared: str, written: str) -> None:
    source = f'<?xml version="1.0" encoding="{declared}"?>\n<a><b>Grüße, don’t</b></a>'
    assert outline(reading(source.encode(written), "a.xml")) == [((), 2, "prose", "Grüße, don’t")]


def test_only_the_prolog_of_xml_declares_its_encoding() -> None:
    assert reading("<a><b>charset=iso-8859-1: Grüße</b></a>", "a.xml").text == "charset=iso-8859-1: Grüße"


def test_values_in_xml_stand_behind_their_names() -> None:
    ada, bob = "<person id='7'><name>Ada</name><age>36</age></person>", "<person><name>Bob</name><age>41</age></person>"
    text = "person: id: 7, name: Ada, age: 36; person: name: Bob, age: 41"
    assert reading(f"<people>{ada}{bob}</people>", "a.xml").text == f"people: {text}"
    assert reading("<t><row><Name>Ada</Name><Age>36</Age></row></t>", "a.xml").text == "row: Name: Ada, Age: 36"
    long = reading(f"<people>{ada}{'<note>None of this is short.</note>' * 100}</people>", "a.xml")
    assert long.text.startswith("person: id: 7, name: Ada, age: 36\nnote: None of this is short.\nnote:")
    assert reading(f"<text>{ada}<p>A duck.</p></text>", "a.xml").text == "Ada 36\n\nA duck."


def test_what_stands_before_the_title_of_a_section_in_xml_belongs_to_it() -> None:
    book = "<book><author>Ann</author><title>On ducks</title><price>9</price></book>"
    document = reading(f"<shop>{book}{book.replace('ducks', 'geese')}</shop>", "a.xml")
    assert [(part.heading, document.text[part.start : part.end].split()[-1]) for part in document.parts] == [
        ((f"On {bird}",), word) for bird in ("ducks", "geese") for word in ("Ann", bird, "9")
    ]


def test_entities_expand_only_within_the_file_and_within_bounds(tmp_path: Path) -> None:
    assert reading('<!DOCTYPE a [<!ENTITY b "Binocle">]><a>&b;</a>', "a.xml").text == "Binocle"
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    outside = f'<!DOCTYPE a [<!ENTITY b SYSTEM "{secret.as_uri()}">]><a>x &b; y</a>'
    assert "secret" not in reading(outside, "a.xml").text
    laughs = '<!DOCTYPE a [<!ENTITY b "lol">' + "".join(
        f'<!ENTITY {chr(99 + i)} "{f"&{chr(98 + i)};" * 10}">' for i in range(9)
    )
    with pytest.raises(UnreadableError, match="amplification"):
        read((laughs + "]><a>&k;</a>").encode(), "a.xml")
    with pytest.raises(UnreadableError, match="depth"):
        read(b"<a>" * 100_000, "a.xml")


# PDF


def pdf(
    pages: list[str],
    *,
    outline: Sequence[tuple[str, int]] = (),
    title: str = "",
    annotations: Sequence[tuple[str, str]] = (),
) -> bytes:
    """A PDF written by hand; a page's lines are set one below the other, kinds and texts of annotations on each page."""
    objects: list[bytes] = []
    first = 5 + bool(outline) + len(outline)
    kids = " ".join(f"{first + 2 * index} 0 R" for index in range(len(pages)))
    last = first + 2 * len(pages)
    shown = " ".join(f"{last + 2 * index} 0 R" for index in range(len(annotations)))
    objects.append(b"<< /Type /Catalog /Pages 2 0 R" + (b" /Outlines 5 0 R" if outline else b"") + b" >>")
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    objects.append(f"<< /Title ({title}) >>".encode())
    if outline:
        objects.append(f"<< /First 6 0 R /Last {5 + len(outline)} 0 R /Count {len(outline)} >>".encode())
    for index, (name, page) in enumerate(outline):
        links = (f"/Next {7 + index} 0 R " if index + 1 < len(outline) else "") + (
            f"/Prev {5 + index} 0 R " if index else ""
        )
        objects.append(f"<< /Title ({name}) /Parent 5 0 R {links}/Dest [{first + 2 * page} 0 R /Fit] >>".encode())
    for index, text in enumerate(pages):
        lines = "".join(f"({line}) Tj 0 -20 Td " for line in text.split("\n")) if text else ""
        stream = f"BT /F1 12 Tf 50 700 Td {lines}ET".encode()
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {first + 2 * index + 1} 0 R "
            f"/Resources << /Font << /F1 3 0 R >> >> /Annots [{shown}] >>".encode()
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n".encode() + stream + b"\nendstream")
    for index, (kind, text) in enumerate(annotations):
        stream = f"BT /F1 12 Tf 2 4 Td ({text}) Tj ET".encode()
        objects.append(
            f"<< /Type /Annot /Subtype /{kind} /FT /Tx /T (a) /V ({text}) /Rect [200 {600 - 30 * index} 500 {625 - 30 * index}] "
            f"/F 4 /AP << /N {last + 2 * index + 1} 0 R >> >>".encode()
        )
        objects.append(
            f"<< /Type /XObject /Subtype /Form /BBox [0 0 300 25] /Resources << /Font << /F1 3 0 R >> >> /Length {len(stream)} "
            ">>\nstream\n".encode()
            + stream
            + b"\nendstream"
        )
    out = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    table = b"".join(f"{offset:010} 00000 n \n".encode() for offset in offsets)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode() + table
    return (
        out
        + end
        + f"trailer << /Size {len(objects) + 1} /Root 1 0 R /Info 4 0 R >>\nstartxref\n{len(out)}\n%%EOF".encode()
    )


def test_pdf_text_comes_by_page_under_the_outlines_titles() -> None:
    data = pdf(
        ["Preface", "First Things\nare here", "more\nSecond Things\nare there"],
        outline=[("First Things", 1), ("Second Things", 2)],
        title="Things",
    )
    document = reading(data, "a.pdf")
    assert document.title == "Things"
    assert document.metadata == {"pages": 3}
    assert [(part.page, part.heading, document.text[part.start : part.end]) for part in document.parts] == [
        (1, (), "Preface"),
        (2, ("First Things",), "First Things\nare here"),
        (3, ("First Things",), "more"),
        (3, ("Second Things",), "Second Things\nare there"),
    ]


def test_a_pdf_without_text_says_how_many_pages_it_has() -> None:
    document = reading(pdf(["", ""]), "a.pdf")
    assert (document.text, document.parts, document.metadata) == ("", (), {"pages": 2})


@pytest.mark.parametrize(
    ("title", "is_title"),
    [("Learning ASP.NET", True), ("Introduction to Node.js", True), ("Notes for 2.10", True), ("x", True),
     ("paper.tex", False), ("Report final.DOCX", False), ("Untitled", False)],
)  # fmt: skip
def test_a_file_name_as_the_title_of_a_pdf_is_ignored(title: str, is_title: bool) -> None:
    assert reading(pdf([""], title=title), "a.pdf").title == (title if is_title else "")


@pytest.mark.parametrize(
    ("page", "titles", "starts"),
    [
        ("says of restarting.\n4 Art\nOn art.\n5 C++\nx", ["Art", "C++"], ["4 Art", "5 C++"]),
        ("the art of\nArt\nx", ["Art"], ["Art"]),
        ("restarting\nPart IV: Art\nx", ["Art"], ["Part IV: Art"]),
        ("restarting", ["Art"], ["restarting"]),
    ],
)
def test_a_title_of_a_pdfs_outline_is_found_as_a_line_or_as_words(
    page: str, titles: list[str], starts: list[str]
) -> None:
    document = reading(pdf([page], outline=[(title, 0) for title in titles]), "a.pdf")
    titled = [part for part in document.parts if part.heading]
    assert [part.heading for part in titled] == [(title,) for title in titles]
    assert [document.text[part.start : part.end].partition("\n")[0] for part in titled] == starts


@pytest.mark.parametrize("kind", ["Widget", "FreeText"])
def test_filled_in_form_fields_of_a_pdf_are_read(kind: str) -> None:
    form = pdf(["Name of the applicant:"], annotations=[(kind, "Margarethe"), (kind, "Quast")])
    assert reading(form, "a.pdf").text.split() == ["Name", "of", "the", "applicant:", "Margarethe", "Quast"]


def test_a_file_that_is_no_pdf_is_an_error() -> None:
    with pytest.raises(UnreadableError, match="not a PDF file"):
        read(b"plain words", "a.pdf")
    with pytest.raises(UnreadableError, match="damaged"):
        read(b"%PDF-1.4\n" + bytes(range(256)), "a.pdf")


# Office files


W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"
TYPES = {"[Content_Types].xml": "<Types/>"}


def relations(**targets: str) -> str:
    rows = "".join(
        f'<Relationship Id="{kind}" Type="x/{kind.rstrip("0123456789")}" Target="{target}"/>'
        for kind, target in targets.items()
    )
    return f"<Relationships>{rows}</Relationships>"


def docx(body: str, *, namespace: str = W, **parts: str) -> bytes:
    files = {
        **TYPES,
        "_rels/.rels": relations(officeDocument="word/document.xml"),
        "word/document.xml": f'<w:document xmlns:w="{namespace}" xmlns:m="m" xmlns:mc="mc" xmlns:wps="wps" xmlns:r="r"><w:body>{body}</w:body></w:document>',
        "word/_rels/document.xml.rels": relations(**{kind: f"{kind}.xml" for kind in parts}),
        **{
            f"word/{kind}.xml": f'<w:{kind} xmlns:w="{namespace}">{content}</w:{kind}>'
            for kind, content in parts.items()
        },
    }
    return package(files)


def p(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


STYLES = (
    '<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
    '<w:style w:styleId="Own"><w:name w:val="mine"/><w:basedOn w:val="berschrift1"/><w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style>'
    '<w:style w:styleId="T"><w:name w:val="Title"/></w:style>'
)


@pytest.mark.parametrize("namespace", [W, STRICT])
def test_docx_headings_come_from_styles_whatever_they_are_called(namespace: str) -> None:
    body = (
        p("My Report", '<w:pStyle w:val="T"/>') + p("Chapter", '<w:pStyle w:val="berschrift1"/>') + p("text")
        + p("Section", '<w:pStyle w:val="Own"/>') + p("more") + p("Level three", '<w:outlineLvl w:val="2"/>')
    )  # fmt: skip
    document = reading(docx(body, namespace=namespace, styles=STYLES), "a.docx")
    assert document.title == "My Report"
    assert [(part.heading, document.text[part.start : part.end]) for part in document.parts] == [
        ((), "My Report"),
        (("Chapter",), "Chapter\n\ntext"),
        (("Chapter", "Section"), "Section\n\nmore"),
        (("Chapter", "Section", "Level three"), "Level three"),
    ]


def test_one_chapter_of_a_docx_does_not_name_the_others() -> None:
    def outlined(*headings: tuple[str, int]) -> Document:
        return reading(docx("".join(p(text, f'<w:outlineLvl w:val="{level}"/>') for text, level in headings)), "a.docx")

    assert outlined(("CHAPTER 1", 0), ("Ducks", 1), ("CHAPTER 2", 0)).title == ""
    assert outlined(("Handbook", 0), ("CHAPTER 1", 1), ("CHAPTER 2", 1)).title == "Handbook"
    assert outlined(("Preface", 1), ("CHAPTER 1", 0)).title == ""


def test_docx_headings_of_publishers_templates_are_known_by_name() -> None:
    names = ("ChapterTitle", "HeadA", "HeadB", "Header")
    styles = "".join(f'<w:style w:styleId="{name}"><w:name w:val="{name}"/></w:style>' for name in names)
    body = "".join(p(name, f'<w:pStyle w:val="{name}"/>') for name in names)
    document = reading(docx(body, styles=styles), "a.docx")
    assert document.parts[-1].heading == ("ChapterTitle", "HeadA", "HeadB")
    assert document.text.endswith("HeadB\n\nHeader")


def test_docx_gives_all_visible_text_and_no_deleted_text() -> None:
    body = (
        "<w:p><w:r><w:t>See </w:t></w:r><w:hyperlink><w:r><w:t>the link</w:t></w:r></w:hyperlink>"
        '<w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins><w:r><w:t> added</w:t></w:r></w:ins>'
        '<w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r></w:p>'
        "<w:sdt><w:sdtContent>" + p("controlled") + "</w:sdtContent></w:sdt>"
        "<w:p><m:oMath><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></w:p>"
        "<w:p><w:r><mc:AlternateContent><mc:Choice><w:drawing><wps:txbx><w:txbxContent>" + p("boxed") + "</w:txbxContent></wps:txbx></w:drawing></mc:Choice>"
        "<mc:Fallback><w:pict><w:txbxContent>" + p("boxed") + "</w:txbxContent></w:pict></mc:Fallback></mc:AlternateContent></w:r></w:p>"
        "<w:tbl><w:tr><w:tc>" + p("a") + "</w:tc><w:tc>" + p("b") + p("c") + "</w:tc></w:tr><w:tr><w:tc>" + p("1") + "</w:tc><w:tc>" + p("2") + "</w:tc></w:tr></w:tbl>"
    )  # fmt: skip
    data = docx(
        body,
        footnotes='<w:footnote w:id="0" w:type="separator">'
        + p("no")
        + '</w:footnote><w:footnote w:id="2">'
        + p("a note")
        + "</w:footnote>",
        comments='<w:comment w:id="9">' + p("a remark") + "</w:comment>",
        header=p("page head"),
        footer=p("page head") + p("page foot"),
    ).replace(b"x", b"x")
    document = reading(data, "a.docx")
    assert (
        document.text
        == "See the link added\n\na note\n\ncontrolled\n\nx^2\n\nboxed\n\na | b / c\n1 | 2\n\na remark\n\npage head\n\npage foot"
    )
    assert [part.kind for part in document.parts] == ["prose", "table", "prose"]


def math(name: str, *arguments: tuple[str, str], signs: str = "") -> str:
    """An element of Office Math; an argument is its name and a text or elements."""
    body = "".join(
        f"<m:{kind}>{text if '<' in text else f'<m:r><m:t>{text}</m:t></m:r>'}</m:{kind}>" for kind, text in arguments
    )
    return f"<m:{name}><m:{name}Pr>{signs}</m:{name}Pr>{body}</m:{name}>"


BRACKETS = math("d", ("e", "x+a"))


@pytest.mark.parametrize(
    ("element", "text"),
    [
        (math("sSup", ("e", "x"), ("sup", "2")), "x^2"),
        (math("sSup", ("e", BRACKETS), ("sup", "n-1")), "(x+a)^(n-1)"),
        (math("sSubSup", ("e", "x+y"), ("sub", "i"), ("sup", "-1")), "(x+y)_i^-1"),
        (math("f", ("num", "a+b"), ("den", "2")), "(a+b)/2"),
        (math("f", ("num", BRACKETS + BRACKETS), ("den", BRACKETS)), "((x+a)(x+a))/(x+a)"),
        (math("d", ("e", math("f", ("num", "n"), ("den", "k"), signs='<m:type m:val="noBar"/>'))), "(n¦k)"),
        (math("d", ("e", "a"), ("e", "b"), signs='<m:begChr m:val="["/><m:sepChr m:val=","/><m:endChr m:val=""/>'), "[a,b"),
        (math("nary", ("sub", "n=1"), ("sup", "∞"), ("e", "a"), signs='<m:chr m:val="∑"/>'), "∑_(n=1)^∞ a"),
        (math("nary", ("sub", ""), ("sup", ""), ("e", "dx")), "∫ dx"),
        (math("rad", ("deg", ""), ("e", "b-4")), "√(b-4)"),
        (math("rad", ("deg", "3"), ("e", "x")), "√(3&x)"),
        (math("func", ("fName", "log"), ("e", "x")), "log x"),
        (math("func", ("fName", math("limLow", ("e", "lim"), ("lim", "n"))), ("e", BRACKETS)), "lim_n(x+a)"),
        (math("m", ("mr", "<m:e><m:t>1</m:t></m:e><m:e><m:t>2</m:t></m:e>"), ("mr", "<m:e><m:t>3</m:t></m:e>")), "1, 2; 3"),
        ("<m:r><m:t>a</m:t></m:r><m:del><m:r><m:t>b</m:t></m:r></m:del>", "a"),
    ],
)  # fmt: skip
def test_equations_in_docx_and_pptx_keep_their_signs(element: str, text: str) -> None:
    equations = f"<m:oMath>{element}</m:oMath><m:oMath><m:r><m:t>1</m:t></m:r></m:oMath>"
    assert reading(docx(f"<w:p>{equations}</w:p>"), "a.docx").text == f"{text} 1"
    shape = f'<a:p xmlns:a="a" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math">{equations}</a:p>'
    assert list(drawingml.paragraphs(etree.fromstring(f"<slide>{shape}</slide>"))) == [f"{text} 1".strip()]


def test_docx_leaves_page_numbers_of_headers_and_footers_out() -> None:
    def field(code: str) -> str:
        return f"<w:r><w:instrText> {code} </w:instrText></w:r><w:r><w:t>2</w:t></w:r>"

    def run(text: str) -> str:
        return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'

    number = "<w:p>" + run("Page ") + field("PAGE") + run(" of ") + field("NUMPAGES \\* MERGEFORMAT") + "</w:p>"
    simple = f'<w:p><w:fldSimple w:instr=" PAGE ">{run("2")}</w:fldSimple></w:p>'
    box = f"<w:p><w:r><w:pict><w:txbxContent>{simple}{p('boxed')}</w:txbxContent></w:pict></w:r></w:p>"
    named = "<w:p>" + run("The yearly report of the garden, page ") + field("PAGE") + "</w:p>"
    data = docx(p("body"), header=number + p("2024"), footer=simple + box + named)
    assert reading(data, "a.docx").text == ("body\n\n2024\n\nboxed\n\nThe yearly report of the garden, page 2")


def test_an_empty_cell_of_a_table_in_docx_keeps_its_place() -> None:
    rows = [["", "Q1", "Q2"], ["Ann", "", "5"], ["Bob", "7", ""]]
    table = "".join("<w:tr>" + "".join(f"<w:tc>{p(text)}</w:tc>" for text in row) + "</w:tr>" for row in rows)
    assert reading(docx(f"<w:tbl>{table}</w:tbl>"), "a.docx").text == " | Q1 | Q2\nAnn |  | 5\nBob | 7"


def test_a_cell_over_several_columns_moves_those_after_it() -> None:
    source = "<table><tr><th>Name<th colspan=2>2025<th colspan=x>2026<td colspan=0>a</tr></table>"
    assert reading(source, "a.html").text == "Name | 2025 |  | 2026 | a"
    wide = f'<w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr>{p("2025")}</w:tc>'
    table = f"<w:tbl><w:tr><w:tc>{p('Name')}</w:tc>{wide}<w:tc>{p('2026')}</w:tc></w:tr></w:tbl>"
    assert reading(docx(table), "a.docx").text == "Name | 2025 |  | 2026"


def test_a_cell_over_several_rows_keeps_its_column_in_them() -> None:
    source = """<table><thead><tr><th rowspan=2>Name<th colspan=2>2025<th rowspan=9>Sum<tr><th>Q1<th>Q2</thead>
    <tr><td>Ann<td rowspan=2 colspan=2>5<td>10<tr><td>Bob<td>7<tr><td>Eve<td>1<td>2<td>3</table>
    <table><tr><td>next<td>table</table>"""
    assert reading(source, "a.html").text == (
        "Name | 2025 |  | Sum\n | Q1 | Q2\nAnn | 5 |  | 10\nBob |  |  | 7\nEve | 1 | 2 | 3\n\nnext | table"
    )
    nested = "<tr><td rowspan=2>a<td><table><tr><td rowspan=2>in</table><td>b<tr><td>c<td>d"
    assert reading(f"<table>{nested}</table>", "a.html").text == "a\n\nin\n\nb\n | c | d"


def test_cells_left_out_before_a_row_in_docx_keep_the_others_in_their_columns() -> None:
    before = '<w:trPr><w:gridBefore w:val="2"/></w:trPr>'
    row = "".join(f"<w:tc>{p(text)}</w:tc>" for text in ("a", "b"))
    table = f"<w:tbl><w:tr>{row}{row}</w:tr><w:tr>{before}{row}</w:tr></w:tbl>"
    assert reading(docx(table), "a.docx").text == "a | b | a | b\n |  | a | b"


@pytest.mark.parametrize("digits", ["²", "9" * 5000])
def test_docx_with_an_invalid_outline_level_is_read(digits: str) -> None:
    level = f'<w:outlineLvl w:val="{digits}"/>'
    styles = f'<w:style w:styleId="S"><w:pPr>{level}</w:pPr></w:style>'
    assert reading(docx(p("a", level), styles=styles), "a.docx").text == "a"
    assert reading(odf("text", f'<text:h text:outline-level="{digits}">a</text:h>'), "a.odt").text == "a"


def test_pptx_is_read_by_slide_with_tables_notes_and_groups() -> None:
    def shape(text: str, kind: str = "") -> str:
        placeholder = f'<p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>' if kind else ""
        return f"<p:sp>{placeholder}<p:txBody>{''.join(f'<a:p><a:r><a:t>{line}</a:t></a:r></a:p>' for line in text.split('/'))}</p:txBody></p:sp>"

    def slide(content: str, kind: str = "sld") -> str:
        return (
            f'<p:{kind} xmlns:p="p" xmlns:a="a" xmlns:r="r"><p:cSld><p:spTree>{content}</p:spTree></p:cSld></p:{kind}>'
        )

    table = "<p:graphicFrame><a:tbl><a:tr><a:tc><a:txBody><a:p><a:r><a:t>x</a:t></a:r></a:p></a:txBody></a:tc><a:tc/><a:tc><a:txBody><a:p><a:r><a:t>y</a:t></a:r></a:p></a:txBody></a:tc></a:tr></a:tbl></p:graphicFrame>"
    data = package(
        {
            **TYPES,
            "_rels/.rels": relations(officeDocument="ppt/presentation.xml"),
            "ppt/presentation.xml": '<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst><p:sldId id="1" r:id="slide2"/><p:sldId id="2" r:id="slide1"/></p:sldIdLst></p:presentation>',
            "ppt/_rels/presentation.xml.rels": relations(slide1="slides/slide1.xml", slide2="slides/slide2.xml"),
            "ppt/slides/slide1.xml": slide(shape("last")),
            "ppt/slides/slide2.xml": slide(
                shape("body/line")
                + shape("7", "sldNum")
                + shape("The Title", "title")
                + f"<p:grpSp>{shape('grouped')}</p:grpSp>"
                + table
            ),
            "ppt/slides/_rels/slide2.xml.rels": relations(notesSlide="../notesSlides/n.xml"),
            "ppt/notesSlides/n.xml": slide(shape("remember", "body"), "notes"),
        }
    )
    document = reading(data, "a.pptx")
    assert [(part.page, part.heading, part.kind, document.text[part.start : part.end]) for part in document.parts] == [
        (1, ("The Title",), "prose", "The Title\n\nbody\nline\n\ngrouped"),
        (1, ("The Title",), "table", "x |  | y"),
        (1, ("The Title",), "prose", "remember"),
        (2, (), "prose", "last"),
    ]


def xlsx(rows: str, **files: str) -> bytes:
    ns = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    return package(
        {
            **TYPES,
            "_rels/.rels": relations(officeDocument="xl/workbook.xml"),
            "xl/workbook.xml": f'<workbook {ns} xmlns:r="r"><sheets><sheet name="Ducks" r:id="worksheet"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relations(
                worksheet="sheet1.xml", sharedStrings="strings.xml", styles="styles.xml"
            ),
            "xl/sheet1.xml": f"<worksheet {ns}><sheetData>{rows}</sheetData></worksheet>",
            "xl/strings.xml": f"<sst {ns}><si><t>shared</t></si><si><r><t>in </t></r><r><t>runs</t></r></si></sst>",
            "xl/styles.xml": f'<styleSheet {ns}><numFmts><numFmt numFmtId="170" formatCode="yyyy\\-mm"/></numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="170"/></cellXfs></styleSheet>',
            **files,
        }
    )


def test_xlsx_rows_are_lines_and_cells_are_shown_as_people_see_them() -> None:
    rows = (
        '<row><c t="s"><v>0</v></c><c t="s"><v>1</v></c><c t="inlineStr"><is><t>own</t></is></c></row><row><c/></row>'
        '<row><c><v>0.30000000000000004</v></c><c s="1"><v>45000</v></c><c s="2"><v>45000.5</v></c><c t="b"><v>1</v></c><c t="e"><v>#N/A</v></c></row>'
    )
    document = reading(xlsx(rows), "a.xlsx")
    assert document.text == "shared\tin runs\town\n0.3\t2023-03-15\t2023-03-15 12:00:00\tTRUE\t#N/A"
    assert [(part.page, part.heading, part.kind) for part in document.parts] == [(1, ("Ducks",), "table")]


def test_cells_of_a_sheet_stand_in_their_columns() -> None:
    def row(**cells: str) -> str:
        written = "".join(f'<c r="{reference}"><v>{value}</v></c>' for reference, value in cells.items())
        return f"<row>{written}</row>"

    rows = (
        row(B1="1", D1="2")
        + row(A2="3", B2="", C2="4", E2="")
        + row(Z3="5", AB3="6")
        + "<row><c/><c><v>7</v></c></row>"
    )
    assert reading(xlsx(rows), "a.xlsx").text == "\t1\t\t2\n3\t\t4\n" + "\t" * 25 + "5\t\t6\n\t7"


def test_rows_far_down_a_sheet_have_the_names_of_its_columns() -> None:
    def row(number: int, *cells: str) -> str:
        written = "".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in cells)
        return f'<row r="{number}">{written}</row>'

    rows = [
        row(1, "Ducks of the lake"),
        row(2, "Year", "Sea ducks"),
        *(row(3 + i, "2019", f"{i} ducks") for i in range(300)),
    ]
    other = [row(400, "Keeper", "Town"), *(row(401 + i, f"Ann {i}", "Bern by the river") for i in range(60))]
    document = reading(xlsx("".join(rows + other)), "a.xlsx")
    last = document.parts[-1]
    assert {part.heading for part in document.parts} == {("Ducks", "Year, Sea ducks"), ("Ducks", "Keeper, Town")}
    assert document.text[last.start :].startswith("Keeper\tTown\nAnn 0")
    short = reading(xlsx("".join([*rows[:9], row(30, "Keeper", "Town"), row(31, "Ann", "Bern")])), "a.xlsx")
    assert {part.heading for part in short.parts} == {("Ducks",)}


def test_hours_beyond_a_day_are_a_duration_in_xlsx() -> None:
    forms = '<numFmts><numFmt numFmtId="170" formatCode="[hh]:mm"/></numFmts>'
    formats = "".join(f'<xf numFmtId="{number}"/>' for number in (46, 170, 21))
    namespace = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    styles = f"<styleSheet {namespace}>{forms}<cellXfs>{formats}</cellXfs></styleSheet>"
    cells = '<c s="0"><v>1.5</v></c><c s="1"><v>-0.0625</v></c><c s="2"><v>0.25</v></c><c s="0"><v>nan</v></c>'
    assert reading(xlsx(f"<row>{cells}</row>", **{"xl/styles.xml": styles}), "a.xlsx").text == (
        "36:00:00\t-1:30:00\t06:00:00\tnan"
    )


def test_xlsx_with_the_last_date_of_excel_is_read() -> None:
    assert reading(xlsx('<row><c s="1"><v>2958465.9999999</v></c><c><v>7</v></c></row>'), "a.xlsx").text.endswith("\t7")


def test_escaped_characters_of_xlsx_are_decoded() -> None:
    strings = '<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><si><t>a_x000D_\nb_x005F_x</t></si></sst>'
    workbook = xlsx('<row><c t="s"><v>0</v></c></row>', **{"xl/strings.xml": strings})
    assert reading(workbook, "a.xlsx").text == "a b_x"


def test_a_workbook_that_claims_to_be_huge_is_read_in_little_time() -> None:
    rows = '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>2</v></c></row>'
    assert reading(xlsx(rows), "a.xlsx").text == "1\n2"


@pytest.mark.parametrize("name", ["a.xlsb", "a.xlsx"])
def test_a_binary_workbook_is_read(name: str) -> None:
    def record(kind: int, data: bytes = b"") -> bytes:
        number = bytes([kind]) if kind < 128 else bytes([kind % 128 + 128, kind // 128])
        return number + bytes([len(data)]) + data

    def text(value: str) -> bytes:
        return struct.pack("<I", len(value)) + value.encode("utf-16-le")

    book = record(156, bytes(8) + text("worksheet") + text("Ducks")) + record(144) + record(157)
    rows = record(0, bytes(17)) + record(6, bytes(8) + text("Ann")) + record(5, struct.pack("<IId", 2, 0, 5.0))
    files = {
        **TYPES,
        "_rels/.rels": relations(officeDocument="xl/workbook.bin"),
        "xl/workbook.bin": book,
        "xl/_rels/workbook.bin.rels": relations(worksheet="worksheets/sheet1.bin"),
        "xl/worksheets/sheet1.bin": record(148, bytes(16)) + record(145) + rows + record(146),
    }
    assert outline(reading(package(files), name)) == [(("Ducks",), 1, "table", "Ann\t\t5")]


def test_a_table_saved_under_excels_name_is_read_as_a_table() -> None:
    assert reading("a\tb\n1\t2\n", "a.xls").text == "a\tb\n1\t2\n"
    assert reading("<html><table><tr><td>a<td>b</table>", "a.xls").text == "a | b"


ODF = 'xmlns:office="o" xmlns:text="t" xmlns:table="tb" xmlns:draw="d" xmlns:presentation="pr"'


def odf(kind: str, body: str) -> bytes:
    return package(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": f"<office:document-content {ODF}><office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>",
        }
    )


def test_odt_headings_lists_notes_and_tables() -> None:
    body = (
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        '<text:h text:outline-level="1">One</text:h><text:p>a<text:s text:c="2"/>b<text:note><text:note-citation>1</text:note-citation>'
        "<text:note-body><text:p>noted</text:p></text:note-body></text:note></text:p>"
        '<text:h text:outline-level="2">Two</text:h><text:list><text:list-item><text:p>x</text:p></text:list-item><text:list-item><text:p>y</text:p></text:list-item></text:list>'
        "<table:table><table:table-row><table:table-cell><text:p>1</text:p></table:table-cell><table:table-cell><text:p>2</text:p></table:table-cell></table:table-row></table:table>"
    )
    document = reading(odf("text", body), "a.odt")
    assert [(part.heading, part.kind, document.text[part.start : part.end]) for part in document.parts] == [
        (("One",), "prose", "One\n\na  b\n\nnoted"),
        (("One", "Two"), "prose", "Two\nx\ny".replace("Two\n", "Two\n", 1)),
        (("One", "Two"), "table", "1 | 2"),
    ]


def test_cells_of_an_ods_stand_in_their_columns_and_as_often_as_they_are_repeated() -> None:
    def cell(text: str, times: int = 1) -> str:
        said = f"<text:p>{text}</text:p>" if text else ""
        return f'<table:table-cell table:number-columns-repeated="{times}">{said}</table:table-cell>'

    rows = (cell("", 2) + cell("May"), cell("Rent") + cell("500", 2) + cell("", 1000))
    body = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    sheet = odf("spreadsheet", f'<table:table table:name="S">{body}</table:table>')
    assert reading(sheet, "a.ods").text == "\t\tMay\nRent\t500\t500"


def test_fields_in_an_odt_are_read() -> None:
    body = "<text:p>Berlin, <text:date>1 May</text:date>, by <text:creator>Ada</text:creator></text:p>"
    assert reading(odf("text", body), "a.odt").text == "Berlin, 1 May, by Ada"


def test_odp_slides_and_ods_sheets_are_pages() -> None:
    slide = '<draw:page><draw:frame><draw:text-box><text:p>body</text:p></draw:text-box></draw:frame><draw:frame presentation:class="title"><draw:text-box><text:p>Title</text:p></draw:text-box></draw:frame></draw:page>'
    document = reading(odf("presentation", slide + slide.replace("Title", "Next")), "a.odp")
    assert [(part.page, part.heading, document.text[part.start : part.end]) for part in document.parts] == [
        (1, ("Title",), "Title\n\nbody"), (2, ("Next",), "Next\n\nbody"),
    ]  # fmt: skip
    row = '<table:table-row table:number-rows-repeated="1000000"><table:table-cell table:number-columns-repeated="16000"><text:p>x</text:p></table:table-cell><table:table-cell><text:p>y</text:p></table:table-cell></table:table-row>'
    document = reading(odf("spreadsheet", f'<table:table table:name="S">{row}</table:table>'), "a.ods")
    assert [(part.page, part.heading, part.kind, document.text) for part in document.parts] == [
        (1, ("S",), "table", "x\ty")
    ]


def test_epub_chapters_come_in_the_order_of_the_spine() -> None:
    data = package(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="in/book.opf"/></rootfiles></container>',
            "in/book.opf": '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>A Book</dc:title><dc:creator>Ada</dc:creator></metadata>'
            '<manifest><item id="a" href="a%20b.xhtml"/><item id="b" href="b.xhtml"/><item id="c" href="c.tiff"/></manifest><spine><itemref idref="c"/><itemref idref="b"/><itemref idref="a"/></spine></package>',
            "in/c.tiff": bytes(100),
            "in/a b.xhtml": "<html><head><title/></head><body><h1>Second</h1><p>two</p></body></html>",
            "in/b.xhtml": "<html><body><h1>First</h1><p>one</p></body></html>",
        }
    )
    document = reading(data, "a.epub")
    assert (document.title, document.metadata) == ("A Book", {"author": "Ada"})
    assert [(part.heading, document.text[part.start : part.end]) for part in document.parts] == [
        (("First",), "First\n\none"), (("Second",), "Second\n\ntwo"),
    ]  # fmt: skip


def test_rtf_surrogate_pairs_become_one_character() -> None:
    assert reading(rb"{\rtf1\uc1 a \u-10179?\u-8704? b}", "a.rtf").text == "a \U0001f600 b"


def test_rtf_text_is_unescaped() -> None:
    document = reading(
        rb"{\rtf1\ansi\ansicpg1252{\info{\title Ducks}}{\fonttbl{\f0 Arial;}}Caf\'e9 \u8212? {\b bold}\par next}",
        "a.rtf",
    )
    assert (document.title, document.text) == ("Ducks", "Café — bold\nnext")


def test_rtf_notes_are_read_and_hidden_text_is_not() -> None:
    source = (
        rb"{\rtf1\ansi\ansicpg1252{\info{\title Fran\'e7ais \u8212?}}"
        rb"Text{\super\chftn{\footnote\pard noted}} {\lang1033\v hidden}{\b\v a\v0 shown}{\v0 as is}}"
    )
    document = reading(source, "a.rtf")
    assert (document.title, document.text) == ("Français —", "Text\tnoted ashownas is")


# Mail


MAIL = """Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=
From: Ada <ada@example.com>
To: bob@example.com
Date: Mon, 1 Jan 2024 10:00:00 +0000
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: multipart/alternative; boundary=c

--c
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

Sch=F6ne Gr=FC=DFe
--c
Content-Type: text/html

<p>no</p>
--c--
--b
Content-Type: application/pdf
Content-Disposition: attachment; filename="plan.pdf"

x
--b--
"""


def test_mail_is_its_headers_its_plain_text_and_the_names_of_its_attachments() -> None:
    document = reading(MAIL, "a.eml")
    assert document.title == "Grüße"
    assert document.metadata["attachments"] == ["plan.pdf"]
    assert document.text == (
        "Subject: Grüße\nFrom: Ada <ada@example.com>\nTo: bob@example.com\nDate: Mon, 1 Jan 2024 10:00:00 +0000\n\n"
        "Schöne Grüße\n\nAttachments: plan.pdf"
    )
    assert (
        reading("Subject: x\nContent-Type: text/html\n\n<p>only <b>html</b>", "a.eml").text == "Subject: x\n\nonly html"
    )


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_unencoded_letters_in_the_headers_of_a_mail_are_read(encoding: str) -> None:
    document = reading("Subject: Grüße aus Köln\nFrom: Jürgen <j@example.com>\n\nx\n".encode(encoding), "a.eml")
    assert document.text == "Subject: Grüße aus Köln\nFrom: Jürgen <j@example.com>\n\nx"


def test_mail_in_latin_1_is_read_as_windows_1252() -> None:
    head = b"Subject: =?iso-8859-1?q?=93a=94?=\nContent-Type: text/plain; charset=iso-8859-1\n\n"
    assert reading(head + b"don\x92t wait\x85 5 \x80\n", "a.eml").text == "Subject: “a”\n\ndon’t wait… 5 €"


@pytest.mark.parametrize("charset", ["a\0b", "undefined", "rot13", "unicode_escape", "us-ascii", "nonsense"])
def test_mail_in_an_unknown_charset_is_read_by_its_bytes(charset: str) -> None:
    mail = f'Subject: x\nContent-Type: text/plain; charset="{charset}"\n\nGrüße C:\\new\n'
    assert reading(mail, "a.eml").text == "Subject: x\n\nGrüße C:\\new"


def test_a_mailbox_is_its_mails_each_under_its_subject() -> None:
    coded = "Subject: Ducks\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\nRHVja3Mgc3dpbS4=\n"
    page = "Subject: Geese\nContent-Type: text/html\n\n<title>x</title><h1>Loud</h1><p>Geese honk.</p>\n\nFrom here on\nno mail.\n"
    plain = "Subject: Swans\n\nSwans are white.\n"
    mailbox = "".join(f"From ada@example.com Mon Jan  1 10:00:00 2024\n{mail}\n" for mail in (coded, page, plain))
    assert reading(mailbox, "Archive.mbox").title == ""
    for data in (mailbox, mailbox.replace("\n", "\r\n")):
        assert [(heading, text) for heading, _, _, text in outline(reading(data, "Archive.mbox"))] == [
            (("Ducks",), "Subject: Ducks\n\nDucks swim."),
            (("Geese",), "Subject: Geese"),
            (("Geese", "Loud"), "Loud\n\nGeese honk.\n\nFrom here on no mail."),
            (("Swans",), "Subject: Swans\n\nSwans are white."),
        ]
    assert reading(plain, "a.mbox").text == "Subject: Swans\n\nSwans are white."


@pytest.mark.parametrize("name", ["Inbox", "Local Folders/Archives.sbd/v1.2 list", "mail.txt"])
def test_a_mailbox_without_an_ending_is_recognized_by_its_first_lines(name: str) -> None:
    mail = "From - Mon Jan 01 10:00:00 2024\r\nX-Mozilla-Status: 0001\r\nSubject: Swans\r\n\r\nWhite.\r\n\r\n"
    document = reading(mail + mail.replace("Swans", "Geese"), name)
    assert (document.format, [part.heading for part in document.parts]) == ("mailbox", [("Swans",), ("Geese",)])
    for date in "Fri Jul  8 12:08:34 2011", "Fri Jul 8 12:08 2011 remote from x", "Fri, 08 Jul 2011 12:08:34 +0000":
        assert reading(f"From MAILER-DAEMON {date}\nSubject: Swans\n\nWhite.\n", name).format == "mailbox"
    for agenda in (
        "From here in 2024\non: all is well",
        "From 09:00 to 10:30 on Monday: opening in the great hall\nSpeaker: Ada Lovelace\nRoom: 12\n\nFrom 11:00: lunch",
        "From now on we meet on Mon at 10:30 each week\nNote: bring a pen",
    ):
        document = reading(agenda, name)
        assert (document.format, document.text) == ("text", agenda)
    with pytest.raises(UnsupportedError):
        reading("// <!-- <mdb:mork:z v='1.4'/> -->", "Inbox.msf")


def test_an_escaped_from_line_in_a_mailbox_is_unescaped():
    box = b"From a Sat\nSubject: Swans\n\nGo home.\n>From here on it is dark.\n>>From me\n> From you\n"
    assert reading(box, "a.mbox").text.endswith("Go home.\nFrom here on it is dark.\n>From me\n> From you")


def test_the_page_of_a_saved_web_page_and_of_an_invitation_is_read() -> None:
    def multipart(kind: str, part: str) -> str:
        page = f"Content-Type: multipart/{kind}; boundary=X\n\n--X\nContent-Type: text/html\n\n<p>said</p>\n"
        return f"Subject: x\nMIME-Version: 1.0\n{page}--X\nContent-Type: {part}\n\nBEGIN {{}}\n--X--\n"

    for mail in multipart("related", "text/css"), multipart("alternative", "text/calendar"):
        assert reading(mail, "a.mht").text == "Subject: x\n\nsaid"


def test_a_text_part_with_a_file_name_is_read_unless_it_is_an_attachment() -> None:
    parts = "".join(
        f"--X\nContent-Type: {kind}; name={name}\n{disposition}\n{name} said\n"
        for kind, name, disposition in (
            ("text/plain", "body.txt", ""),
            ("text/x-patch", "a.patch", "Content-Disposition: inline\n"),
            ("text/plain", "b.txt", "Content-Disposition: attachment\n"),
            ("text/calendar", "c.ics", ""),
        )
    )
    document = reading(f"Subject: x\nContent-Type: multipart/mixed; boundary=X\n\n{parts}--X--\n", "a.eml")
    assert document.text == "Subject: x\n\nbody.txt said\n\na.patch said\n\nAttachments: b.txt, c.ics"


def test_mail_nested_without_end_is_refused() -> None:
    nested = "".join(f"Content-Type: multipart/mixed; boundary=b{i}\n\n--b{i}\n" for i in range(10_000))
    with pytest.raises(UnreadableError, match="nested"):
        read(nested.encode(), "a.eml")


# Encoded data


def encoded_lines(count: int, *, seed: int = 0) -> str:
    return base64.encodebytes(random.Random(seed).randbytes(57 * count)).decode()


@pytest.mark.parametrize("around", ["{}", "-----BEGIN KEY-----\n{}-----END KEY-----\n", "key: |\n  {}"])
def test_lines_of_encoded_data_are_left_out_and_counted(around: str) -> None:
    data = encoded_lines(20) + "c2hvcnQgb25l\n"
    source = f"Before.\n{around.format(data)}Regards\nafter"
    document = reading(source, "a.txt")
    assert document.text.split("\n")[-2:] == ["Regards", "after"]
    assert document.text.count("\n") == source.count("\n")
    assert "…" in document.text
    assert len(document.text) < 150
    assert document.metadata["unread"].startswith("1,55")


def test_parts_keep_their_lines_behind_encoded_data() -> None:
    picture = "![](data:image/png;base64," + encoded_lines(20).replace("\n", "") + ")"
    document = reading(f"# A\n\n{picture}\n\n```\n{encoded_lines(9)}```\n\n# B\n\nend\n", "a.md")
    assert [(part.line, part.heading) for part in document.parts] == [(1, ("A",)), (5, ("A",)), (17, ("B",))]
    assert document.text.startswith("# A\n\n![](data:image/png;base64,…)\n\n```\n…\n")
    assert document.text[document.parts[-1].start :] == "# B\n\nend\n"


def test_a_file_of_encoded_data_alone_has_no_text() -> None:
    assert reading(encoded_lines(40), "a.txt").parts == ()


@pytest.mark.parametrize(
    "text",
    [
        "".join(random.Random(i).randbytes(32).hex() + "\n" for i in range(30)),  # a list of SHA-256 sums
        "".join("".join(random.Random(i).choices("ACGT", k=70)) + "\n" for i in range(30)),
        "x" * 5_000,
        "an ordinary sentence of a book, with words\n" * 50,
        "".join(f"Test_CreateOrder_Version2_WithCustomer100{i}_And3Items_ReturnsStatus201Created\n" for i in range(9)),
        encoded_lines(2),
    ],
)
def test_what_only_resembles_encoded_data_is_kept(text: str) -> None:
    assert reading(text, "a.txt").text == text


# Names that lie, bombs, and damage


def test_a_file_is_read_by_its_content_if_that_is_clear() -> None:
    word = docx(p("words"))
    assert reading(word, "a.doc").format == "docx"
    assert reading(word, "a.txt").text == "words"
    assert reading(pdf(["pages"]), "a.docx").text == "pages"
    assert reading("<!DOCTYPE html>\n<p>web</p>", "a.xml").text == "web"
    assert reading("<html><p>web</p></html>", "a.doc").text == "web"
    assert reading(rb"{\rtf1 rich}", "a.doc").text == "rich"
    with pytest.raises(UnreadableError, match="not a DOCX file"):
        read(b"words", "a.docx")
    with pytest.raises(UnreadableError, match="not an XLSX file"):
        read(b"words", "a.xlsx")
    with pytest.raises(UnreadableError, match="no Word document"):
        read(package({"a": "b"}), "a.docx")
    assert reading(package({"a": "b"}), "a").format == "zip"


@pytest.mark.parametrize("name", ["a.py", "a.md", "a.txt"])
def test_a_text_that_speaks_of_pdf_is_a_text(name: str) -> None:
    source = 'HEAD = b"%PDF-1.4"\nOBJECT = b"1 0 obj endobj"'
    assert reading(source, name).text == source


def test_an_office_file_with_a_password_is_an_error() -> None:
    data = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500) + "EncryptedPackage".encode("utf-16-le")
    with pytest.raises(UnreadableError, match=r"^password-protected$"):
        read(data, "a.docx")


def test_a_package_in_an_unknown_compression_is_not_said_to_have_a_password() -> None:
    data = docx(p("words")).replace(b"PK\x03\x04\x14\0\0\0\x08\0", b"PK\x03\x04\x14\0\0\0\x09\0")
    for match in re.finditer(b"PK\x01\x02", data):
        data = data[: match.start() + 10] + b"\x09\0" + data[match.start() + 12 :]
    assert "does not unpack (That compression method" in outcome(data, "a.docx")


def test_a_zip_bomb_is_stopped_while_it_unpacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert package_limits.MAX_INFLATED == 256 << 20
    monkeypatch.setattr(package_limits, "MAX_INFLATED", 1 << 20)
    bomb = docx(p("a" * 20_000_000))
    tracemalloc.start()
    with pytest.raises(UnreadableError, match="unpacks to more than 1 MB"):
        read(bomb, "a.docx")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 << 20
    bomb = docx(p("a" * 5_000), header="b" * 700_000, footer="c" * 700_000)  # each file is small enough
    with pytest.raises(UnreadableError, match="unpacks to more than 1 MB"):
        read(bomb, "a.docx")
    with pytest.raises(UnreadableError, match="packs 20,001 files"):
        read(package({**TYPES, "word/document.xml": "", **{str(number): "" for number in range(19_999)}}), "a.docx")


@pytest.mark.parametrize("number", ["999999999", "99999999999999999999"])
def test_a_table_that_claims_to_be_huge_is_read_in_little_time(number: str) -> None:
    html = f"<table><tr><td colspan={number} rowspan={number}>cat<td>sat</table>" * 50
    assert reading(html, "a.html").text.split() == ["cat", "|", "sat"] * 50
    word = docx(f'<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="{number}"/></w:tcPr>{p("cat")}</w:tc></w:tr></w:tbl>')
    assert reading(word, "a.docx").text == "cat"


def test_a_book_reads_nothing_outside_of_itself(tmp_path: Path) -> None:
    secret = tmp_path / "secret.xhtml"
    secret.write_text("<p>secret</p>")
    names = [f"{'../' * 20}{str(secret)[1:]}", str(secret), secret.as_uri()]
    items = "".join(
        f'<item id="i{number}" href="{name}" media-type="application/xhtml+xml"/>' for number, name in enumerate(names)
    )
    spine = "".join(f'<itemref idref="i{number}"/>' for number in range(len(names)))
    files = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="c.opf"/></rootfiles></container>',
        "c.opf": f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{spine}</spine>'
        "</package>",
    }
    assert read(package(files), "a.epub").text == ""


@pytest.mark.parametrize(("directory", "rest"), [(0, 0), (2, 100), (1, 10)], ids=["no sectors", "far", "cut"])
def test_an_old_workbook_on_which_its_parser_panics_is_damaged(directory: int, rest: int) -> None:
    none, end = 0xFFFFFFFF, 0xFFFFFFFE
    sizes, sectors = (62, 3, 0xFFFE, 9, 6), (0, 1, directory, 0, 4096, end, 0, end, 0)
    head = struct.pack("<8s16x5H6x9I", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", *sizes, *sectors)
    head += struct.pack("<109I", 0, *[none] * 108)
    allocation = struct.pack("<128I", 0xFFFFFFFD, *[end] * 127) if rest else b""
    with pytest.raises(UnreadableError, match="damaged workbook"):
        read_xls(head + allocation + bytes(rest), "xls")


def test_rtf_with_a_letter_beyond_all_letters_is_damaged() -> None:
    assert outcome(rb"{\rtf1\u99999999999? cat}", "a.rtf").startswith("damaged RTF")


def test_a_text_beyond_the_limit_is_refused() -> None:
    with pytest.raises(UnreadableError, match="longer than 64 million"):
        read(b"a" * 64_000_001, "a.txt")


@pytest.mark.parametrize("open_", ["<w:tbl><w:tr><w:tc>", "<w:p><w:r><w:pict><w:txbxContent>", "<w:sdt><w:sdtContent>"])
def test_deeply_nested_office_files_are_refused_or_read(open_: str) -> None:
    close = "".join(f"</{tag}>" for tag in reversed(open_[1:-1].split("><")))
    for depth in (40, 80, 200):
        assert not outcome(docx(open_ * depth + p("x") + close * depth), "a.docx") or depth > 40


@pytest.mark.parametrize("name", ["a.json", "a.txt", "a.ipynb"])
def test_json_nested_a_hundred_thousand_deep_does_no_harm(name: str) -> None:
    for data in (b"[" * 100_000, b'{"a":' * 100_000):
        assert "\n" not in outcome(data, name)


SEEDS: dict[str, bytes] = {
    "a.md": MARKDOWN.encode(), "a.html": HTML.encode(), "a.xml": RSS.encode(), "a.eml": MAIL.encode(), "a.csv": b"a,b\n1,2\n",
    "a.json": rb'{"a": "\u00e9"}', "a.pdf": pdf(["one", "two"], outline=[("one", 0)]), "a.docx": docx(p("x"), styles=STYLES),
    "a.xlsx": xlsx('<row><c t="s"><v>0</v></c></row>'), "a.odt": odf("text", "<text:p>x</text:p>"), "a.rtf": rb"{\rtf1 a\'e9\par b}",
    "a.ipynb": b'{"cells": [{"cell_type": "code", "source": "x"}]}', "a.rst": b"A\n=\n\nb::\n\n  c\n", "a.tex": b"\\section{a}\nb",
    "a.txt": "日本".encode("cp932"), "a.org": b"* a\n#+begin_src\n", "a.adoc": b"= a\n----\n",
}  # fmt: skip


@pytest.mark.parametrize("name", SEEDS)
def test_damaged_files_give_text_or_one_line_saying_why(name: str) -> None:
    chance = random.Random(name)
    for _ in range(60):
        data = bytearray(SEEDS[name])
        for _ in range(chance.randrange(8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.4:
            del data[chance.randrange(len(data)) :]
        assert "\n" not in outcome(bytes(data), name)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["md", "rst", "org", "tex", "adoc", "csv", "tsv", "json", "jsonl", "txt", "py", "1"]), st.text())
def test_the_text_of_a_text_file_is_the_file_itself(ending: str, text: str) -> None:
    try:
        document = reading(text.encode("utf-8", "replace"), "a." + ending)
    except UnsupportedError:
        return
    if ending not in {"json", "jsonl", "txt"} and "\0" not in text:
        expected = text.encode("utf-8", "replace").decode().replace("\r\n", "\n").removeprefix("\ufeff")
        assert document.text == expected.replace("\r", " " if "\n" in expected else "\n")
    for part in document.parts:
        assert part.line == document.text.count("\n", 0, part.start) + 1


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=".'\\\"[](){}THSDtshfBIRPexNmOplFde*u0gE \n", max_size=300))
def test_a_manual_page_has_the_lines_of_its_file_whatever_is_in_it(soup: str) -> None:
    document = reading(f".TH A 1\n{soup}", "a.1")
    assert document.text.count("\n") == soup.count("\n") + 1
    for part in document.parts:
        assert part.line == document.text.count("\n", 0, part.start) + 1


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="<>/=\"'! -pbrtdhliua1&;x\n", max_size=200))
def test_random_tags_give_the_letters_between_them_in_order_and_once(soup: str) -> None:
    letters = iter(soup)
    text = reading(soup, "a.html").text
    assert all(letter in letters for letter in text if letter.isascii() and letter.isalnum())
    if not set(soup) & set("<&"):
        assert text.split() == soup.split()


def test_the_table_of_formats_names_readers_that_exist() -> None:
    from importlib import import_module

    for name, reader in set(FORMATS.values()):
        module, _, function = reader.partition(":")
        assert callable(getattr(import_module(module, "binocle.retriever.readers"), function)), name


def test_importing_the_readers_is_cheap() -> None:
    code = "import sys, binocle.retriever.readers; print(sorted(set(sys.modules) & {'lxml', 'pypdfium2', 'numpy', 'lance', 'email', 'zipfile'}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert shown.stdout == "[]\n"


@pytest.mark.skipif("BINOCLE_SAMPLES" not in os.environ, reason="BINOCLE_SAMPLES names no folder of sample files")
def test_every_sample_is_read_or_fails_with_a_reason() -> None:
    for path in sorted(Path(os.environ["BINOCLE_SAMPLES"]).rglob("*")):
        if path.is_file():
            assert "\n" not in outcome(path.read_bytes(), path.name)
