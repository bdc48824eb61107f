"""Office files: what a person sees, by section, slide or sheet, and the cost of hostile files."""

from __future__ import annotations

import io
import re
import struct
import tracemalloc
import zipfile
from html import escape
from typing import TYPE_CHECKING

import pytest
from lxml import etree

from binocle.core.errors import UnreadableError
from binocle.retriever.readers import read
from binocle.retriever.readers.office import drawingml
from binocle.retriever.readers.office import package as package_limits
from binocle.retriever.readers.office.xlsx import read_xls

from ..sample_files import (
    ODF,
    STRICT,
    STYLES,
    TYPES,
    W,
    docx,
    odf,
    outcome,
    outline,
    p,
    package,
    reading,
    relations,
    xlsx,
)

if TYPE_CHECKING:
    from binocle.retriever.documents.document import Document


CUT = "the file is cut, and its end is missing"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (docx(p("kept")), "a.docx"),
        (odf("text", "<text:p>kept</text:p>"), "a.odt"),
        (xlsx('<row><c t="inlineStr"><is><t>kept</t></is></c></row>'), "a.xlsx"),
    ],
)
def test_an_office_file_without_its_end_gives_the_parts_that_are_whole(data: bytes, name: str) -> None:
    directory = data.index(b"PK\1\2")
    for end in (directory, directory + 9, len(data) - 1):
        document = reading(data[:end], name)
        assert (document.text, document.metadata["unread"]) == ("kept", CUT)
    assert outcome(data[:20], name).startswith("damaged: not a whole ZIP file")
    assert "\n" not in outcome(data[: directory // 2], name)


def test_a_part_at_the_cut_is_damaged_and_words_behind_it_are_missing() -> None:
    data = docx(p("kept") + p("x", '<w:pStyle w:val="T"/>'), styles=STYLES + " " * 9_000)
    cut = data[: data.index(b"word/styles.xml") + 60]
    document = reading(cut, "a.docx")
    assert document.text.startswith("kept")
    assert document.metadata["unread"] == f"{CUT}; 'word/styles.xml' inside is damaged"


def test_a_part_of_a_cut_file_unpacks_within_limits_and_not_with_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    data = docx(p("a" * 5_000))[:-1]
    monkeypatch.setattr(package_limits, "MAX_INFLATED", 2_000)
    assert outcome(data, "a.docx").startswith("it unpacks to more than")
    secret = bytearray(data)
    for place in re.finditer(b"PK\3\4", data):
        secret[place.start() + 6] |= 1
    assert outcome(bytes(secret), "a.docx") == "password-protected"


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


def item(text: str, numbers: str = "", style: str = "") -> str:
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{named}{numbers}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def at(number: int | str, level: int | str = 0) -> str:
    return f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'


def level(number: int, form: str, pattern: str, more: str = "") -> str:
    return f'<w:lvl w:ilvl="{number}"><w:start w:val="1"/><w:numFmt w:val="{form}"/><w:lvlText w:val="{pattern}"/>{more}</w:lvl>'


LISTS = "".join(
    f'<w:abstractNum w:abstractNumId="{name}">{levels}</w:abstractNum>'
    for name, levels in {
        "clauses": level(0, "decimal", "Article %1", '<w:pStyle w:val="Clause"/>')
        + level(1, "decimal", "%1.%2")
        + level(2, "lowerLetter", "(%3)"),
        "letters": level(0, "upperLetter", "%1.") + level(1, "lowerRoman", "%1.%2)") + level(2, "decimal", "%1.%2.%3", "<w:isLgl/>"),
        "bullets": level(0, "bullet", "•") + level(1, "decimalZero", "%1%2", '<w:lvlRestart w:val="0"/>'),
        "linked": '<w:numStyleLink w:val="Clause"/>',
    }.items()
) + "".join(
    f'<w:num w:numId="{number}"><w:abstractNumId w:val="{name}"/>{more}</w:num>'
    for number, name, more in (
        (1, "clauses", ""),
        (2, "letters", ""),
        (3, "bullets", ""),
        (4, "letters", ""),
        (5, "letters", '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="4"/></w:lvlOverride>'),
        (6, "linked", ""),
        (7, "clauses", f'<w:lvlOverride w:ilvl="0">{level(0, "ordinal", "No. %1")}</w:lvlOverride>'),
        (8, "nowhere", ""),
    )
)  # fmt: skip
LIST_STYLES = (
    f'<w:style w:styleId="Clause"><w:name w:val="heading 1"/><w:pPr>{at(1)}</w:pPr></w:style>'
    '<w:style w:styleId="Sub"><w:basedOn w:val="Clause"/><w:pPr><w:numPr><w:ilvl w:val="1"/></w:numPr><w:outlineLvl w:val="1"/></w:pPr></w:style>'
)


@pytest.mark.parametrize(
    ("paragraphs", "lines"),
    [
        ((item("a", at(1)), item("b", at(1, 1)), item("c", at(1, 2)), item("d", at(1, 2)), item("e", at(1, 1)), item("f", at(1)), item("g", at(1, 1))),
         ("Article 1 a", "1.1 b", "(a) c", "(b) d", "1.2 e", "Article 2 f", "2.1 g")),
        ((item("a", style="Clause"), item("b", style="Sub"), item("c", at(0), "Clause"), item("d", style="Clause")),
         ("Article 1 a", "1.1 b", "c", "Article 2 d")),
        ((item("a", at(2)), item("b", at(2, 1)), item("c", at(2, 2)), item("d", at(4))), ("A. a", "A.i) b", "1.1.1 c", "B. d")),
        ((item("a", at(2)), item("b", at(5)), item("c", at(5))), ("A. a", "D. b", "E. c")),
        ((item("a", at(3)), item("b", at(3, 1)), item("c", at(3)), item("d", at(3, 1))), ("a", "01 b", "c", "02 d")),
        ((item("a", at(6)), item("b", at(7)), item("c", at(8)), item("d", at(9)), item("e", at("x", "y"))), ("Article 1 a", "No. 1 b", "c", "d", "e")),
        ((item("a", at(1)), item("", at(1)), item("c", at(1))), ("Article 1 a", "Article 3 c")),
        (tuple(item("a", at(2)) for _ in range(28)), (*(f"{letter}. a" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), "AA. a", "BB. a")),
    ],
)  # fmt: skip
def test_paragraphs_of_a_docx_have_the_numbers_that_word_shows(
    paragraphs: tuple[str, ...], lines: tuple[str, ...]
) -> None:
    data = docx("".join(paragraphs), numbering=LISTS, styles=LIST_STYLES)
    assert [line for line in reading(data, "a.docx").text.split("\n") if line] == list(lines)


def test_numbers_of_a_docx_stand_in_headings_and_in_tables() -> None:
    cells = f"<w:tc>{item('b', style='Sub')}</w:tc><w:tc>{item('c')}</w:tc>"
    body = item("a", style="Clause") + f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>" + item("d", style="Sub")
    document = reading(docx(body, numbering=LISTS, styles=LIST_STYLES), "a.docx")
    assert [(part.heading, document.text[part.start : part.end]) for part in document.parts] == [
        (("Article 1 a",), "Article 1 a"),
        (("Article 1 a",), "1.1 b | c"),
        (("Article 1 a", "1.2 d"), "1.2 d"),
    ]


@pytest.mark.parametrize(
    ("table", "row", "columns", "names"),
    [
        ("", "<w:trPr><w:tblHeader/></w:trPr>", 2, ("Name 0, Name 1",)),
        ("", '<w:trPr><w:tblHeader w:val="0"/></w:trPr>', 3, ()),
        ('<w:tblLook w:val="0000" w:firstRow="1"/>', "", 3, ("Name 0, Name 1, Name 2",)),
        ('<w:tblLook w:val="04A0" w:firstRow="0"/>', "", 3, ()),
        ('<w:tblLook w:val="04A0"/>', "", 3, ("Name 0, Name 1, Name 2",)),
        ('<w:tblLook w:val="0480"/>', "", 3, ()),
        ('<w:tblLook w:val="04A0"/>', "", 2, ()),  # names and values
    ],
)
def test_rows_far_down_a_table_in_docx_have_the_names_of_its_columns(
    table: str, row: str, columns: int, names: tuple[str, ...]
) -> None:
    def line(words: str) -> str:
        return "".join(f"<w:tc>{p(f'{words} {number}')}</w:tc>" for number in range(columns))

    rows = "".join(f"<w:tr>{line(f'of {number} values')}</w:tr>" for number in range(40))
    body = f"<w:tbl><w:tblPr>{table}</w:tblPr><w:tr>{row}{line('Name')}</w:tr>{rows}</w:tbl>"
    (part,) = reading(docx(body), "a.docx").parts
    assert part.heading == names


def test_rows_far_down_a_table_in_odt_have_the_names_of_its_columns() -> None:
    def row(*words: str) -> str:
        return f"<table:table-row>{''.join(f'<table:table-cell><text:p>{word}</text:p></table:table-cell>' for word in words)}</table:table-row>"

    rows = "".join(row(f"Ann {number}", "Bern and Basel") for number in range(40))
    header = f"<table:table-header-rows>{row('Name', 'Town')}</table:table-header-rows>"
    for content, names in ((header + rows, ("Name, Town",)), (row("Name", "Town") + rows, ()), (header + row("a"), ())):
        (part,) = reading(odf("text", f"<table:table>{content}</table:table>"), "a.odt").parts
        assert part.heading == names


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


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("<w:checkBox><w:default w:val='0'/></w:checkBox>", "☐"),
        ("<w:checkBox><w:default w:val='1'/></w:checkBox>", "☒"),
        ("<w:checkBox><w:default w:val='0'/><w:checked w:val='1'/></w:checkBox>", "☒"),
        ("<w:checkBox><w:default w:val='1'/><w:checked w:val='0'/></w:checkBox>", "☐"),
        ("<w:ddList><w:listEntry w:val='red'/><w:listEntry w:val='blue'/></w:ddList>", "red"),
        ("<w:ddList><w:result w:val='1'/><w:listEntry w:val='red'/><w:listEntry w:val='blue'/></w:ddList>", "blue"),
        ("<w:ddList><w:result w:val='9'/><w:listEntry w:val='red'/></w:ddList>", ""),
    ],
)
def test_a_field_of_an_old_form_in_docx_shows_its_state(field: str, shown: str) -> None:
    begin = f"<w:r><w:fldChar w:fldCharType='begin'><w:ffData>{field}</w:ffData></w:fldChar></w:r>"
    data = docx(f"<w:p><w:r><w:t>State:</w:t></w:r>{begin}<w:r><w:t>.</w:t></w:r></w:p>")
    assert reading(data, "a.docx").text == f"State:{shown}."


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


def test_paragraphs_of_a_pptx_have_the_numbers_that_powerpoint_shows() -> None:
    def line(text: str, kind: str = "", level: int = 0, start: str = "") -> str:
        bullet = f'<a:buAutoNum type="{kind}"{start}/>' if kind else ""
        return f'<a:p><a:pPr lvl="{level}">{bullet}</a:pPr><a:r><a:t>{text}</a:t></a:r></a:p>'

    lines = (
        line("a", "arabicPeriod") + line("b", "alphaLcParenR", 1) + line("c", "alphaLcParenR", 1) + line("d", level=1)
        + line("", "arabicPeriod") + line("e", "arabicPeriod") + line("f", "romanUcParenBoth", start=' startAt="4"')
        + line("g") + line("h", "arabicPlain")
    )  # fmt: skip
    shapes = etree.fromstring(f'<x xmlns:a="a"><a:txBody>{lines}</a:txBody><a:txBody>{lines}</a:txBody></x>')
    assert list(drawingml.paragraphs(shapes)) == ["1. a", "a) b", "b) c", "d", "2. e", "(IV) f", "g", "1 h"] * 2


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


def test_xlsx_rows_are_lines_and_cells_are_shown_as_people_see_them() -> None:
    rows = (
        '<row><c t="s"><v>0</v></c><c t="s"><v>1</v></c><c t="inlineStr"><is><t>own</t></is></c></row><row><c/></row>'
        '<row><c><v>0.30000000000000004</v></c><c s="1"><v>45000</v></c><c s="2"><v>45000.5</v></c><c t="b"><v>1</v></c><c t="e"><v>#N/A</v></c></row>'
    )
    document = reading(xlsx(rows), "a.xlsx")
    assert document.text == "shared\tin runs\town\n0.3\t2023-03-15\t2023-03-15 12:00:00\tTRUE\t#N/A"
    assert [(part.page, part.heading, part.kind) for part in document.parts] == [(1, ("Ducks",), "table")]


@pytest.mark.parametrize("number", ["2", "3", "-1", "x"])
def test_a_cell_that_names_no_shared_string_is_empty(number: str) -> None:
    row = f'<row><c t="s"><v>1</v></c><c t="s"><v>{number}</v></c><c><v>7</v></c></row>'
    assert reading(xlsx(row), "a.xlsx").text == "in runs\t\t7"


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


def test_percentages_in_xlsx_are_shown_as_such() -> None:
    codes = ("0.0%;[Red]-0.0%", '"%" 0', "0\\%", "# ?/?", "0.00000000000000000000%")
    forms = "".join(
        f'<numFmt numFmtId="{170 + number}" formatCode="{escape(code)}"/>' for number, code in enumerate(codes)
    )
    formats = "".join(f'<xf numFmtId="{number}"/>' for number in (9, 10, *range(170, 170 + len(codes))))
    namespace = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    styles = f"<styleSheet {namespace}><numFmts>{forms}</numFmts><cellXfs>{formats}</cellXfs></styleSheet>"
    values = (
        (0, "0.145"),
        (1, "0.1250000000000001"),
        (2, "-1E-3"),
        (3, "0.5"),
        (4, "0.5"),
        (5, "0.5"),
        (0, "many"),
        (0, "1E300"),
        (0, "NaN"),
        (6, "1"),
    )
    cells = "".join(f'<c s="{style}"><v>{value}</v></c>' for style, value in values)
    shown = reading(xlsx(f"<row>{cells}</row>", **{"xl/styles.xml": styles}), "a.xlsx").text.split("\t")
    assert shown == ["15%", "12.50%", "-0.1%", "0.5", "0.5", "0.5", "many", "1E300", "NaN", "100.000000000000%"]


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


_ODF_STYLES = (
    '<text:list-style text:name="L"><text:list-level-style-number text:level="1" text:num-format="1" text:num-suffix="."/>'
    '<text:list-level-style-number text:level="2" text:num-format="a" text:num-prefix="(" text:num-suffix=")"/>'
    '<text:list-level-style-number text:level="3" text:num-format="1" text:display-levels="3" text:start-value="5"/>'
    '<text:list-level-style-bullet text:level="4"/></text:list-style>'
)


def odf_list(*items: str, more: str = "") -> str:
    inside = "".join(
        item if item.startswith("<text:list-") else f"<text:list-item>{item}</text:list-item>" for item in items
    )
    return f"<text:list{more}>{inside}</text:list>"


@pytest.mark.parametrize(
    ("lists", "lines"),
    [
        ([odf_list("A", "B"), odf_list("C")], ["1. A", "2. B", "1. C"]),
        ([odf_list("A"), "B", odf_list("C", more=' text:continue-numbering="true"')], ["1. A", "B", "2. C"]),
        ([odf_list("A"), odf_list("B"), odf_list("C", more=' text:continue-list="id0"')], ["1. A", "1. B", "2. C"]),
        ([odf_list("A" + odf_list("B", "C" + odf_list("D")), "E" + odf_list("F"))],
         ["1. A", "(a) B", "(b) C", "1.b.5 D", "2. E", "(a) F"]),
        ([odf_list(odf_list("A"), "B")], ["(a) A", "1. B"]),
        ([odf_list(odf_list(odf_list(odf_list("A"))))], ["A"]),
        ([odf_list("<text:list-header>A</text:list-header>", "B")], ["A", "1. B"]),
        ([odf_list('<text:list-item text:start-value="7">A</text:list-item>', "B")], ["7. A", "8. B"]),
        ([odf_list("AA", "B")], ["1. A", "A", "2. B"]),
    ],
)  # fmt: skip
def test_items_of_an_odt_have_the_numbers_that_its_program_shows(lists: list[str], lines: list[str]) -> None:
    body = "".join(
        item.replace("<text:list", f'<text:list text:style-name="L" text:id="id{number}"', 1)
        for number, item in enumerate(lists)
    )
    body = re.sub(
        r"(?<=>)[A-F]+(?=<)", lambda match: "".join(f"<text:p>{letter}</text:p>" for letter in match[0]), body
    )
    assert reading(odf("text", _ODF_STYLES + body), "a.odt").text.split() == " ".join(lines).split()


def test_headings_of_an_odt_have_the_numbers_of_its_outline() -> None:
    def heading(text: str, level: int, more: str = "") -> str:
        return f'<text:h text:outline-level="{level}"{more}>{text}</text:h>'

    body = (
        heading("A", 1)
        + heading("B", 2)
        + heading("C", 2)
        + heading("D", 1, ' text:is-list-header="true"')
        + heading("E", 1)
    )
    data = odf("text", body)
    styles = (
        f'<x {ODF}><text:outline-style><text:outline-level-style text:level="1" text:num-format="I"/>'
        '<text:outline-level-style text:level="2" text:num-format="1" text:display-levels="2"/></text:outline-style></x>'
    )
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    document = reading(package({**files, "styles.xml": styles}), "a.odt")
    assert [part.heading for part in document.parts] == [
        ("I A",), ("I A", "I.1 B"), ("I A", "I.2 C"), ("D",), ("II E",),
    ]  # fmt: skip
    assert document.text.split("\n\n") == ["I A", "I.1 B", "I.2 C", "D", "II E"]


def test_cells_of_an_ods_stand_in_their_columns_and_as_often_as_they_are_repeated() -> None:
    def cell(text: str, times: int = 1) -> str:
        said = f"<text:p>{text}</text:p>" if text else ""
        return f'<table:table-cell table:number-columns-repeated="{times}">{said}</table:table-cell>'

    rows = (cell("", 2) + cell("May"), cell("Rent") + cell("500", 2) + cell("", 1000))
    body = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    sheet = odf("spreadsheet", f'<table:table table:name="S">{body}</table:table>')
    assert reading(sheet, "a.ods").text == "\t\tMay\nRent\t500\t500"


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<mi>E</mi><mo>=</mo><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup>", "E=mc^2"),
        ("<mfrac><mrow><mo>-</mo><mi>b</mi></mrow><mrow><mn>2</mn><mo>\u2062</mo><mi>a</mi></mrow></mfrac>", "-b/2a"),
        ('<mfrac linethickness="0"><mi>n</mi><mi>k</mi></mfrac>', "n¦k"),
        ('<mfrac linethickness="0pt"><mi>n</mi><mi>k</mi></mfrac>', "n¦k"),
        ("<msqrt><mi>a</mi><mo>+</mo><mi>b</mi></msqrt>", "√(a+b)"),
        ("<mroot><mi>x</mi><mn>3</mn></mroot>", "√(3&x)"),
        ("<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi>", "∑_(i=1)^n i"),
        ("<msubsup><mrow><mi>x</mi><mo>+</mo><mi>y</mi></mrow><mi>i</mi><mn>2</mn></msubsup>", "(x+y)_i^2"),
        ('<mover accent="true"><mi>x</mi><mo>¯</mo></mover><mover><mi>x</mi><mi>n</mi></mover>', "xx^n"),
        ("<mn>2</mn><mi>sin</mi><mi>x</mi><mi>y</mi>", "2 sin xy"),
        ("<munder><mi>lim</mi><mi>n</mi></munder><mfenced><mi>a</mi><mi>b</mi></mfenced>", "lim_n(a,b)"),
        ("<mtable><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr><mtr><mtd/><mtd><mi>d</mi></mtd></mtr></mtable>", "a, b; , d"),
        ("<mfrac/><msup><mi>x</mi></msup><msqrt/>", "x"),
    ],
)  # fmt: skip
def test_formulas_in_an_odt_keep_their_signs(markup: str, text: str) -> None:
    annotated = f"<semantics><mrow>{markup}</mrow><annotation>{{E = m c^2}}</annotation></semantics>"
    math = f'<math xmlns="http://www.w3.org/1998/Math/MathML">{annotated}</math>'
    frame = '<draw:frame><draw:object xlink:href="./Object 1" xmlns:xlink="x"/><draw:image xlink:href="./Repl/1" xmlns:xlink="x"/></draw:frame>'
    body = f"<text:p>where {frame} holds</text:p>{frame}"
    files = {"mimetype": "application/vnd.oasis.opendocument.text", "Object 1/content.xml": math}
    content = f"<office:document-content {ODF}><office:body><office:text>%s</office:text></office:body></office:document-content>"
    expected = f"where {text} holds\n\n{text}"
    assert reading(package({**files, "content.xml": content % body}), "a.odt").text == expected
    flat = body.replace("/><draw:image", f">{math}</draw:object><draw:image")
    assert reading(f'<?xml version="1.0"?>{content % flat}'.encode(), "a.fodt").text == expected
    damaged = package({**files, "content.xml": content % body, "Object 1/content.xml": math[:-9]})
    assert reading(damaged, "a.odt").text == "where  holds"


def test_other_xml_under_the_name_of_an_odt_is_read_as_what_it_is() -> None:
    article = '<?xml version="1.0"?><article><front><p>first</p></front><body><p>second</p></body></article>'
    document = reading(article, "a.odt")
    assert (document.format, document.text.split()) == ("xml", ["first", "second"])


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


@pytest.mark.parametrize(("directory", "rest"), [(0, 0), (2, 100), (1, 10)], ids=["no sectors", "far", "cut"])
def test_an_old_workbook_on_which_its_parser_panics_is_damaged(directory: int, rest: int) -> None:
    none, end = 0xFFFFFFFF, 0xFFFFFFFE
    sizes, sectors = (62, 3, 0xFFFE, 9, 6), (0, 1, directory, 0, 4096, end, 0, end, 0)
    head = struct.pack("<8s16x5H6x9I", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", *sizes, *sectors)
    head += struct.pack("<109I", 0, *[none] * 108)
    allocation = struct.pack("<128I", 0xFFFFFFFD, *[end] * 127) if rest else b""
    with pytest.raises(UnreadableError, match="damaged workbook"):
        read_xls(head + allocation + bytes(rest), "xls")


@pytest.mark.parametrize("open_", ["<w:tbl><w:tr><w:tc>", "<w:p><w:r><w:pict><w:txbxContent>", "<w:sdt><w:sdtContent>"])
def test_deeply_nested_office_files_are_refused_or_read(open_: str) -> None:
    close = "".join(f"</{tag}>" for tag in reversed(open_[1:-1].split("><")))
    for depth in (40, 80, 200):
        assert not outcome(docx(open_ * depth + p("x") + close * depth), "a.docx") or depth > 40


def damage(data: bytes, name: str) -> bytes:
    """The same package with a changed byte in one file, which its checksum shows."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    mark = b"<!-- %s -->" % name.encode()
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w") as archive:
        for entry, content in files.items():
            archive.writestr(entry, content + mark * (entry == name))
    return stored.getvalue().replace(mark, mark.swapcase())


DECK = package(
    {
        **TYPES,
        "_rels/.rels": relations(officeDocument="ppt/presentation.xml"),
        "ppt/presentation.xml": '<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst><p:sldId r:id="slide1"/><p:sldId r:id="slide2"/></p:sldIdLst></p:presentation>',
        "ppt/_rels/presentation.xml.rels": relations(slide1="slides/slide1.xml", slide2="slides/slide2.xml"),
        **{
            f"ppt/slides/slide{number}.xml": '<p:sld xmlns:p="p" xmlns:a="a"><p:cSld><p:spTree><p:sp><a:p><a:r><a:t>text</a:t></a:r></a:p></p:sp></p:spTree></p:cSld></p:sld>'
            for number in (1, 2)
        },
    }
)


@pytest.mark.parametrize(
    ("name", "data", "damaged", "needed"),
    [
        ("a.docx", docx(p("text"), styles=STYLES), "word/styles.xml", "word/document.xml"),
        ("a.pptx", DECK, "ppt/slides/slide2.xml", "ppt/presentation.xml"),
        ("a.xlsx", xlsx('<row><c t="inlineStr"><is><t>text</t></is></c></row>'), "xl/styles.xml", "xl/workbook.xml"),
        ("a.odt", package({"mimetype": "application/vnd.oasis.opendocument.text", "styles.xml": "<a/>", "content.xml": f"<office:d {ODF}><office:body><text:p>text</text:p></office:body></office:d>"}), "styles.xml", "content.xml"),
    ],
)  # fmt: skip
def test_a_damaged_file_in_a_package_costs_only_itself(name: str, data: bytes, damaged: str, needed: str) -> None:
    document = reading(damage(data, damaged), name)
    assert (document.text, document.metadata) == ("text", {"unread": f"{damaged!r} inside is damaged"})
    assert outcome(damage(data, needed), name).startswith(f"damaged: {needed!r} inside does not unpack")


def test_a_package_with_nothing_but_damage_is_an_error() -> None:
    data = xlsx('<row><c t="inlineStr"><is><t>text</t></is></c></row>')
    assert outcome(damage(data, "xl/sheet1.xml"), "a.xlsx") == "damaged: 'xl/sheet1.xml' inside is damaged"
