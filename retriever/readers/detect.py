"""Which reader a file gets: by its name, unless its first bytes say plainly that it is something else."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from ...core.errors import UnreadableError, UnsupportedError
from .formats import FORMATS, NAMES, OLD_OFFICE, WITHOUT_TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .formats import Format

_BEFORE_ROOT = re.compile(r"\s+|<\?xml[^>]*>|<!--.*?-->", re.DOTALL)
_DATE = rb"[A-Z][a-z]{2},? (?:[A-Z][a-z]{2} [\d ]?\d|\d\d? [A-Z][a-z]{2} \d{4}) \d\d:\d\d"  # Mon Jan  1 10:00
_MAILBOX = re.compile(rb"From [^\n]{0,200}\b%b[^\n]{0,40}\n[\w-]+:" % _DATE)  # when a mail came, and its first header
_HTML = re.compile(r"<!doctype\s+html|<html[\s>]", re.IGNORECASE)
_PACKAGES = (("word/", ".docx"), ("ppt/", ".pptx"), ("xl/", ".xlsx"))
_MIMETYPES = (
    ("epub", ".epub"), ("opendocument.text", ".odt"), ("opendocument.presentation", ".odp"),
    ("opendocument.graphics", ".odp"), ("opendocument.spreadsheet", ".ods"),
)  # fmt: skip


def choose(data: bytes, name: str, formats: Mapping[str, Format]) -> Format:
    """The format and reader of a file; raises UnsupportedError where there is none."""
    ending = ending_of(name)
    named = formats.get(ending)
    if named and not named[1].startswith("."):  # a caller's own reader
        return named
    if ending in WITHOUT_TEXT and not named:
        raise UnsupportedError(f"no reader for {ending} files")
    if not data.strip():
        return formats[".txt"]
    found = sniff(data)
    if found == ".ole":
        return _choose_old_office(data, ending, formats)
    if found == ".zip" and (_is_package(ending) or not named):
        if ending in formats:
            return formats[ending]  # which says what is wrong with it
        raise UnsupportedError(f"no reader for {ending} files" if ending else "an archive")
    if _is_package(ending):
        return _choose_package(data, ending, found, formats)
    if found == ".mbox" and not named:  # as Thunderbird names them: after the folder
        return formats[found]
    if found == ".pdf" and named and not data.startswith(b"%PDF-"):  # a text about PDF, or what writes one
        return named
    if _is_package(found) or (found and ending in {"", ".txt", ".text", ".html", ".htm", ".xml", *OLD_OFFICE}):
        return formats[found]
    if ending in OLD_OFFICE:
        raise UnsupportedError(f"no reader for {ending} files")
    if ending in {".txt", ".text", ""} and data.lstrip()[:1] in {b"{", b"["} and _is_json(data):
        return formats[".json"]
    return named or formats[".txt"]


def ending_of(name: str) -> str:
    """All that a path says of how its file is read."""
    name = posixpath.basename(name).lower()
    return NAMES.get(name) or posixpath.splitext(name)[1]


def _choose_package(data: bytes, ending: str, found: str, formats: Mapping[str, Format]) -> Format:
    """A container by its name: read as what it is."""
    if _is_package(found) or found in {".html", ".xml"}:
        named = formats[ending]
        flat = found == ".xml" and named[0] in {"odt", "odp", "ods"}
        return named if flat or (found in formats and formats[found][1] == named[1]) else formats[found]
    if ending == ".xls" and b"\0" not in data[:4096]:  # a table some web application saved under Excel's name
        return formats[".tsv"]
    raise UnreadableError(f"not a {ending[1:].upper()} file, though it is named so")


def _choose_old_office(data: bytes, ending: str, formats: Mapping[str, Format]) -> Format:
    if "EncryptedPackage".encode("utf-16-le") in data:
        raise UnreadableError("password-protected")
    if "Workbook".encode("utf-16-le") in data and ending not in OLD_OFFICE:
        return formats[".xls"]
    if ending in formats:
        raise UnreadableError(
            "an Office file from before 2007, for which there is no reader; save it in a newer format"
        )
    raise UnsupportedError(f"no reader for {ending or 'such Office'} files")


def _is_json(data: bytes) -> bool:
    from .encoding import decode
    from .text import looks_like_json

    return looks_like_json(decode(data).strip())


def sniff(data: bytes) -> str:
    """The ending of the format a file plainly is; ".zip" or ".ole" for other containers, "" where it is not plain."""
    if data.startswith(b"PK\x03\x04"):
        return _in_zip(data)
    if data.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return ".ole"
    if data.startswith(b"{\\rtf"):
        return ".rtf"
    if _MAILBOX.match(data):
        return ".mbox"
    if b"%PDF-" in data[:1024] and (data.startswith(b"%PDF-") or b"\0" in data[:4096] or b"endobj" in data):
        return ".pdf"
    head = _as_text(data[:4096])
    start = 0
    while before := _BEFORE_ROOT.match(head, start):
        start = before.end()
    if _HTML.match(head, start):
        return ".html"
    return ".xml" if head.lstrip().startswith(("<?xml", "<!DOCTYPE ")) else ""


def _as_text(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head.decode("utf-16", "replace")
    return head.removeprefix(b"\xef\xbb\xbf").decode("latin-1")


def _in_zip(data: bytes) -> str:
    import zipfile
    from io import BytesIO

    try:
        with zipfile.ZipFile(BytesIO(data)) as package:
            names = package.namelist()
            mimetype = package.open("mimetype").read(100).decode("latin-1") if "mimetype" in names else ""
    except Exception:  # zipfile raises whatever its input makes it; the format's own reader says what is wrong
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
    """Whether files of this name are containers that must look like one."""
    name, reader = FORMATS.get(ending, ("", ""))
    return name in {"pdf", "docx", "pptx", "xlsx", "xls", "odt", "odp", "ods", "rtf", "epub"} and reader.startswith(".")
