"""Read MSG, the messages of Outlook: headers and body as text. Attachments are documents of their own.

The properties are those of [MS-OXMSG]: each is a stream, named by its number and its type.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from functools import partial
from typing import TYPE_CHECKING

from .....core.errors import UnreadableError, UnsupportedError
from ...containers.members import Member
from ...document_builder import DocumentBuilder
from ...markup.html_text import HtmlReader
from ...plain_text.encoding import decode
from ...rtf import read_rtf
from .compound import CompoundFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....documents.document import Document

_SUBJECT, _SENDER, _ADDRESS, _SMTP, _TO, _COPY = "0037", "0C1A", "0C1F", "5D01", "0E04", "0E03"
_BODY, _RTF, _HTML = "1000", "1009", "1013"
_LONG_NAME, _SHORT_NAME, _CONTENT, _EMBEDDED = "3707", "3704", "3701", "3701000D"
_SENT, _RECEIVED, _CODE_PAGE = 0x0039, 0x0E06, 0x3FDE
_ATTACHMENT = re.compile(r"(.*__attach_version1\.0_#[0-9A-Fa-f]{8})/")
_MAX_DEPTH = 20
_MAX_RTF = 64 << 20  # bytes unpacked
_RTF_WORDS = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans Serif"
    rb"SymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n"
    rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)  # the text that a compressed RTF body may refer to before its own


def read_msg(data: bytes, format_name: str) -> Document:
    """Read one message."""
    message = _Message(CompoundFile(data), "")
    builder = DocumentBuilder(title=message.text(_SUBJECT))
    headers = message.headers()
    builder.metadata |= {name.lower(): value for name, value in headers.items() if name != "Subject"}
    message.add(builder)
    if names := [name for name, _ in message.attachments()]:
        builder.metadata["attachments"] = names
        builder.add("Attachments: " + ", ".join(names))
    return builder.document(format_name)


def attachments(data: bytes, name: str) -> Iterator[Member]:  # noqa: ARG001 - one signature for all
    """List the files attached to a message."""
    file = CompoundFile(data)
    for title, path in _Message(file, "").attachments():
        stream = f"{path}/__substg1.0_{_CONTENT}0102"
        yield Member(title, file.size(stream), partial(file.read, stream))


class _Message:
    """The properties of a message, or of one that is attached to another."""

    def __init__(self, file: CompoundFile, path: str, depth: int = 0) -> None:
        if depth > _MAX_DEPTH:
            raise UnreadableError("it has deeper nested messages than any mail program makes")
        self._file, self._path, self._depth = file, path, depth
        self._numbers = self._fixed()
        code_page = self._numbers.get(_CODE_PAGE, b"")[:4]
        self._charset = f"cp{int.from_bytes(code_page, 'little')}" if code_page else ""

    def _fixed(self) -> dict[int, bytes]:
        """The properties of a fixed size, by number: 8 bytes each."""
        stream = self._file.read(self._path + "__properties_version1.0")
        records = (stream[at : at + 16] for at in range(24 if self._path else 32, len(stream) - 15, 16))
        return {struct.unpack_from("<H", record, 2)[0]: record[8:] for record in records}

    def _stream(self, number: str, kind: str) -> bytes:
        return self._file.read(f"{self._path}__substg1.0_{number}{kind}")

    def text(self, number: str, path: str = "") -> str:
        """The value of a property of text, "" if there is none."""
        if unicode := self._stream(path + number, "001F"):
            return unicode.decode("utf-16-le", "replace").rstrip("\0")
        return self._decoded(self._stream(path + number, "001E")).rstrip("\0")

    def _decoded(self, data: bytes) -> str:
        try:
            return decode(data, {"cp65001": "utf-8", "cp28591": "latin-1"}.get(self._charset, self._charset))
        except UnsupportedError:
            return ""

    def headers(self) -> dict[str, str]:
        """The headers that a person sees, without empty ones."""
        name, address = self.text(_SENDER), self.text(_SMTP) or self.text(_ADDRESS)
        sender = f"{name} <{address}>" if "@" in address and address != name else name or address
        headers = {"Subject": self.text(_SUBJECT), "From": sender, "To": self.text(_TO), "Cc": self.text(_COPY)}
        headers["Date"] = _date(self._numbers.get(_SENT) or self._numbers.get(_RECEIVED) or b"")
        return {name: " ".join(value.split()) for name, value in headers.items() if value.strip()}

    def add(self, builder: DocumentBuilder) -> None:
        """Add the message, and the messages attached to it."""
        builder.add("\n".join(f"{name}: {value}" for name, value in self.headers().items()))
        self._add_body(builder)
        for path in self._attachment_paths():
            inner = f"{path}/__substg1.0_{_EMBEDDED}/"
            if inner + "__properties_version1.0" in self._file:
                _Message(self._file, inner, self._depth + 1).add(builder)

    def _add_body(self, builder: DocumentBuilder) -> None:
        html = self._stream(_HTML, "0102") or self._stream(_HTML, "001E")
        if (plain := self.text(_BODY)).strip():
            builder.add(plain)
        elif html:
            title = builder.title
            HtmlReader(self._decoded(html), builder, first_line=None).read()
            builder.title = title
        elif (packed := self._stream(_RTF, "0102")) and (body := unpack_rtf(packed)).startswith(b"{\\rtf"):
            builder.add(read_rtf(body, "rtf").text)

    def attachments(self) -> Iterator[tuple[str, str]]:
        """The name and the path of each file attached to the message."""
        for path in self._attachment_paths():
            if f"{path}/__substg1.0_{_CONTENT}0102" in self._file:
                inside = _Message(self._file, path + "/", self._depth + 1)
                yield inside.text(_LONG_NAME) or inside.text(_SHORT_NAME) or "unnamed", path

    def _attachment_paths(self) -> list[str]:
        matches = map(_ATTACHMENT.match, self._file.names)
        paths = {match[1] for match in matches if match and match[1].rpartition("/")[0] == self._path.rstrip("/")}
        return sorted(paths)


def _date(value: bytes) -> str:
    """Write a time of Windows, in units of 100 ns since 1601, in UTC."""
    ticks = int.from_bytes(value[:8], "little")
    if not 0 < ticks < 2**62:
        return ""
    try:
        moment = dt.datetime(1601, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=ticks // 10)
    except OverflowError:
        return ""
    return moment.strftime("%a, %d %b %Y %H:%M:%S +0000")


def unpack_rtf(data: bytes) -> bytes:
    """Unpack a compressed RTF body ([MS-OXRTFCP]): literal bytes, and references to the 4,096 before."""
    if len(data) < 16 or data[8:12] != b"LZFu":
        return data[16:]
    (size,) = struct.unpack_from("<I", data, 4)
    text = bytearray(_RTF_WORDS)
    start, position = len(text), 16
    limit = start + min(size, _MAX_RTF)
    while position < len(data) and len(text) < limit:
        flags, position = data[position], position + 1
        for bit in range(8):
            if position + 1 >= len(data):
                return bytes(text[start:])
            if not flags >> bit & 1:
                text.append(data[position])
                position += 1
                continue
            reference = int.from_bytes(data[position : position + 2], "big")
            position += 2
            offset, length = reference >> 4, (reference & 0xF) + 2
            back = (len(text) - offset) % 4_096
            if not back:
                return bytes(text[start:limit])
            for _ in range(length):
                text.append(text[-back])
    return bytes(text[start:limit])
