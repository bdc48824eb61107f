"""Read EPUB: the chapters in the order of the book's spine, each under its headings."""

from __future__ import annotations

import posixpath
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...core.errors import UnreadableError, UnsupportedError
from .detect import ending_of
from .document_builder import DocumentBuilder, HeadingStack, collapse_spaces
from .markup.html_text import HtmlReader
from .office.package import Package, local_name, parse_xml
from .pictures import PICTURE_FORMATS
from .plain_text.encoding import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..documents.document import Document
    from .pictures import Pictures


def read_epub(data: bytes, format_name: str, pictures: Pictures) -> Document:
    """Read an e-book; chapters have no lines that a person could open."""
    package = Package(data)
    if b"EncryptedData" in package.read("META-INF/encryption.xml") and "META-INF/rights.xml" in package:
        raise UnreadableError("protected by DRM")
    opf = _opf(package)
    root = parse_xml(package.read(opf), recover=True)
    builder = DocumentBuilder()
    metadata = {
        local_name(element): collapse_spaces(element.text or "")
        for element in reversed(list(root.iter("{*}metadata/*", "{http://purl.org/dc/elements/1.1/}*")))
    }
    builder.title = metadata.get("title", "")
    if metadata.get("creator"):
        builder.metadata["author"] = metadata["creator"]
    for name in _chapters(package, opf, root):
        _add_chapter(package, name, pictures, builder)
    package.describe(builder)
    pictures.describe(builder)
    return builder.document(format_name)


def _opf(package: Package) -> str:
    container = package.read("META-INF/container.xml")
    if container:
        for element in parse_xml(container, recover=True).iter("{*}rootfile"):
            path = unquote(element.get("full-path", ""))
            if path in package:
                return path
    for name in package.names:
        if name.endswith(".opf"):
            return name
    raise package.without("book")


def _chapters(package: Package, opf: str, root: Any) -> Iterator[str]:
    items = {item.get("id", ""): _target(opf, item.get("href", "")) for item in root.iter("{*}item")}
    read_names: set[str] = set()
    for reference in root.iter("{*}itemref"):
        name = items.get(reference.get("idref", ""), "")
        if name in package and name not in read_names:
            read_names.add(name)
            yield name


def _add_chapter(package: Package, name: str, pictures: Pictures, builder: DocumentBuilder) -> None:
    """Add a page of XHTML, a drawing in SVG or a picture."""
    if ending_of(name) in PICTURE_FORMATS:
        builder.add(pictures.text_in(package, name))
        return
    picture_text = partial(_picture_text, package, name, pictures)
    with suppress(UnsupportedError), package.spared(name):  # binary data has no text
        source = decode(package.read(name))
        HtmlReader(source, builder, headings=HeadingStack(), first_line=None, picture_text=picture_text).read()


def _picture_text(package: Package, chapter: str, pictures: Pictures, address: str) -> str:
    name = _target(chapter, address)
    if not name.lower().endswith(".svg"):
        return pictures.text_in(package, name).strip()
    drawing = DocumentBuilder()
    with suppress(UnsupportedError):
        HtmlReader(decode(package.picture(name)), drawing).read()
    return collapse_spaces(drawing.document("svg").text)


def _target(part: str, address: str) -> str:
    """The name in the package of a file that a part of it refers to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(part), unquote(address.partition("#")[0])))
