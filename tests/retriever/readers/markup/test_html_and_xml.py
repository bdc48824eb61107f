"""HTML and XML: what a browser shows, with the lines of the source."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binocle.core.errors import UnreadableError
from binocle.retriever.documents.document import LineCounter
from binocle.retriever.readers import read

from ..sample_files import HTML, RSS, outline, reading


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


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<ol><li>a<li><p>b</p><p>c</p></ol>", "1. a\n\n2. b\n\nc"),
        ("<ol start=9 type=A><li>a<li value=4>b<li>c</ol>", "I. a\nD. b\nE. c"),
        ("<ol type=i><li>a<ol><li>b</ol><ul><li>c</ul><li><li>d</ol>", "i. a\n1. b\nc\niii. d"),
        ("<ul><li>a<ol><li>b</ol><li>c</ul>", "a\n1. b\nc"),
        ("<ol><li style='display:none'>a<li>b<li><pre>c</pre><li>d</ol>", "1. b\n\nc\n\n3. d"),
        ("<table><tr><td><ol><li>a<li>b</ol><td>c</table>", "1. a / 2. b | c"),
        ("<nav><ol><li>a</ol></nav>", "a"),
        ("<ol style='list-style: none'><li>a</ol>", "a"),
        ("<ol reversed><li>a</ol></ol><li>b", "a\n\nb"),
    ],
)
def test_items_of_an_ordered_list_have_the_numbers_that_a_browser_shows(source: str, text: str) -> None:
    assert reading(source, "a.html").text == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<p><a>python</a><a>search</a>", "python search"),
        ("<p><span><a>python</a></span><span><a>search</a></span>", "python search"),
        ("<button>Yes</button><button>No</button>", "Yes No"),
        ("<p><a>work</a>ing<a>s</a>", "workings"),
        ("<p><a>a</a><p>b<a>c</a>", "a\n\nbc"),
        ("<pre><a>def</a> <a>f</a>", "def f"),
    ],
)
def test_links_that_follow_each_other_are_words_apart(source: str, text: str) -> None:
    assert reading(source, "a.html").text == text


def test_the_heading_of_an_item_has_no_number_in_its_path() -> None:
    document = reading("<ol>\n<li><h2>Oil</h2>Change it.</ol>", "a.html")
    assert outline(document) == [(("Oil",), 2, "prose", "1. Oil"), (("Oil",), 2, "prose", "Change it.")]


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


@pytest.mark.parametrize(
    ("first", "rows", "names"),
    [
        ("<tr><th>Name<th>Town</tr>", 40, ("Name, Town",)),
        ("<thead><tr><th>Name</th><th>Town</th></tr></thead><tbody>", 40, ("Name, Town",)),
        ("<tr><th>Name<th>Town</tr>", 9, ()),  # a short table is one passage, with its first row
        ("<tr><th>Name<td>Town</tr>", 40, ()),
        ("<tr><td>Ann<td>Bern</tr><tr><th>Name<th>Town</tr>", 40, ()),
    ],
)
def test_rows_far_down_an_html_table_have_the_names_of_its_columns(
    first: str, rows: int, names: tuple[str, ...]
) -> None:
    body = "".join(f"\n<tr><td>Ann {number}<td>Bern and Basel</tr>" for number in range(rows))
    document = reading(f"<h1>Top</h1><p>before<table>{first}{body}\n</table><p>after", "a.html")
    assert {part.heading for part in document.parts if part.kind == "table"} == {("Top", *names)}
    texts = [document.text[part.start : part.end] for part in document.parts if part.kind == "prose"]
    assert texts == ["Top", "before", "after"]


def test_text_between_the_rows_of_a_table_stays_there() -> None:
    source = "<table><tr><th>a<tr><td>b</tr><div>c</div><table><tr><td>d</table><tr><td>e</table>f"
    assert reading(source, "a.html").text.split() == list("abcdef")


def test_an_empty_cell_of_an_html_table_keeps_its_place() -> None:
    source = "<table><tr><th>Name<th>Q1<th>Q2</tr><tr><td>Ann<td><td>5</tr><tr><td>Bob<td>7<td></tr><tr><td><td>8</tr></table>"
    assert reading(source, "a.html").text == "Name | Q1 | Q2\nAnn |  | 5\nBob | 7\n | 8"


def test_line_numbers_beyond_65535_are_right() -> None:
    document = reading("<p>a</p>" + "\n" * 70_000 + "<p>b</p>", "a.html")
    assert [part.line for part in document.parts] == [1, 70_001]


@pytest.mark.thorough
@pytest.mark.parametrize("nest", ["<div>", "<table><tr><td>", "<ul><li>", "<b>", "<h1>", "<pre>", "<svg>"])
def test_html_nested_a_hundred_thousand_deep_is_read(nest: str) -> None:
    assert "deep" in reading(nest * 100_000 + "deep", "a.html").text


@pytest.mark.parametrize(
    "piece", ["<a ", "<!--", "<!-->", "<![CDATA[", "</", '<a b="', "<!", "&#", "<a b=", "<title>", "<script>", "<"]
)
def test_broken_html_is_read_in_linear_time(piece: str) -> None:  # else this runs for minutes
    document = reading(piece * 100_000, "a.html")
    assert document.text == (piece * 100_000 if piece in {"&#", "<"} else "")


@pytest.mark.parametrize("piece", ["<!--", "<!--<a>", "</a>&b;<!--"])
def test_broken_xml_is_read_in_linear_time(piece: str) -> None:  # else this runs for minutes
    document = reading("<?xml version='1.0'?><a>text &b;" + piece * 100_000, "a.xml")
    assert document.text.startswith("text")


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


def test_entities_of_another_file_are_read_by_their_names() -> None:
    source = "<a><p>A &catch; block in &php.ini; is &null; <!-- &a; --></p><c><![CDATA[x = &y; z]]></c></a>"
    document = reading(source, "a.xml")
    assert document.text == "A catch block in php.ini is null\n\nx = &y; z"
    assert document.metadata == {}


DOCBOOK = """<refentry>
<refnamediv><refname>preg_match</refname>
<refpurpose>Match a pattern</refpurpose></refnamediv>
<refsect1>
 &reftitle.description;
 <para>It returns &true;.</para>
 <note><simpara>Be careful.</simpara></note>
</refsect1>
<refsect1><title>Examples</title>
 <example><title>Finding</title>
  <programlisting>
<![CDATA[
if (a)
    b();
]]>
  </programlisting>
  &outputs;
  <screen>1</screen>
 </example>
</refsect1>
</refentry>
"""


def test_pages_of_docbook_have_headings_paragraphs_and_listings() -> None:
    document = reading(DOCBOOK, "a.xml")
    assert document.title == "preg_match"
    assert outline(document) == [
        (("preg_match",), 2, "prose", "preg_match"),
        (("preg_match",), 3, "prose", "Match a pattern\n\nreftitle.description"),
        (("preg_match",), 6, "prose", "It returns true."),
        (("preg_match",), 7, "prose", "Be careful."),
        (("preg_match", "Examples"), 9, "prose", "Examples"),
        (("preg_match", "Examples"), 10, "prose", "Finding"),
        (("preg_match", "Examples"), 13, "code", "if (a)\n    b();"),
        (("preg_match", "Examples"), 17, "prose", "outputs"),
        (("preg_match", "Examples"), 18, "code", "1"),
    ]


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


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="<>/=\"'! -pbrtdhliua1&;x\n", max_size=200))
def test_random_tags_give_the_letters_between_them_in_order_and_once(soup: str) -> None:
    letters = iter(soup)
    text = reading(soup, "a.html").text
    assert all(letter in letters for letter in text if letter.isascii() and letter.isalnum())
    if not set(soup) & set("<&"):
        assert text.split() == soup.split()


@pytest.mark.parametrize("rows", [3, 40])
def test_rows_far_down_a_table_of_an_article_have_the_names_of_its_columns(rows: int) -> None:
    body = "".join(f"<tr><td>Ann {number}</td><td>Bern and Basel</td></tr>\n" for number in range(rows))
    head = "<thead><tr><th>Name</th><th>Home <b>town</b></th></tr></thead>"
    source = f"<article><body><sec><title>Top</title><p>a</p><table>{head}<tbody>{body}</tbody></table><p>b</p></sec></body></article>"
    document = reading(source, "a.xml")
    names = ("Name, Home town",) if rows == 40 else ()
    assert {(part.kind, part.heading) for part in document.parts} == {("prose", ("Top",)), ("table", ("Top", *names))}


def test_formulas_of_an_article_are_read_once() -> None:
    math = '<m:math xmlns:m="http://www.w3.org/1998/Math/MathML"><m:msup><m:mi>x</m:mi><m:mn>2</m:mn></m:msup></m:math>'
    document = r"\documentclass[12pt]{minimal} \usepackage{amsmath} \begin{document}$$x^{2}$$\end{document}"
    lines = [
        r"<p>where <inline-formula><tex-math>$\mu (t)$</tex-math></inline-formula> is</p>",
        f"<p>and <alternatives><tex-math>{document}</tex-math>{math}</alternatives> too</p>",
        f"<disp-formula>{math}</disp-formula>",
        r"<disp-formula><label>(1)</label><tex-math><![CDATA[$$\begin{eqnarray*} a<b \end{eqnarray*}$$]]></tex-math></disp-formula>",
        f"<disp-formula><tex-math>{document}</tex-math></disp-formula>",
    ]
    text = reading("<article><body>\n" + "\n".join(lines) + "\n</body></article>", "a.xml").text
    assert text.split("\n") == ["where \\mu (t) is", "", "and x^2 too", "x^2", "(1) a<b", "x^{2}"]


@pytest.mark.parametrize(
    ("source", "is_damaged"),
    [
        ("<a><p>one &nbsp; two</p></a>", False),
        ("<a><!-- a long comment > with signs --><p>salt & pepper, and more words</p></a>", False),
        ("<a><p>one two</p></b><p>three four five six</p>", True),
    ],
)
def test_xml_that_is_damaged_says_so_if_text_is_lost(source: str, is_damaged: bool) -> None:
    unread = reading(source, "a.xml").metadata.get("unread", "")
    assert unread.startswith("damaged XML: ") is is_damaged
