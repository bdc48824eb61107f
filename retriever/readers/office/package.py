"""ZIP packages of XML (Office Open XML, OpenDocument, EPUB), opened under limits and without trust."""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from lxml import etree

from ....core.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

Relations = dict[str, tuple[str, str]]  # relation id -> last word of its type, name of the part it leads to

MAX_ENTRIES = 20_000
MAX_INFLATED = 256 << 20  # bytes in all, counted while inflating
MAX_XML = 96 << 20  # bytes of one XML file that is held as a tree
_READ_SIZE = 1 << 16
_NO_MEMORY = 2  # libxml2's XML_ERR_NO_MEMORY
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, OverflowError, NotImplementedError, KeyError)


def local_name(element: Any) -> str:
    """An element's name without its namespace: Strict and Transitional files differ only in that."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(element: Any, name: str) -> str | None:
    """An attribute by its local name, whatever its namespace."""
    value = element.get(name)
    if value is not None:
        return str(value)
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return str(value)
    return None


def parse_digits(text: str | None) -> int | None:
    """The number that a text of digits is, None for any other text."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else None


def parse_xml(data: bytes, *, recover: bool = False, encoding: str | None = None) -> Any:
    """The root element.

    Entities are expanded only if declared in the file itself, and never beyond libxml2's limit of amplification;
    nothing is loaded from outside.

    :param encoding: what it is in, whatever it says.
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
        if getattr(error, "code", 0) == _NO_MEMORY:  # an attribute the stubs lack
            raise MemoryError from None
        raise UnreadableError(f"damaged XML: {_first_line(error)}") from None
    if root is None:
        raise UnreadableError("damaged XML: no element in it")
    return root


def _first_line(error: Exception) -> str:
    message = str(error).partition("\n")[0]
    return message.partition(", use XML_PARSE_HUGE")[0].removesuffix(" (<string>, line 1)")[:200]


class Package:
    """The files in a ZIP, their names as the formats write them."""

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(BytesIO(data))
            entries = self._zip.infolist()
        except _DAMAGED as error:
            raise UnreadableError(f"damaged: not a whole ZIP file ({error})") from None
        if len(entries) > MAX_ENTRIES:
            raise UnreadableError(f"it packs {len(entries):,} files; more than {MAX_ENTRIES:,} are not opened")
        self._entries = {entry.filename.replace("\\", "/").lstrip("/").lower(): entry for entry in entries}
        self._bytes_left = MAX_INFLATED
        self._relations: dict[str, Relations] = {}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._entries

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def read(self, name: str) -> bytes:
        """The bytes of one file, b"" if it is not there."""
        entry = self._entries.get(name.lower())
        if entry is None:
            return b""
        try:
            with self._zip.open(entry) as file:
                data = self._inflate(file)
        except NotImplementedError as error:  # a RuntimeError, but of an unknown compression
            raise UnreadableError(f"{entry.filename!r} inside does not unpack ({error})") from None
        except RuntimeError:
            raise UnreadableError("password-protected") from None
        except _DAMAGED as error:
            raise UnreadableError(f"damaged: {entry.filename!r} inside does not unpack ({error})") from None
        if self._bytes_left < 0:
            raise UnreadableError(f"it unpacks to more than {MAX_INFLATED >> 20} MB")
        return data

    def _inflate(self, file: IO[bytes]) -> bytes:
        """What a file unpacks to, but no more than the package still may."""
        pieces = []
        while self._bytes_left >= 0 and (piece := file.read(_READ_SIZE)):
            self._bytes_left -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def xml(self, name: str) -> Any | None:
        """The root of one XML file; None if there is no such file."""
        return parse_xml(self.read(name)) if name in self else None

    def tree(self, name: str) -> Any:
        """The root of an XML file that a relation promises."""
        return parse_xml(self.read(name))

    def relations(self, part: str) -> Relations:
        """Of an Office Open XML part."""
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
        """The parts of one kind that a part refers to."""
        for relation_type, target in self.relations(part).values():
            if relation_type == kind and target in self:
                yield target

    def part_of(self, part: str, element: Any) -> str:
        """The part that an element of another part names by its relation's id, "" where there is none."""
        identity = next((value for key, value in element.attrib.items() if key.endswith("}id")), "")
        _, target = self.relations(part).get(identity, ("", ""))
        return target if target in self else ""

    def main_part(self, usual: str) -> str:
        return next(self.related("", "officeDocument"), usual)

    def main(self, usual: str, name: str) -> tuple[str, Any]:
        """The main part and its root; `name` is what it is called where it is missing."""
        part = self.main_part(usual)
        root = self.xml(part)
        if root is None:
            raise UnreadableError(f"damaged: no {name} in it")
        return part, root

    def title(self) -> str:
        """The title in the document properties."""
        root = self.xml(next(self.related("", "core-properties"), "docProps/core.xml"))
        for element in root if root is not None else ():
            if local_name(element) == "title":
                return (element.text or "").strip()
        return ""
