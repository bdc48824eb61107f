"""Read e-mail: headers and body as text, and the names of attachments, which are documents of their own.

The plain version of a body is preferred. A mailbox (mbox) is a sequence of mails, each under its subject.
"""

from __future__ import annotations

import base64
import email
import email.errors
import email.header
import re
from email.policy import Compat32
from functools import partial
from mimetypes import MimeTypes
from typing import TYPE_CHECKING

from ....core.errors import UnreadableError, UnsupportedError
from ..document_builder import DocumentBuilder, HeadingStack
from ..markup.html_text import HtmlReader
from ..plain_text.encoding import decode
from .members import Member

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

    from ...documents.document import Document

_HEADERS = ("Subject", "From", "To", "Cc", "Date")
_SKIPPED_TYPES = frozenset({"text/css", "text/javascript"})  # parts of a saved web page
_INLINE_TYPES = frozenset(
    {"text/plain", "text/html", "text/x-patch", "text/x-diff"}
)  # read as part of the mail, even with a file name
# Invitations and contacts, with their endings: attached also where they are another version of the body.
_CARDS = {"text/calendar": ".ics", "text/vcard": ".vcf", "text/x-vcard": ".vcf"}
_ENDINGS = MimeTypes()  # its own table, without those of the machine
_NO_BASE64 = re.compile(rb"[^A-Za-z0-9+/]")
_MAX_DEPTH = 20
_MAX_PARTS = 2_000
_TOO_MANY = "it has more parts, or deeper nested ones, than any mail program makes"
_MAX_HEADER = 4_000
_ENVELOPE = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From [^\n]*\n(?=[\w-]+:)")  # followed by a header

_QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)  # an escaped line that would otherwise begin a mail


def read_mail(data: bytes, format_name: str) -> Document:
    """Read one mail."""
    reader = _MailReader()
    reader.read(data)
    return reader.document(format_name)


def read_mailbox(data: bytes, format_name: str) -> Document:
    """Read a mailbox, with each subject as a heading."""
    reader = _read_mails(data)
    reader.builder.title = ""  # otherwise an HTML page in one of the mails would give the title
    return reader.document(format_name)


def _read_mails(data: bytes) -> _MailReader:
    reader = _MailReader(is_mailbox=True)
    for mail in _ENVELOPE.split(data):
        if mail.strip():
            reader.read(_QUOTED.sub(rb"\1", mail))
    return reader


def attachments(data: bytes, name: str) -> Iterator[Member]:  # noqa: ARG001 - one signature for all
    """List the attachments of a mail."""
    reader = _MailReader()
    reader.read(data)
    return reader.members()


def mailbox_attachments(data: bytes, name: str) -> Iterator[Member]:  # noqa: ARG001 - one signature for all
    """List the attachments of all mails in a mailbox."""
    return _read_mails(data).members()


class _RawHeaders(Compat32):
    """Decode headers with bare bytes beyond ASCII; the standard library puts U+FFFD for each such byte."""

    def header_fetch_parse(self, name: str, value: str) -> str:  # noqa: ARG002 - the signature of the library
        return value if value.isascii() else _decoded(value.encode("utf-8", "surrogateescape"), "")


class _MailReader:
    """Add mails to a builder, one by one."""

    def __init__(self, *, is_mailbox: bool = False) -> None:
        self.builder = DocumentBuilder()
        self.attachments: list[str] = []
        self.attached: list[Message] = []
        self._is_mailbox = is_mailbox
        self._headings = HeadingStack()
        self._parts = 0

    def read(self, data: bytes) -> None:
        """Add one mail."""
        try:
            message = email.message_from_bytes(data, policy=_RawHeaders())
        except RecursionError:
            raise UnreadableError("its parts are nested too deeply") from None
        self._parts = 0
        self._add_message(message, 0)

    def document(self, format_name: str) -> Document:
        """The document of all mails so far."""
        if self.attachments:
            self.builder.metadata["attachments"] = self.attachments
        return self.builder.document(format_name)

    def members(self) -> Iterator[Member]:
        """The attachments of all mails so far."""
        for name, part in zip(self.attachments, self.attached, strict=True):
            yield Member(name, len(str(part.get_payload())) * 3 // 4, partial(_bytes, part))

    def _add_message(self, message: Message, depth: int) -> None:
        headers = {name: _header(message, name) for name in _HEADERS}
        subject = headers["Subject"]
        if self._is_mailbox and not depth:
            self._headings.enter(0, subject)
        elif not depth:
            self.builder.title = subject
            self.builder.metadata |= {
                name.lower(): value for name, value in headers.items() if value and name != "Subject"
            }
        self._add("\n".join(f"{name}: {value}" for name, value in headers.items() if value))
        count = len(self.attachments)
        self._add_part(message, depth)
        names = self.attachments[count:]
        if names and not depth:
            self._add("Attachments: " + ", ".join(names))

    def _add_part(self, part: Message, depth: int) -> None:
        self._parts += 1
        if depth > _MAX_DEPTH or self._parts > _MAX_PARTS:
            raise UnreadableError(_TOO_MANY)
        kind = part.get_content_type()
        if kind == "message/rfc822":
            for inner in _children(part):
                self._add_message(inner, depth + 1)
        elif part.is_multipart():
            children = list(_children(part))
            chosen = _preferred(children) if kind == "multipart/alternative" else children
            for child in children:
                if child in chosen:
                    self._add_part(child, depth + 1)
                else:
                    self._add_files(child, depth + 1)
        elif _is_attachment(part, kind):
            self._attach(part)
        elif kind == "text/html":
            HtmlReader(_content(part), self.builder, headings=self._headings, first_line=None).read()
            self._headings.leave(1)
        elif part.get_content_maintype() == "text" and kind not in _SKIPPED_TYPES:
            self._add(_content(part))

    def _add_files(self, part: Message, depth: int) -> None:
        """Attach the files in another version of a body, such as HTML; pictures that it shows are none."""
        self._parts += 1
        if depth > _MAX_DEPTH or self._parts > _MAX_PARTS:
            raise UnreadableError(_TOO_MANY)
        if part.is_multipart():
            for child in _children(part):
                self._add_files(child, depth + 1)
        elif _is_attachment(part, kind := part.get_content_type()):
            is_shown = part.get("Content-ID") is not None or not _file_name(part)
            if part.get_content_disposition() == "attachment" or kind in _CARDS or not is_shown:
                self._attach(part)

    def _attach(self, part: Message) -> None:
        self.attachments.append(_file_name(part) or _unnamed(part.get_content_type()))
        self.attached.append(part)

    def _add(self, text: str) -> None:
        self.builder.add(text, heading=self._headings.path)


def _children(part: Message) -> Iterator[Message]:
    payload = part.get_payload()
    yield from (child for child in payload if not isinstance(child, str)) if isinstance(payload, list) else ()


def _preferred(versions: list[Message]) -> list[Message]:
    """Choose among versions of one body: the plain text unless it is empty, then HTML, then any other."""
    plain = [part for part in versions if part.get_content_type() == "text/plain" and _content(part).strip()]
    pages = [part for part in versions if part.is_multipart() or part.get_content_type() == "text/html"]
    return plain[:1] or pages[-1:] or versions[-1:]


def _is_attachment(part: Message, kind: str) -> bool:
    """Whether a part is a file beside the text, also without a name: any but text, and cards."""
    if part.get_content_disposition() == "attachment" or part.get_content_maintype() != "text" or kind in _CARDS:
        return True
    return bool(_file_name(part)) and kind not in _INLINE_TYPES


def _unnamed(kind: str) -> str:
    """The name of an attachment without one: its ending decides how it is read."""
    if kind == "application/octet-stream":
        return "unnamed"
    return "unnamed" + (_CARDS.get(kind) or _ENDINGS.guess_extension(kind) or "")


def _bytes(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return b""
    if any(isinstance(defect, email.errors.InvalidBase64LengthDefect) for defect in part.defects):
        # The mail was cut one letter behind a group of four, so the library gives the letters. The groups decode.
        letters = _NO_BASE64.sub(b"", payload)
        return base64.b64decode(letters[: len(letters) // 4 * 4])
    return payload


def _content(part: Message) -> str:
    try:
        return decode(_bytes(part), part.get_content_charset() or "")
    except UnsupportedError:
        return ""


def _header(message: Message, name: str) -> str:
    return _readable(message.get(name, ""))


def _file_name(part: Message) -> str:
    try:
        return _readable(part.get_filename() or "")
    except (ValueError, LookupError):  # the standard library raises these on some malformed names
        return "unnamed"


def _readable(value: object) -> str:
    """The text of a header, with encoded words decoded if they are valid."""
    raw = str(value)[:_MAX_HEADER]
    try:
        pieces = email.header.decode_header(raw) if raw.isascii() else [(raw, None)]
    except (email.errors.HeaderParseError, ValueError):
        pieces = [(raw, None)]
    return " ".join("".join(_decoded(piece, charset or "") for piece, charset in pieces).split())


def _decoded(piece: bytes | str, charset: str) -> str:
    if isinstance(piece, str):
        return piece
    try:
        return decode(piece, charset)
    except UnsupportedError:
        return piece.decode("latin-1")
