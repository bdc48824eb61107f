"""Readers: every other format, files with wrong endings, and the cost of hostile files."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binocle.core.errors import UnreadableError
from binocle.retriever.readers import FORMATS, UnsupportedError, read

from .sample_files import HTML, MAIL, MARKDOWN, RSS, STYLES, docx, odf, outcome, outline, p, package, reading, xlsx

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def test_the_columns_of_a_long_table_in_a_notebook_head_the_table_alone() -> None:
    table = "| item | cost |\n|---|---|\n" + "| apple | 3 |\n" * 60
    cells = [
        {"cell_type": "markdown", "source": f"## Prices\n\n{table}\nbehind"},
        {"cell_type": "code", "source": "x"},
        {"cell_type": "markdown", "source": table},
        {"cell_type": "code", "source": "y"},
    ]
    document = reading(json.dumps({"cells": cells}), "a.ipynb")
    assert [(part.kind, part.heading) for part in document.parts] == [
        ("prose", ("Prices",)),
        ("table", ("Prices", "item, cost")),
        ("prose", ("Prices",)),
        ("code", ("Prices",)),
        ("table", ("Prices", "item, cost")),
        ("code", ("Prices",)),
    ]


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


def drawing(content: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="x">{content}</svg>'


def test_drawings_of_an_epub_have_their_text_and_their_pictures() -> None:
    items = {"a": "cover.svg", "b": "b.xhtml", "c": "c.jpg"}
    lines = '<tspan x="1" dy="9">the last</tspan><tspan x="1" dy="9">of the <tspan>line</tspan></tspan>'
    manifest = "".join(f'<item id="{name}" href="{href}"/>' for name, href in items.items())
    spine = "".join(f'<itemref idref="{name}"/>' for name in items)
    cover = drawing('<image xlink:href="d.png"/>')
    words = f"<text>About</text><text>ducks</text><text>{lines}</text><defs><text>unused</text></defs>"
    data = package(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="in/book.opf"/></rootfiles></container>',
            "in/book.opf": f"<package><manifest>{manifest}</manifest><spine>{spine}</spine></package>",
            "in/cover.svg": drawing(words),
            "in/b.xhtml": f"<html><body><p>one <img src='map.SVG'/> <img src='bad.svg'/></p>{cover}</body></html>",
            "in/map.SVG": drawing("<text>North</text><text>Sea</text>"),
            "in/bad.svg": bytes(range(256)) * 8,
            "in/c.jpg": bytes(2000),
            "in/d.png": bytes(2000),
        }
    )
    document = reading(data, "a.epub")
    assert document.text == "About\nducks\nthe last\nof the line\n\none North Sea"
    assert document.metadata == {"unread": "2 pictures not read (--ocr reads them)"}


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
    assert reading("<?xml version='1.0'?><!DOCTYPE TS><TS><source>Quit</source></TS>", "app_de.ts").format == "xml"
    assert reading('msgid "Quit"\n', "app.pot").format == "po"


@pytest.mark.parametrize("name", ["a.py", "a.md", "a.txt"])
def test_a_text_that_speaks_of_pdf_is_a_text(name: str) -> None:
    source = 'HEAD = b"%PDF-1.4"\nOBJECT = b"1 0 obj endobj"'
    assert reading(source, name).text == source


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


def test_rtf_with_a_letter_beyond_all_letters_is_damaged() -> None:
    assert outcome(rb"{\rtf1\u99999999999? cat}", "a.rtf").startswith("damaged RTF")


def test_a_text_beyond_the_limit_is_refused() -> None:
    with pytest.raises(UnreadableError, match="longer than 64 million"):
        read(b"a" * 64_000_001, "a.txt")


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
        expected = expected.replace("\xad", "")
        assert document.text == expected.replace("\r", " " if "\n" in expected else "\n")
    for part in document.parts:
        assert part.line == document.text.count("\n", 0, part.start) + 1


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
