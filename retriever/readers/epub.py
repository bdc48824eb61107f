"""EPUB: the chapters in the order of the book's spine, each under its headings."""

from __future__ import annotations

import posixpath
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...core.errors import UnreadableError, UnsupportedError
from .base import Builder, Outline, squeeze
from .encoding import decode
from .html_text import HtmlText
from .office.package import Package, local, parse_xml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..documents.document import Document


def read_epub(data: bytes, form: str) -> Document:
    package = Package(data)
    if b"EncryptedData" in package.read("META-INF/encryption.xml") and "META-INF/rights.xml" in package:
        raise UnreadableError("protected by DRM")
    opf = _opf(package)
    root = parse_xml(package.read(opf), recover=True)
    builder = Builder()
    metadata = {
        local(element): squeeze(element.text or "")
        for element in reversed(list(root.iter("{*}metadata/*", "{http://purl.org/dc/elements/1.1/}*")))
    }
    builder.title = metadata.get("title", "")
    if metadata.get("creator"):
        builder.metadata["author"] = metadata["creator"]
    for name in _chapters(package, opf, root):
        with suppress(UnsupportedError):  # a spine may name pictures as well
            HtmlText(decode(package.read(name)), builder, outline=Outline(), first_line=None).read()
    return builder.document(form)


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
    raise UnreadableError("damaged: no book in it")


def _chapters(package: Package, opf: str, root: Any) -> Iterator[str]:
    folder = posixpath.dirname(opf)
    items = {
        item.get("id", ""): posixpath.normpath(posixpath.join(folder, unquote(item.get("href", "").partition("#")[0])))
        for item in root.iter("{*}item")
    }
    seen: set[str] = set()
    for reference in root.iter("{*}itemref"):
        name = items.get(reference.get("idref", ""), "")
        if name in package and name not in seen and not name.endswith((".svg", ".jpg", ".png")):
            seen.add(name)
            yield name
