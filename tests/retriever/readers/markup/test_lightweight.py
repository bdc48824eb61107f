"""Lightweight markup and manual pages: the text as it is written, and its headings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..sample_files import MARKDOWN, outline, reading


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


@pytest.mark.parametrize(("rows", "names"), [(3, ()), (40, ("Name, Home town, size()",))])
def test_rows_far_down_a_markdown_table_have_the_names_of_its_columns(rows: int, names: tuple[str, ...]) -> None:
    body = "".join(f"| Ann {number} | Bern and Basel | 5 |\n" for number in range(rows))
    document = reading(f"# Top\n\n| Name | **Home** town | `size()` |\n|---|---|---|\n{body}\nafter\n", "a.md")
    assert [(part.kind, part.heading) for part in document.parts] == [
        ("prose", ("Top",)),
        ("table", ("Top", *names)),
        ("prose", ("Top",)),
    ]


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
        ("Install { #install .wide }", "Install"),
        ("{#each} of `{#if}` {.x}", "{#each} of {#if}"),
        ("{#each}", "{#each}"),
        ("A<br/>B", "A B"),
        ("A* search, *args and \\*so on\\*", "A* search, *args and *so on*"),
        ("Map<K, V> if a < b > c", "Map<K, V> if a < b > c"),
        ('<a id="x"></a>x<sup>2</sup> <!-- no --> <https://x.y> ![duck](d.png)', "x2 https://x.y duck"),
    ],
)
def test_a_markdown_title_is_what_a_browser_shows(markdown: str, title: str) -> None:
    assert reading(f"# {markdown}\n", "a.md").title == title


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("AT&amp;T &eacute;t&#233;&#xe9; x&shy;y&nbsp;z", "AT&T étéé xy z"),
        ("&notit; &amp &#10; &#x2028; \\&amp; \\\\&amp;", "&notit; &amp &#10; &#x2028; \\&amp; \\\\&"),
        ("`&amp;` ``a`\n&amp;`` ` &amp;\n\n` &amp;", "`&amp;` ``a`\n&amp;`` ` &\n\n` &"),
        ("```\n&amp;\n```\n\n    &lt;", "```\n&amp;\n```\n\n    &lt;"),
        ("---\nname: R&amp;D\n---\nR&amp;D", "---\nname: R&amp;D\n---\nR&D"),
    ],
)
def test_character_references_of_markdown_are_letters_except_in_code(markdown: str, text: str) -> None:
    assert reading(markdown, "a.md").text == text


def test_the_parts_of_markdown_stand_where_they_are_when_its_references_are_letters() -> None:
    document = reading("&amp;\n\n# R&amp;D\n&lt;p&gt;\n\n| &amp; |\n|---|\n| &quot; |\n\nend &amp;\n", "a.md")
    assert outline(document) == [
        ((), 1, "prose", "&"),
        (("R&D",), 3, "prose", "# R&D\n<p>"),
        (("R&D",), 6, "table", '| & |\n|---|\n| " |'),
        (("R&D",), 10, "prose", "end &"),
    ]


@pytest.mark.parametrize("line", ["&", "&amp", "` `` ", "\\", "    &amp;\n"])
def test_references_of_markdown_are_read_in_linear_time(line: str) -> None:  # else this runs for minutes
    markdown = line * 100_000
    assert reading(markdown, "a.md").text == markdown


def test_headings_of_markdown_may_be_html() -> None:
    markdown = (
        '<h1 align="center">\n  <img src="logo.svg">\n  The&nbsp;Guide\n</h1>\n\nintro\n\n'
        "<H2>Install</H2>\ntext\n\n<h1><img></h1>\n\n<h3>open\n"
    )
    document = reading(markdown, "a.md")
    assert document.title == "The Guide"
    assert [(part.line, part.heading) for part in document.parts] == [
        (1, ("The Guide",)),
        (8, ("The Guide", "Install")),
    ]


@pytest.mark.parametrize("line", ["*", "`", "<a", "[", "*a", "`a``", "a* "])
def test_a_title_of_marks_is_read_in_linear_time(line: str) -> None:  # else this runs for minutes
    markdown = f"# {line * 20_000}\n"
    assert reading(markdown, "a.md").text == markdown


@pytest.mark.parametrize("line", ["---\ntitle: a{}b\n---\n", "a|b\n|-{}x\n", "a|b\n{}|\n", "a|b\n-{}|{}-{}x\n"])
def test_a_markdown_line_of_blanks_is_read_in_linear_time(line: str) -> None:  # else this runs for minutes
    markdown = line.replace("{}", " " * 300_000)
    assert reading(markdown, "a.md").text == markdown


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


@pytest.mark.parametrize(
    ("markup", "title"),
    [
        (":mod:`!abc` --- Abstract *Base* Classes", "abc --- Abstract Base Classes"),
        (":class:`Box` and :py:meth:`the lid <Box.lid>`", "Box and the lid"),
        ("See `the guide <https://x.y>`_, `News`__ and ``a<b>``", "See the guide, News and a<b>"),
        ("Ratio 1:2 of `x", "Ratio 1:2 of x"),
    ],
)
def test_a_title_of_restructured_text_is_what_a_page_shows(markup: str, title: str) -> None:
    assert reading(f"{markup}\n{'=' * 60}\n\ntext\n", "a.rst").parts[0].heading == (title,)


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
        *[(("cp(1)", "SYNOPSIS", 'Some "quoted" options'), line) for line in (12, 14, 17)],  # two items below it
    ]


DOCBOOK = """.TH "FOO" 1
.SH "OPTIONS"
.PP
\\fB\\-a\\fR, \\fB\\-\\-all\\fR
.RS 4
Show all\\&.
.sp
Which are:
.sp
.RS 4
.ie n \\{\\
\\h'-04'\\(bu\\h'+03'\\c
.\\}
.el \\{\\
.sp -1
.IP \\(bu 2.3
.\\}
the hidden ones
.RE
.RE
.PP
\\fB\\-b\\fR
.RS 4
.ie t \\{\\
On paper
.\\}
.el \\{\\
On a terminal
.\\}
.RE
"""


def test_a_list_has_its_marker_once_and_each_option_is_a_part() -> None:
    document = reading(DOCBOOK, "foo.1")
    assert [line for line in document.text.split("\n") if line] == [
        *("foo(1)", "OPTIONS", "-a, --all", "Show all.", "Which are:", "• the hidden ones", "-b", "On a terminal"),
    ]
    assert [(heading[-1], line) for heading, line, *_ in outline(document)] == [
        *(("foo(1)", 1), ("OPTIONS", 2), ("OPTIONS", 4), ("OPTIONS", 22)),
    ]
    unclosed = reading(".TH FOO 1\n.if t \\{\n.SH NAME\nfoo\n", "foo.1")
    assert unclosed.text.split("\n") == ["foo(1)", "", "NAME", "foo", ""]


TABLE = """.TH FOO 5
.TS
allbox tab(:);
lB lB.
T{
Path
T}:T{
Meaning
T}
.T&
l l
l l.
T{
/etc
T}:T{
Files: of the system
T}
_
/run:T{
Files of now
T}:x
a::b
.TE
One: two
"""


def test_cells_of_a_table_are_kept_apart() -> None:
    text = reading(TABLE, "foo.5").text
    assert [line for line in text.split("\n")[1:] if line] == [
        *("Path", "|", "Meaning", "/etc", "|", "Files: of the system", "/run |", "Files of now", "| x", "a |  | b"),
        "One: two",
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


def test_an_org_title_has_no_links_and_no_signs_of_code() -> None:
    text = "#+TITLE: The [[https://x.y/a][site]] of =org-mode=\n* TODO See [[id:1][this note]] or [[file:a.org]]\na\n* ~max_size~ = 3, a=b=c\nb\n"
    document = reading(text, "a.org")
    assert document.title == "The site of org-mode"
    assert [part.heading for part in document.parts][1:] == [
        ("See this note or file:a.org",), ("max_size = 3, a=b=c",),
    ]  # fmt: skip


def test_asciidoc_sections_and_blocks() -> None:
    document = reading("= Book\n\n== One\n----\n== no\n----\n|===\n|a\n|===\n", "a.adoc")
    assert [(part.heading, part.kind) for part in document.parts] == [
        (("Book",), "prose"), (("Book", "One"), "prose"), (("Book", "One"), "code"), (("Book", "One"), "table"),
    ]  # fmt: skip


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


@pytest.mark.parametrize("above", ["[[OPTIONS]]", "[#options.wide]", "ifdef::manual[]", ":toc: left", "// a note"])
def test_an_underlined_title_of_asciidoc_may_stand_below_its_anchor(above: str) -> None:
    document = reading(f"Book\n====\n\nA\n\n{above}\nOPTIONS\n-------\n`text`\n^^^^^^\nx\n\n== Two\ny\n", "a.adoc")
    assert [(part.heading[1:], part.kind) for part in document.parts] == [
        ((), "prose"), (("OPTIONS",), "prose"), (("OPTIONS", "text"), "prose"), (("Two",), "prose"),
    ]  # fmt: skip


def test_a_line_below_a_paragraph_of_asciidoc_begins_a_block() -> None:
    document = reading("= Book\n\nlines of a\nparagraph\n---------\n== code\n---------\nAfter\n-----\nz\n", "a.adoc")
    assert [(part.heading[1:], part.kind) for part in document.parts] == [
        ((), "prose"), ((), "code"), (("After",), "prose"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asciidoc", "title"),
    [
        ("[[web.oauth2]][[web.saml]]OAuth2 (((sign in)))", "OAuth2"),
        ("The \"`main`\" Method and '`x`'", "The “main” Method and ‘x’"),
        ('Boot image:https://x.y/badge.svg?a=b["Build Status", link="https://x.y"]', "Boot Build Status"),
        (
            "See https://x.y/z[the site], xref:a.adoc#b[], <<id,there>> and <<id>>",
            "See the site, a.adoc#b, there and id",
        ),
    ],
)
def test_an_asciidoc_title_is_what_a_page_shows(asciidoc: str, title: str) -> None:
    assert reading(f"= {asciidoc}\n", "a.asc").title == title


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"G\"odel, Schr\"{o}dinger and {\"O}sterreich", "Gödel, Schrödinger and Österreich"),
        (
            r"Erd\H{o}s, Ho\v{r}ava, Fran\c cois, Mart\'{\i}nez, Mar\'\i a, S\~ao",
            "Erdős, Hořava, François, Martínez, María, São",
        ),
        (r"Stra{\ss}e, \O ystein, Stra\ss{}e, {\L}ukasz", "Straße, Øystein, Straße, Łukasz"),
        (r"R\&D at 5\,\% of max\_size, Donald~E. Knuth", "R&D at 5 % of max_size, Donald E. Knuth"),
        (r"dis\-cre\-tion and \~{}x", "discretion and ~x"),
        (r"a {B}ayesian {DNA} \textbf{A}bc", r"a Bayesian {DNA} \textbf{A}bc"),
        (
            r"\url{http://x.y/~me\_a}, \verb|a~b\_c|, $\v{s}~\_$, a\\",
            r"\url{http://x.y/~me\_a}, \verb|a~b\_c|, $\v{s}~\_$, a\\",
        ),
        (r"\v{x} \'\alpha \copyright \c{and}", r"\v{x} \'\alpha \copyright \c{and}"),
    ],
)
def test_accents_and_escaped_signs_of_latex_are_letters(latex: str, text: str) -> None:
    document = reading(f"{latex}\n\\begin{{verbatim}}\n{latex}\n\\end{{verbatim}}\nend\n", "a.tex")
    assert document.text == f"{text}\n\\begin{{verbatim}}\n{latex}\n\\end{{verbatim}}\nend\n"
    assert [document.text[part.start :][:3] for part in document.parts][2:] == ["end"]


def test_a_class_file_of_another_language_than_latex_stays_as_it_is() -> None:
    source = "public class A {\n  @isTest static void b() {\n    String s = 'It\\'s ~ \\_';\n  }\n}\n"
    assert reading(source, "A.cls").text == source


@pytest.mark.parametrize(
    ("latex", "title"),
    [
        (r"\texorpdfstring{$\Sigma$}{Σ}-types \label{x}", "Σ-types"),
        (r"Erd\H{o}s and \texttt{max\_size}:\\ \emph{non}linear {\bf bold}", "Erdős and max_size: nonlinear bold"),
        (r"A\quad B\thanks{To C}", "A B"),
    ],
)
def test_a_title_of_latex_is_what_a_page_shows(latex: str, title: str) -> None:
    assert reading(f"\\title{{{latex}}}\n\\section{{{latex}}}\nx\n", "a.tex").title == title
    assert reading(f"\\section{{{latex}}}\nx\n", "a.tex").parts[0].heading == (title,)


def test_a_section_in_a_comment_of_latex_is_none() -> None:
    document = reading("\\section{A}\n\\begin{comment}\n\\section{no}\n\\end{comment}\ny\n", "a.tex")
    assert {part.heading for part in document.parts} == {("A",)}


def test_a_listing_of_latex_may_end_on_its_line() -> None:
    text = "\\section{A}\n\\begin{verbatim}x\\end{verbatim}\ny\n\\section{B}\nz\n"
    document = reading(text, "a.tex")
    assert [(part.heading, part.kind) for part in document.parts] == [
        (("A",), "prose"),
        (("A",), "code"),
        (("A",), "prose"),
        (("B",), "prose"),
    ]


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=".'\\\"[](){}THSDtshfBIRPexNmOplFde*u0gE \n", max_size=300))
def test_a_manual_page_has_the_lines_of_its_file_whatever_is_in_it(soup: str) -> None:
    document = reading(f".TH A 1\n{soup}", "a.1")
    assert document.text.count("\n") == soup.count("\n") + 1
    for part in document.parts:
        assert part.line == document.text.count("\n", 0, part.start) + 1
