"""Choose the reader of a file by its name, unless its first bytes clearly show another format."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from ...core.errors import UnreadableError, UnsupportedError
from ..documents.file_parts import file_of
from .formats import FORMATS, NAMES, OLD_OFFICE, WITHOUT_TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .formats import Format

_BEFORE_ROOT = re.compile(r"\s+|<\?xml[^>]*>|<!--.*?-->", re.DOTALL)
_DATE = rb"[A-Z][a-z]{2},? (?:[A-Z][a-z]{2} [\d ]?\d|\d\d? [A-Z][a-z]{2} \d{4}) \d\d:\d\d"  # Mon Jan  1 10:00
_MAILBOX = re.compile(
    rb"From [^\n]{0,200}\b%b[^\n]{0,40}\n[\w-]+:" % _DATE
)  # the date of arrival, then the first header
_HTML = re.compile(r"<!doctype\s+html|<html[\s>]", re.IGNORECASE)
_FLAT = re.compile(r"<(?:\w+:)?document(?:-content)?[\s>]")  # the root of OpenDocument in one file
_PACKAGES = (("word/", ".docx"), ("ppt/", ".pptx"), ("xl/", ".xlsx"))
_STREAMS = (
    ("WordDocument", ".doc"), ("PowerPoint Document", ".ppt"), ("__properties_version1.0", ".msg"),
    ("Workbook", ".xls"), ("Book", ".xls"),
)  # fmt: skip
_MIMETYPES = (
    ("epub", ".epub"), ("opendocument.text", ".odt"), ("opendocument.presentation", ".odp"),
    ("opendocument.graphics", ".odp"), ("opendocument.spreadsheet", ".ods"),
)  # fmt: skip


def choose_format(data: bytes, name: str, formats: Mapping[str, Format]) -> Format:  # noqa: PLR0911 - rules in order
    """Choose the format and the reader of a file.

    :raises UnsupportedError: when no reader takes it.
    """
    ending = ending_of(name)
    by_name = formats.get(ending)
    if by_name and not by_name[1].startswith("."):  # a reader that the caller has added
        return by_name
    if ending in WITHOUT_TEXT and not by_name:
        raise UnsupportedError(f"no reader for {ending} files")
    if not data.strip():
        return formats[".txt"]
    sniffed = sniff(data)
    if sniffed == ".tar" or name.lower().endswith((".tar.gz", ".tar.bz2", ".tar.xz")):
        return formats[".tar"]
    if sniffed == ".ole":
        return _choose_old_office(data, ending, formats)
    if sniffed == ".zip" and (_is_package(ending) or not by_name):
        return _choose_zip(ending, formats)
    if _is_package(ending):
        return _choose_package(data, ending, sniffed, formats)
    return _choose_file(data, ending, sniffed, formats)


def _choose_zip(ending: str, formats: Mapping[str, Format]) -> Format:
    """Choose the reader of a ZIP that shows no package."""
    if ending in formats:
        return formats[ending]  # its reader reports the damage
    if ending:
        raise UnsupportedError(f"no reader for {ending} files")
    return formats[".zip"]


def _choose_file(data: bytes, ending: str, sniffed: str, formats: Mapping[str, Format]) -> Format:
    """Choose the reader of a file that is not named as a container, by its content and its name."""
    by_name = formats.get(ending)
    if sniffed == ".mbox" and not by_name:  # Thunderbird names a mailbox after its folder, without an ending
        return formats[sniffed]
    if sniffed == ".pdf" and by_name and not data.startswith(b"%PDF-"):
        return by_name  # a text about PDF, or a program that writes one
    if _is_package(sniffed) or (sniffed and ending in {"", ".txt", ".text", ".html", ".htm", ".xml", *OLD_OFFICE}):
        return formats[sniffed]
    if ending in OLD_OFFICE and not (by_name and by_name[1].startswith(".plain_text.")):
        if by_name:
            raise UnreadableError(f"not {_file_of(ending)}, though it is named so")
        raise UnsupportedError(f"no reader for {ending} files")
    if sniffed == ".xml" and ending == ".ts":  # translations of Qt, not TypeScript
        return formats[sniffed]
    if ending in {".txt", ".text", ""} and data.lstrip()[:1] in {b"{", b"["} and _is_json(data):
        return formats[".json"]
    return by_name or formats[".txt"]


def ending_of(name: str) -> str:
    """The ending that decides how a file is read, in lower case; a known whole name stands for an ending."""
    name = posixpath.basename(file_of(name)).lower()
    return NAMES.get(name) or posixpath.splitext(name)[1]


def _file_of(ending: str) -> str:
    """The kind of a file with its article: a DOCX file, an XLSX file."""
    name = ending[1:].upper()
    return f"{'an' if name[0] in 'AEFHILMNORSX' else 'a'} {name} file"


def _choose_package(data: bytes, ending: str, sniffed: str, formats: Mapping[str, Format]) -> Format:
    """Choose the reader of a file that is named as a container, such as .docx, by its content."""
    if _is_package(sniffed) or sniffed in {".html", ".xml"}:
        by_name = formats[ending]
        flat = sniffed == ".xml" and by_name[0] in {"odt", "odp", "ods"} and _FLAT.search(_decode_head(data[:4096]))
        return by_name if flat or (sniffed in formats and formats[sniffed][1] == by_name[1]) else formats[sniffed]
    if ending == ".xls" and b"\0" not in data[:4096]:  # a table that a web application saved under Excel's ending
        return formats[".tsv"]
    raise UnreadableError(f"not {_file_of(ending)}, though it is named so")


def _choose_old_office(data: bytes, ending: str, formats: Mapping[str, Format]) -> Format:
    if "EncryptedPackage".encode("utf-16-le") in data:
        raise UnreadableError("password-protected")
    from .office.binary.compound import CompoundFile

    file = CompoundFile(data)
    for stream, own in _STREAMS:
        if stream in file:
            return formats[own]
    if _is_package(ending) or FORMATS.get(ending, ("",))[0] in {"doc", "ppt", "msg"}:
        raise UnreadableError(f"damaged: it holds no text of {_file_of(ending)}")
    raise UnsupportedError(f"no reader for {ending or 'such Office'} files")


def _is_json(data: bytes) -> bool:
    from .plain_text.encoding import decode
    from .plain_text.text import looks_like_json

    return looks_like_json(decode(data).strip())


def sniff(data: bytes) -> str:  # noqa: PLR0911 - one return for each signature
    """The ending of the format that the bytes clearly show; ".zip" or ".ole" for other containers, else ""."""
    if data.startswith(b"PK\x03\x04"):
        return _sniff_zip(data)
    if data.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return ".ole"
    if data[257:262] == b"ustar" and b"\0" in data[:257]:
        return ".tar"
    if data.startswith(b"{\\rtf"):
        return ".rtf"
    if _MAILBOX.match(data):
        return ".mbox"
    if b"%PDF-" in data[:1024] and (data.startswith(b"%PDF-") or b"\0" in data[:4096] or b"endobj" in data):
        return ".pdf"
    head = _decode_head(data[:4096])
    start = 0
    while before := _BEFORE_ROOT.match(head, start):
        start = before.end()
    if _HTML.match(head, start):
        return ".html"
    return ".xml" if head.lstrip().startswith(("<?xml", "<!DOCTYPE ")) else ""


def _decode_head(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head.decode("utf-16", "replace")
    return head.removeprefix(b"\xef\xbb\xbf").decode("latin-1")


def _sniff_zip(data: bytes) -> str:
    from .containers.zip_directory import open_zip

    try:
        with open_zip(data) as package:
            names = package.namelist()
            mimetype = package.open("mimetype").read(100).decode("latin-1") if "mimetype" in names else ""
    except Exception:  # noqa: BLE001 - zipfile raises many types; the format's own reader reports the damage
        return ".zip"
    for fragment, ending in _MIMETYPES:
        if fragment in mimetype:
            return ending
    if "META-INF/container.xml" in names:
        return ".epub"
    if "[Content_Types].xml" in names:
        for folder, ending in _PACKAGES:
            if any(name.lower().startswith(folder) for name in names):
                return ending
    return ".zip"


def _is_package(ending: str) -> bool:
    """Whether files of this ending are containers with a signature of their own."""
    name, reader = FORMATS.get(ending, ("", ""))
    return name in {"pdf", "docx", "pptx", "xlsx", "xls", "odt", "odp", "ods", "rtf", "epub"} and reader.startswith(".")
