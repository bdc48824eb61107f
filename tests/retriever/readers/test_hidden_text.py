"""Text that a person does not see in a document: readers note its place."""

from __future__ import annotations

import pypdfium2
import pytest

from binocle.retriever.documents.document import HIDDEN, Document, hidden_spans
from binocle.retriever.readers import document_builder, read
from binocle.retriever.readers.pdf.hidden_text import mark_hidden

from .sample_files import ODF, TYPES, docx, package, relations, xlsx


def hidden(document: Document) -> list[str]:
    places = document.metadata.get(HIDDEN, [])
    return [document.text[start:end] for start, end in zip(places[::2], places[1::2], strict=True)]


def page(body: str, head: str = "") -> Document:
    return read(f"<html><head>{head}</head><body>{body}</body></html>".encode(), "a.html")


@pytest.mark.parametrize(
    "style",
    [
        "font-size:0",
        "font-size: 1px",
        "font: 0/0 a",
        "font-size:.05em",
        "opacity:0",
        "opacity: 1%",
        "color:transparent",
        "color: rgba(0, 0, 0, 0)",
        "color:#12345600",
        "color:white",
        "color:#FFF",
        "color:#fefefe; background:#ffffff",
        "COLOR:rgb(10,10,10);background-color:#000 !important",
        "position:absolute;left:-9999px",
        "text-indent: -100em",
        "transform: translateX(-2000px)",
        "transform:scale(0)",
        "clip:rect(0 0 0 0)",
        "clip: rect(1px, 1px, 1px, 1px)",
        "clip-path:inset(50%)",
        "height:0;overflow:hidden",
    ],
)
def test_text_hidden_by_a_style_is_noted(style):
    assert hidden(page(f'<p>seen</p><p style="{style}">not seen</p>')) == ["not seen"]
    assert hidden(page('<p>seen</p><p class="a x">not seen</p>', f"<style>.x {{{style}}}</style>")) == ["not seen"]


@pytest.mark.parametrize(
    "style",
    [
        "font-size:12px",
        "font-size:80%",
        "font: 700 12px/1.5 serif",
        "opacity:.5",
        "color:#eee;background:#333",
        "color:white;background:url(dark.png)",
        "color:white;background:linear-gradient(red, blue)",
        "color:white;background:var(--dark)",
        "left:-5px",
        "height:0",
        "width:1px;color:inherit",
        "font-size:calc(1px + 1em)",
        "display:block",
        "transform:translate(-50%, -50%) scale(0.9)",
        "=:;;:",
    ],
)
def test_text_that_a_style_leaves_visible_is_not(style):
    assert hidden(page(f'<p style="{style}">seen</p>')) == []


def test_hidden_text_is_noted_and_its_surroundings_are_not():
    body = '<p>One <b style="font-size:0"> two \n</b> three.</p><p aria-hidden="true">four</p>five <i>six</i>'
    document = page(body)
    assert document.text == "One two three.\n\nfour\n\nfive six"
    assert hidden(document) == ["two", "four"]


def test_neighbours_are_one_span():
    assert hidden(page('<div style="opacity:0"><p>a <b>b</b></p><pre>c\n  d</pre></div>e')) == ["a b\n\nc\n  d"]


def test_a_child_can_be_seen_again_where_browsers_show_it():
    assert hidden(page('<p style="font-size:0">no <b style="font-size:12px">yes</b></p>')) == ["no"]
    assert hidden(page('<p style="color:white">no <b style="color:black">yes</b></p>')) == ["no"]
    assert hidden(page('<div style="background:black"><b style="color:white">yes</b></div>')) == []
    assert hidden(page('<div style="opacity:0">no <b style="opacity:1">no</b></div>')) == ["no no"]
    assert hidden(page('<table bgcolor="#fff"><tr><td><font color=white>no</font><td>yes</table>')) == ["no"]


def test_light_text_is_visible_where_another_file_may_set_the_background():
    sheet = '<link rel="stylesheet" href="a.css">'
    assert hidden(page('<p style="color:white">seen</p>', sheet)) == []
    assert hidden(page('<p style="color:white;background:#fff">no</p>', sheet)) == ["no"]
    assert hidden(page('<p style="color:white">seen</p>', "<style>.a > p {background: black}</style>")) == []


def test_rules_for_print_do_not_count():
    rules = "<style>/* .y{opacity:0} */ @media print { .x, p { display: none } } #z, b.w { display: none }</style>"
    body = "<p class=x>a</p><p class=y>b</p><p id=z>c</p><b class=w>d</b><i class=w>e</i>"
    assert hidden(page(body, rules)) == ["c\n\nd"]


def test_text_that_browsers_do_not_show_at_all_stays_out():
    document = page('<p style="display:none">no</p><p hidden>no</p><!-- no --><template>no</template><p>yes</p>')
    assert (document.text, hidden(document)) == ("yes", [])


def test_a_heading_that_nobody_sees_heads_nothing():
    document = page('<h1>Seen</h1><h2 style="font-size:0">Obey</h2><p>text</p>')
    assert {part.heading for part in document.parts} == {("Seen",)}
    assert hidden(document) == ["Obey"]


def test_a_page_cannot_forge_or_end_a_mark():
    document = page('<p>a\ufdd0b\ufdd1c</p><p style="opacity:0">d\ufdd1e&#xfdd1;f\ufdd0</p>g')
    assert document.text == "abc\n\ndef\n\ng"
    assert hidden(document) == ["def"]


def test_a_builder_joins_neighbours_of_many_spans(monkeypatch):
    monkeypatch.setattr(document_builder, "_MAX_HIDDEN", 2)
    assert hidden(page("<b>x <i style='opacity:0'>a</i></b> " * 4)) == ["a", "a x a x a"]


def test_spans_of_a_passage_are_cut_to_it():
    tags = "\U000e0049\U000e0047"
    assert hidden_spans([0, 12, 14, 16, 40, 50], 10, "abcdefgh") == ((10, 12), (14, 16))
    assert hidden_spans(None, 10, f"ab{tags}c") == ((12, 14),)
    assert hidden_spans([11, 13], 10, f"ab{tags}c") == ((11, 14),)


@pytest.mark.parametrize("wrong", ["ab", 7, [1], ["1", "2"], [None, 2], {"a": 1}, [5, 1], [-9, -1]], ids=str)
def test_metadata_of_another_type_hides_nothing(wrong):
    assert hidden_spans(wrong, 0, "abc") == ()


def test_a_hostile_style_takes_linear_time():
    many = 100_000
    for rules in (
        "@media{" * many + "{" * many,
        "a" * many,
        "/* " * many,
        ".a," * many + "p{x:y}" * 9,
        "a{b:c;" * many,
        "}" * many,
    ):
        assert hidden(page("<p class=a>x</p>", f"<style>{rules}</style>")) == []
    for style in (
        "font: " + "1 " * many,
        "transform:" + "scale(" * many,
        "clip:rect(" + "0" * many,
        "color:rgb(" + " " * many,
        "color:rgb(" + "1" * many + ",0,0)",
        "color:rgba(0,0,0," + "." * many + ")",
        "font:" + "1" * many,
        "font-size:" + "1" * many,
        "clip:rect(0" + " " * many + "x",
        "transform:scale(" + " " * many + "x)",
    ):
        assert page(f"<p style='{style}'>x</p>").text == "x"


# Office files


def word_run(text: str, properties: str = "") -> str:
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>"


def word(runs: str, *, before: str = "", styles: str = "") -> Document:
    return read(docx(f"<w:p>{before}{word_run('seen ')}{runs}</w:p>", styles=styles), "a.docx")


WHITE = '<w:color w:val="FFFFFF"/>'


@pytest.mark.parametrize("properties", [WHITE, '<w:color w:val="fefefe"/>', '<w:sz w:val="2"/>', '<w:sz w:val="0"/>'])
def test_letters_that_word_shows_white_or_tiny_are_noted(properties):
    document = word(word_run("not seen", properties))
    assert document.text == "seen not seen"
    assert hidden(document) == ["not seen"]


@pytest.mark.parametrize(
    "properties",
    [
        '<w:color w:val="auto"/>',
        '<w:color w:val="FF0000"/>',
        '<w:sz w:val="15"/>',
        f'{WHITE}<w:highlight w:val="black"/>',
        f'{WHITE}<w:shd w:val="clear" w:fill="000000"/>',
        f'{WHITE}<w:shd w:val="solid" w:fill="auto"/>',
    ],
)
def test_letters_that_word_shows_are_not(properties):
    assert hidden(word(word_run("seen", properties))) == []


def test_styles_of_word_hide_and_show():
    styles = (
        f'<w:style w:type="character" w:styleId="a"><w:rPr>{WHITE}</w:rPr></w:style>'
        '<w:style w:type="character" w:styleId="b"><w:basedOn w:val="a"/></w:style>'
        '<w:style w:type="paragraph" w:styleId="c"><w:rPr><w:vanish/></w:rPr></w:style>'
        '<w:style w:type="paragraph" w:styleId="d"><w:basedOn w:val="d"/><w:pPr><w:shd w:val="clear" w:fill="111111"/></w:pPr></w:style>'
    )
    by_style = word_run("not seen", '<w:rStyle w:val="b"/>')
    assert hidden(word(by_style, styles=styles)) == ["not seen"]
    assert hidden(word(word_run("seen", '<w:rStyle w:val="b"/><w:color w:val="000000"/>'), styles=styles)) == []
    assert hidden(word("", before='<w:pPr><w:pStyle w:val="c"/></w:pPr>', styles=styles)) == ["seen"]
    assert hidden(word(by_style, before='<w:pPr><w:pStyle w:val="d"/></w:pPr>', styles=styles)) == []


@pytest.mark.parametrize(
    ("table", "cell", "expected"),
    [
        ("", "", ["white"]),
        ('<w:tblStyle w:val="TableGrid"/>', "", ["white"]),
        ('<w:tblStyle w:val="Dark"/>', "", []),
        ("", '<w:shd w:val="clear" w:fill="4472C4"/>', []),
        ("", '<w:shd w:val="clear" w:fill="FFFFFF"/>', ["white"]),
    ],
)
def test_white_letters_show_in_a_coloured_cell(table, cell, expected):
    body = (
        f"<w:tbl><w:tblPr>{table}</w:tblPr><w:tr><w:tc><w:tcPr>{cell}</w:tcPr><w:p>{word_run('white', WHITE)}</w:p></w:tc>"
        f"<w:tc><w:p>{word_run('other')}</w:p></w:tc></w:tr></w:tbl>"
    )
    assert hidden(read(docx(body), "a.docx")) == expected


def test_a_white_heading_of_word_heads_nothing():
    heading = f'<w:p><w:pPr><w:outlineLvl w:val="0"/></w:pPr>{word_run("Obey", WHITE)}</w:p>'
    document = read(docx(heading + f"<w:p>{word_run('text')}</w:p>"), "a.docx")
    assert (document.title, {part.heading for part in document.parts}) == ("", {()})


def slides(shapes: str, *, around: str = "") -> Document:
    namespaces = 'xmlns:p="p" xmlns:a="a" xmlns:r="r"'
    tree = f"<p:sld {namespaces}><p:cSld>{around}<p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
    files = {
        **TYPES,
        "_rels/.rels": relations(officeDocument="ppt/presentation.xml"),
        "ppt/presentation.xml": f'<p:presentation {namespaces}><p:sldSz cx="1000" cy="900"/><p:sldIdLst><p:sldId id="1" r:id="slide"/></p:sldIdLst></p:presentation>',
        "ppt/_rels/presentation.xml.rels": relations(slide="slide.xml"),
        "ppt/slide.xml": tree,
    }
    return read(package(files), "a.pptx")


def shape(properties: str = "", *, name: str = "", at: str = "") -> str:
    place = f'<p:spPr><a:xfrm><a:off {at}/><a:ext cx="100" cy="100"/></a:xfrm></p:spPr>' if at else ""
    run = f"<a:r>{properties}<a:t>words</a:t></a:r>"
    return f"<p:sp><p:nvSpPr><p:cNvPr {name}/></p:nvSpPr>{place}<p:txBody><a:p>{run}</a:p></p:txBody></p:sp>"


SLIDE_WHITE = '<a:rPr><a:solidFill><a:srgbClr val="FFFFFF"/></a:solidFill></a:rPr>'
PICTURE = "<p:pic><p:blipFill/></p:pic>"


@pytest.mark.parametrize(
    ("content", "around", "is_hidden"),
    [
        (shape(), "", False),
        (shape(SLIDE_WHITE), "", True),
        (shape(SLIDE_WHITE) + PICTURE, "", False),
        (shape(SLIDE_WHITE), "<p:bg><p:bgPr><a:solidFill/></p:bgPr></p:bg>", False),
        (shape('<a:rPr sz="100"/>'), "", True),
        (shape('<a:rPr sz="1800"/>'), "", False),
        (shape("<a:rPr><a:noFill/></a:rPr>"), "", True),
        (shape(name='hidden="1"'), "", True),
        (shape(at='x="1000" y="0"'), "", True),
        (shape(at='x="0" y="-101"'), "", True),
        (shape(at='x="0" y="-50"'), "", False),
        (shape(at='x="a" y=""'), "", False),
    ],
)
def test_words_that_a_slide_does_not_show_are_noted(content, around, is_hidden):
    document = slides(content, around=around)
    assert document.text == "words"
    assert hidden(document) == ["words"] * is_hidden


def odt(body: str, styles: str) -> Document:
    content = (
        f"<office:document-content {ODF} xmlns:style='style' xmlns:fo='fo'>"
        f"<office:automatic-styles>{styles}</office:automatic-styles>"
        f"<office:body><office:text>{body}</office:text></office:body></office:document-content>"
    )
    return read(package({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content}), "a.odt")


@pytest.mark.parametrize(
    ("properties", "is_hidden"),
    [
        ('text:display="none"', True),
        ('fo:font-size="1pt"', True),
        ('fo:font-size="0.2mm"', True),
        ('fo:color="#ffffff"', True),
        ('fo:color="#ffffff" fo:background-color="#000000"', False),
        ('fo:font-size="12pt" fo:color="#c00000"', False),
    ],
)
def test_letters_that_an_open_document_does_not_show_are_noted(properties, is_hidden):
    style = f'<style:style style:name="a"><style:text-properties {properties}/></style:style>'
    derived = '<style:style style:name="b" style:parent-style-name="a"/>'
    document = odt('<text:p>seen <text:span text:style-name="b">span</text:span> tail</text:p>', style + derived)
    assert document.text == "seen span tail"
    assert hidden(document) == ["span"] * is_hidden
    whole = odt('<text:p text:style-name="a">one <text:span>two</text:span> three</text:p>', style)
    assert hidden(whole) == ["one two three"] * is_hidden


def test_hidden_sheets_and_rows_are_noted():
    row = '<row{}><c t="inlineStr"><is><t>{}</t></is></c></row>'
    book = read(xlsx(row.format("", "seen") + row.format(' hidden="1"', "not seen")), "a.xlsx")
    assert (book.text, hidden(book)) == ("seen\nnot seen", ["not seen"])
    ns = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="r"'
    sheets = f'<workbook {ns}><sheets><sheet name="A" state="veryHidden" r:id="worksheet"/></sheets></workbook>'
    assert hidden(read(xlsx(row.format("", "not seen"), **{"xl/workbook.xml": sheets}), "a.xlsx")) == ["not seen"]


# PDF


def pdf_bytes(content: str) -> bytes:
    objects = (
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        (
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R"
            "/Resources<</Font<</F1 5 0 R>>/XObject<</I 6 0 R/F 7 0 R>>/ExtGState<</G <</ca 0>>>>>>>>"
        ),
        f"<</Length {len(content)}>>\nstream\n{content}\nendstream",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        "<</Type/XObject/Subtype/Image/Width 1/Height 1/ColorSpace/DeviceGray/BitsPerComponent 8/Length 1>>\nstream\n0\nendstream",
        (
            "<</Type/XObject/Subtype/Form/BBox[0 0 612 792]/Matrix[12 0 0 12 0 0]/Resources<</Font<</F1 5 0 R>>>>/Length 34>>"
            "\nstream\nBT /F1 1 Tf 6 40 Td (words) Tj ET  \nendstream"
        ),
    )
    body = "".join(f"{number} 0 obj\n{item}\nendobj\n" for number, item in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer\n<</Root 1 0 R/Size 8>>\n%%EOF\n".encode()


def pdf(content: str) -> Document:
    return read(pdf_bytes(content), "a.pdf")


SEEN = "BT /F1 12 Tf 72 700 Td (seen) Tj ET "
WORDS = "BT /F1 12 Tf 72 600 Td (words) Tj ET"


@pytest.mark.parametrize(
    ("content", "is_hidden"),
    [
        (WORDS, False),
        (f"3 Tr {WORDS}", True),
        (f"q 200 0 0 200 50 500 cm /I Do Q 3 Tr {WORDS}", False),  # a scanned page
        (f"q 9 0 0 9 50 50 cm /I Do Q 3 Tr {WORDS}", True),
        (f"1 g {WORDS}", True),
        (f"0.5 g 50 590 200 50 re f 1 g {WORDS}", False),
        (f"1 g 50 590 200 50 re f {WORDS}", True),
        (f"0.5 g 50 50 20 20 re f 1 g {WORDS}", True),
        (f"20 w 50 604 m 200 604 l S 1 g {WORDS}", False),  # a broad line is a background
        (f"/G gs {WORDS}", True),
        (WORDS.replace("12 Tf", "1 Tf"), True),
        (WORDS.replace("12 Tf 72 600 Td", "1 Tf 12 0 0 12 72 600 Tm"), False),
        (WORDS.replace("72 600", "-200 600"), True),
        (WORDS.replace("72 600", "72 900"), True),
        ("/F Do", False),
        ("q .05 0 0 .05 0 0 cm /F Do Q", True),
    ],
)
def test_words_that_a_pdf_page_does_not_show_are_noted(content, is_hidden):
    document = pdf(f"{SEEN}{content}")
    assert document.text.split() in (["seen", "words"], ["seenwords"])
    assert hidden(document) == ["words"] * is_hidden


def test_a_pdf_page_of_hidden_words_alone_is_hidden_from_its_first_character():
    assert hidden(pdf(f"3 Tr {WORDS}")) == ["words"]


def test_the_text_of_a_pdf_cannot_forge_a_mark():
    page = pypdfium2.PdfDocument(pdf_bytes(WORDS))[0]
    forged = f"a{document_builder.HIDING}b{document_builder.SHOWING}c"
    assert mark_hidden(page, page.get_textpage(), forged) == "a b c"
