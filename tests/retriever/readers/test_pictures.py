"""Reading pictures: the command Tesseract, its languages and limits, and the pictures in Office files and PDF."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from binocle.core.errors import InputError, UnreadableError
from binocle.retriever.documents.document import Document, is_in_part
from binocle.retriever.readers import ReaderPool, ocr, pictures, read

from .sample_files import TYPES, docx, package, relations, xlsx

SCRIPT = """#!/bin/sh
if [ "$1" = --list-langs ]; then echo 'List of available languages in "there" (4):'; printf 'deu\\neng\\nosd\\nchi_sim\\n'; exit; fi
echo "$4" >> "$LOG"
exec head -c 15
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a Tesseract in PATH that reads the first 15 bytes of a picture. The log has its languages, a line a picture."""
    write_command(tmp_path, monkeypatch, SCRIPT)
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "log"


def write_command(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    command = folder / "commands" / "tesseract"
    command.parent.mkdir(exist_ok=True)
    command.write_text(script)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")


def picture(words: str) -> bytes:
    """Bytes that the Tesseract of these tests reads as words."""
    return words.ljust(15).encode() + bytes(2_000)


@pytest.mark.parametrize(
    ("locale", "languages"),
    [("", "eng"), ("C.UTF-8", "eng"), ("en_GB.UTF-8", "eng"), ("de_CH.UTF-8", "deu+eng"), ("zh_CN", "chi_sim+eng"),
     ("fr_FR", "eng")],
)  # fmt: skip
def test_pictures_are_read_in_the_language_of_the_locale_and_in_english(
    log: Path, locale: str, languages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", locale)
    assert ocr.choose_languages() == languages
    assert ocr.choose_languages(before="deu") == "deu"
    assert ocr.choose_languages("eng+deu", "deu") == "eng+deu"


@pytest.mark.parametrize("name", ["xyz", "osd", "", "-x"])
def test_a_language_that_tesseract_lacks_is_refused(log: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"OCR cannot read the language '{name}': tesseract has deu, eng, chi_sim; "):
        ocr.choose_languages(f"eng+{name}")


def test_tesseract_runs_in_the_environment_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_command(tmp_path, monkeypatch, '#!/bin/sh\necho "$TESSDATA_PREFIX $LD_LIBRARY_PATH"\n')
    monkeypatch.setenv("TESSDATA_PREFIX", "/data")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/libraries")
    assert ocr.recognize(b"", "eng", 10).strip() == "/data /libraries"


def test_a_failure_of_tesseract_says_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_command(tmp_path, monkeypatch, "#!/bin/sh\necho >&2\necho 'no more ink' >&2\necho more >&2\nexit 1\n")
    with pytest.raises(UnreadableError, match=r"^Tesseract cannot read it as a picture: no more ink$"):
        ocr.recognize(b"", "eng", 10)
    with pytest.raises(InputError, match=r"which does not list its languages: .*no more ink$"):
        ocr.choose_languages()


@pytest.mark.thorough
def test_the_limit_also_ends_the_processes_of_a_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = tmp_path / "process"
    write_command(
        tmp_path, monkeypatch, f"#!/bin/sh\nsleep 600 &\necho $! > {process}.new\nmv {process}.new {process}\nwait\n"
    )
    with pytest.raises(UnreadableError, match="took longer than"):
        ocr.recognize(b"", "eng", 2)
    state = Path("/proc", process.read_text().strip(), "stat")
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":  # until the system has ended it
        time.sleep(0.01)


R, DRAWING = 'xmlns:r="r"', "http://schemas.openxmlformats.org/drawingml/2006/main"


def with_files(data: bytes, files: dict[str, str | bytes]) -> bytes:
    """A package with more files."""
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return package({name: archive.read(name) for name in archive.namelist()} | files)


def word_file() -> bytes:
    """A Word document: a picture twice, then one in a table, one in the header, an icon and a drawing without pixels."""

    def shows(name: str) -> str:
        return f'<w:p><w:r><w:drawing><a:blip xmlns:a="{DRAWING}" r:embed="{name}"/></w:drawing></w:r></w:p>'

    def says(text: str) -> str:
        return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"

    cell = f"<w:tc>{says('cell')}</w:tc>"
    table = f"<w:tbl><w:tr>{cell}<w:tc>{shows('image2')}</w:tc></w:tr></w:tbl>"
    body = (
        says("before") + shows("image1") + says("after") + shows("image1") + table + shows("image4") + shows("image5")
    )
    header = (
        f'<w:hdr xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" {R}>{shows("image1")}</w:hdr>'
    )
    images = {f"image{number}": f"media/{number}.{'emf' if number == 5 else 'png'}" for number in (1, 2, 4, 5)}
    return with_files(
        docx(body),
        {
            "word/_rels/document.xml.rels": relations(**images, header="header.xml"),
            "word/header.xml": header,
            "word/_rels/header.xml.rels": relations(image1="media/3.png"),
            "word/media/1.png": picture("first"),
            "word/media/2.png": picture("second"),
            "word/media/3.png": picture("third"),
            "word/media/4.png": b"icon",
            "word/media/5.emf": picture("lines"),
        },
    )


def slides() -> bytes:
    shape = f'<p:pic xmlns:p="p"><p:blipFill><a:blip xmlns:a="{DRAWING}" {R} r:embed="image1"/></p:blipFill></p:pic>'
    return package(
        {
            **TYPES,
            "_rels/.rels": relations(officeDocument="ppt/presentation.xml"),
            "ppt/presentation.xml": f'<p:presentation xmlns:p="p" {R}><p:sldIdLst><p:sldId r:id="slide1"/></p:sldIdLst></p:presentation>',
            "ppt/_rels/presentation.xml.rels": relations(slide1="slides/slide1.xml"),
            "ppt/slides/slide1.xml": f'<p:sld xmlns:p="p"><p:cSld><p:spTree>{shape}</p:spTree></p:cSld></p:sld>',
            "ppt/slides/_rels/slide1.xml.rels": relations(image1="../media/1.jpeg"),
            "ppt/media/1.jpeg": picture("a slide"),
        }
    )


def sheet() -> bytes:
    return xlsx(
        '<row><c t="inlineStr"><is><t>cell</t></is></c></row>',
        **{
            "xl/_rels/sheet1.xml.rels": relations(drawing="drawing1.xml"),
            "xl/drawing1.xml": "<wsDr/>",
            "xl/_rels/drawing1.xml.rels": relations(image1="media/1.gif"),
            "xl/media/1.gif": picture("a sheet"),  # type: ignore[dict-item]
        },
    )


def open_document() -> bytes:
    names = 'xmlns:o="o" xmlns:t="t" xmlns:d="d" xmlns:x="x"'
    frame = '<d:frame><d:image x:href="Pictures/1.png"/></d:frame>'
    table = f"<t:table><t:table-row><t:table-cell><t:p>cell</t:p></t:table-cell><t:table-cell>{frame.replace('1', '2')}</t:table-cell></t:table-row></t:table>"
    body = f"<t:p>before{frame}</t:p><t:p>after</t:p>{table}"
    return package(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"<o:document-content {names}><o:body><o:text>{body}</o:text></o:body></o:document-content>",
            "Pictures/1.png": picture("first"),
            "Pictures/2.png": picture("second"),
        }
    )


def book() -> bytes:
    chapter = '<p>before<img src="../media/1%20a.png" alt="alt"/></p><p>after<img src="../media/1 a.png"/></p>'
    return package(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="in/book.opf"/></rootfiles></container>',
            "in/book.opf": '<package><manifest><item id="a" href="text/a.xhtml"/></manifest><spine><itemref idref="a"/></spine></package>',
            "in/text/a.xhtml": f"<html><body>{chapter}<img src='data:,x'/><img/></body></html>",
            "in/media/1 a.png": picture("first"),
        }
    )


@pytest.mark.parametrize(
    ("name", "data", "words", "without"),
    [
        ("a.epub", book(), "before alt first after", "1 picture not read (--ocr reads them)"),
        ("a.docx", word_file(), "before first after cell second third", "3 pictures not read (--ocr reads them)"),
        ("a.pptx", slides(), "a slide", "1 picture not read (--ocr reads them)"),
        ("a.xlsx", sheet(), "cell a sheet", "1 picture not read (--ocr reads them)"),
        ("a.odt", open_document(), "before first after cell second", "2 pictures not read (--ocr reads them)"),
    ],
)
def test_pictures_in_office_files_and_books_are_read_where_they_are_shown(
    name: str, data: bytes, words: str, without: str, log: Path
) -> None:
    document = read(data, name, ocr="deu+eng")
    assert document.text.split() == words.split()
    assert document.metadata == {"ocr": "deu+eng"}
    assert set(log.read_text().split()) == {"deu+eng"}
    plain = read(data, name)
    assert plain.metadata == {"unread": without}
    assert plain.text.split() == [word for word in words.split() if word in {"before", "after", "cell", "alt"}]


PNG, BITMAP, GIF = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"BM" + bytes(16), b"GIF89a"
JPEG = b"\xff\xd8\xff\xe1\0\x0e\xff\xc0\0\x08\x08\0\x01\0\x01\0\0\0\xff\xc2\0\x11\x08"  # with the size of a thumbnail in its data


@pytest.mark.parametrize(
    ("head", "characters", "is_beside"),
    [
        (PNG + bytes([0, 0, 1, 44, 0, 0, 0, 100]), 61, True),  # 300 by 100 pixels: 30 characters at most
        (PNG + bytes([0, 0, 1, 44, 0, 0, 0, 100]), 60, False),
        (GIF + bytes([44, 1, 100, 0]), 61, True),
        (GIF + bytes([44, 1, 100, 0]), 60, False),
        (BITMAP + bytes([44, 1, 0, 0, 156, 255, 255, 255]), 61, True),
        (BITMAP + bytes([44, 1, 0, 0, 156, 255, 255, 255]), 60, False),
        (JPEG + bytes([0, 100, 1, 44]), 61, True),
        (JPEG + bytes([0, 100, 1, 44]), 60, False),
        (PNG + bytes([0, 0, 16, 0, 0, 0, 16, 0]), 6_001, True),  # no picture holds more than a page
        (PNG + bytes([0, 0, 16, 0, 0, 0, 16, 0]), 6_000, False),
        (b"II*\0", 6_001, True),
        (b"II*\0", 6_000, False),
        (b"\xff\xd8\xff\xe1", 6_000, False),
    ],
)
def test_a_file_is_read_in_part_if_its_pictures_may_hold_a_third_of_its_text(
    head: bytes, characters: int, is_beside: bool
) -> None:
    shown = f'<w:p><w:r><w:drawing><a:blip xmlns:a="{DRAWING}" r:embed="image1"/></w:drawing></w:r></w:p>'
    data = with_files(
        docx(f"<w:p><w:r><w:t>{'a' * characters}</w:t></w:r></w:p>{shown}"),
        {"word/_rels/document.xml.rels": relations(image1="image.png"), "word/image.png": head + bytes(2_000)},
    )
    reason = read(data, "a.docx").metadata["unread"]
    assert reason == f"1 picture {'beside the text ' * is_beside}not read (--ocr reads them)"
    assert is_in_part({"state": "indexed", "reason": reason}) is not is_beside
    assert is_in_part({"state": "indexed", "reason": f"9 characters left out; {reason}"})


def test_pictures_of_an_office_file_are_read_within_limits(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def text_and_reason() -> tuple[list[str], str]:
        document: Document = read(word_file(), "a.docx", ocr="eng")
        return document.text.split(), document.metadata["unread"]

    monkeypatch.setattr(pictures, "_MAX_PICTURES", 1)
    assert text_and_reason() == (["before", "first", "after", "cell"], "2 pictures not read (OCR: eng)")
    monkeypatch.setattr(pictures, "_MAX_PICTURES", 200)
    monkeypatch.setattr(pictures, "_ALL_SECONDS", 0)
    assert text_and_reason() == (["before", "after", "cell"], "3 pictures not read (OCR: eng)")


def test_an_office_file_of_pictures_alone_says_so(log: Path, tmp_path: Path) -> None:
    (tmp_path / "a.pptx").write_bytes(slides())
    (tmp_path / "a.png").write_bytes(picture(""))
    for languages, reasons in (
        ("", ["no text in it; 1 picture not read (--ocr reads them)", "no reader for .png files"]),
        ("eng", ["", "no text in it (OCR: eng)"]),
    ):
        with ReaderPool(tmp_path, workers=1, ocr=languages) as pool:
            assert [reading.reason for reading in pool.read_all(["a.pptx", "a.png"])] == reasons


def test_a_file_named_wrongly_is_read_as_what_it_is_with_ocr_too(log: Path) -> None:
    assert read(word_file(), "a.pdf", ocr="eng").format == "docx"
