"""Open ZIP packages of XML (Office Open XML, OpenDocument, EPUB) under limits, trusting nothing in them."""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from lxml import etree

from ....core.errors import UnreadableError
from ...documents.document import add_unread
from ..containers.cut_zip import CutZip
from ..containers.zip_directory import open_zip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..document_builder import DocumentBuilder

Relations = dict[str, tuple[str, str]]  # relation id -> last word of its type, name of the target part

MAX_ENTRIES = 20_000
MAX_INFLATED = 256 << 20  # bytes of all files together, counted while inflating
MAX_XML = 96 << 20  # bytes of one XML file that is parsed as a tree
_READ_SIZE = 1 << 16
_MAX_LISTED = 5  # damaged files in a reason
_NO_MEMORY = 2  # libxml2's XML_ERR_NO_MEMORY
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, OverflowError, NotImplementedError, KeyError)


class DamagedPartError(UnreadableError):
    """A file in a package is damaged. The others may be whole."""


def local_name(element: Any) -> str:
    """The name of an element without its namespace: Strict and Transitional files differ only in the namespace."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(element: Any, name: str) -> str | None:
    """An attribute of any namespace, by its local name."""
    value = element.get(name)
    if value is not None:
        return str(value)
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return str(value)
    return None


def property_of(element: Any, properties: str, name: str) -> str | None:
    """The value of a property of an element; "" for a property without a value, None without the property.

    :param properties: local name of the child that has the properties, such as pPr.
    """
    children = (child for group in element if local_name(group) == properties for child in group)
    return next((attribute(child, "val") or "" for child in children if local_name(child) == name), None)


def parse_digits(text: str | None) -> int | None:
    """The number that a text of at most nine digits stands for; None for any other text."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else None


def parse_xml(data: bytes, *, recover: bool = False, encoding: str | None = None) -> Any:
    """Parse XML, and return the root element.

    Only entities that the file itself declares are expanded, within libxml2's limit of amplification. Nothing is loaded
    from outside.

    :param recover: read on after errors, as far as possible.
    :param encoding: the encoding, against any declaration in the file.
    """
    if len(data) > MAX_XML:
        raise UnreadableError(f"it holds an XML file of more than {MAX_XML >> 20} MB")
    parser = etree.XMLParser(
        encoding=encoding,
        resolve_entities="internal",  # type: ignore[arg-type]  # the stubs know only the older booleans
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        recover=recover,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        if getattr(error, "code", 0) == _NO_MEMORY:  # the stubs lack this attribute
            raise MemoryError from None
        raise DamagedPartError(f"damaged XML: {_first_line(error)}") from None
    if root is None:
        raise DamagedPartError("damaged XML: no element in it")
    return root


def _first_line(error: Exception) -> str:
    message = str(error).partition("\n")[0]
    return message.partition(", use XML_PARSE_HUGE")[0].removesuffix(" (<string>, line 1)")[:200]


class Package:
    """The files in a ZIP, by name in any case of letters."""

    def __init__(self, data: bytes) -> None:
        self._cut = ""  # why only the files up to a cut are there
        self._zip: zipfile.ZipFile | CutZip
        try:
            self._zip = open_zip(data)
            entries = self._zip.infolist()
        except _DAMAGED as error:
            self._cut, self._zip = f"not a whole ZIP file ({error})", CutZip(data, MAX_ENTRIES + 1, MAX_INFLATED + 1)
            entries = self._zip.infolist()
        if self._cut and not entries:
            raise UnreadableError(f"damaged: {self._cut}")
        if len(entries) > MAX_ENTRIES:
            raise UnreadableError(f"it packs {len(entries):,} files; more than {MAX_ENTRIES:,} are not opened")
        self._entries = {entry.filename.replace("\\", "/").lstrip("/").lower(): entry for entry in entries}
        self._bytes_left = MAX_INFLATED
        self._relations: dict[str, Relations] = {}
        self._damaged: dict[str, None] = {}  # names in order

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._entries

    @property
    def names(self) -> list[str]:
        """The names of all files, in lower case."""
        return list(self._entries)

    def read(self, name: str) -> bytes:
        """The bytes of one file; b"" if there is no such file."""
        entry = self._entries.get(name.lower())
        if entry is None:
            return b""
        try:
            with self._zip.open(entry) as file:
                data = self._inflate(file)
        except NotImplementedError as error:  # a RuntimeError too, for an unknown compression
            raise DamagedPartError(f"{entry.filename!r} inside does not unpack ({error})") from None
        except RuntimeError:
            raise UnreadableError("password-protected") from None
        except _DAMAGED as error:
            raise DamagedPartError(f"damaged: {entry.filename!r} inside does not unpack ({error})") from None
        if self._bytes_left < 0:
            raise UnreadableError(f"it unpacks to more than {MAX_INFLATED >> 20} MB")
        return data

    def size(self, name: str) -> int:
        """The size of one file, unpacked, and the most that `read` returns of it; 0 if there is no such file."""
        entry = self._entries.get(name.lower())
        return entry.file_size if entry else 0

    def picture(self, name: str, limit: int = MAX_INFLATED) -> bytes:
        """The bytes of a picture, or the first of them; b"" if it is damaged. They do not count as the file's text."""
        try:
            with self._zip.open(self._entries[name.lower()]) as file:
                return file.read(limit)
        except (RuntimeError, *_DAMAGED):  # a RuntimeError for a password
            return b""

    def _inflate(self, file: IO[bytes]) -> bytes:
        """Unpack a file, up to the bytes that the package may still unpack to."""
        pieces = []
        while self._bytes_left >= 0 and (piece := file.read(_READ_SIZE)):
            self._bytes_left -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def xml(self, name: str) -> Any | None:
        """The root element of an XML file; None if there is no such file, or it is damaged."""
        if name in self:
            with self.spared(name):
                return self.tree(name)
        return None

    def tree(self, name: str) -> Any:
        """The root element of an XML file that must be there."""
        return parse_xml(self.read(name))

    @contextmanager
    def spared(self, name: str) -> Iterator[None]:
        """Go on after damage of a file, and note it: the text of the others is still read."""
        try:
            yield
        except DamagedPartError:
            self._damaged[name] = None

    def describe(self, builder: DocumentBuilder) -> None:
        """Note in the metadata that damaged files, and files behind a cut, were not read.

        :raises UnreadableError: when the others have no text.
        """
        if self._cut:
            if not builder.length:
                raise UnreadableError(f"damaged: {self._cut}")
            add_unread(builder.metadata, "the file is cut, and its end is missing")
        if self._damaged:
            verb = "is" if len(self._damaged) == 1 else "are"
            names = ", ".join(map(repr, list(self._damaged)[:_MAX_LISTED])) + ", …" * (len(self._damaged) > _MAX_LISTED)
            reason = f"{names} inside {verb} damaged"
            if not builder.length:
                raise UnreadableError(f"damaged: {reason}")
            add_unread(builder.metadata, reason)

    def relations(self, part: str) -> Relations:
        """The relations of an Office Open XML part to other parts."""
        if part not in self._relations:
            self._relations[part] = self._read_relations(part)
        return self._relations[part]

    def _read_relations(self, part: str) -> Relations:
        folder, name = posixpath.split(part)
        root = self.xml(posixpath.join(folder, "_rels", name + ".rels"))
        relations: Relations = {}
        for relation in root if root is not None else ():
            if local_name(relation) == "Relationship" and relation.get("TargetMode") != "External":
                target = unquote(relation.get("Target", "")).replace("\\", "/")
                kind = relation.get("Type", "").rpartition("/")[2]
                relations[relation.get("Id", "")] = (
                    kind,
                    posixpath.normpath(posixpath.join("/" + folder, target)).lstrip("/"),
                )
        return relations

    def related(self, part: str, kind: str) -> Iterator[str]:
        """The parts of one kind that a part points to."""
        for relation_type, target in self.relations(part).values():
            if relation_type == kind and target in self:
                yield target

    def part_of(self, part: str, element: Any) -> str:
        """The part that an element points to by a relation id; "" if there is none.

        :param part: the part that holds the element.
        """
        identity = next((value for key, value in element.attrib.items() if key.endswith("}id")), "")
        _, target = self.relations(part).get(identity, ("", ""))
        return target if target in self else ""

    def main_part(self, usual: str) -> str:
        """The name of the main part; `usual` if the package does not tell."""
        return next(self.related("", "officeDocument"), usual)

    def main(self, usual: str, name: str) -> tuple[str, Any]:
        """The name of the main part and its root element.

        :param name: the kind of document, for the error if there is no main part.
        """
        part = self.main_part(usual)
        if part not in self:
            raise self.without(name)
        return part, self.tree(part)

    def without(self, name: str) -> UnreadableError:
        """Return the error of a package without its main part."""
        return UnreadableError(f"damaged: {self._cut or f'no {name} in it'}")

    def title(self) -> str:
        """The title in the document properties."""
        root = self.xml(next(self.related("", "core-properties"), "docProps/core.xml"))
        for element in root if root is not None else ():
            if local_name(element) == "title":
                return (element.text or "").strip()
        return ""
