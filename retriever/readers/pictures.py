"""Read the text in pictures: images, PDF pages without text, and pictures in Office files and e-books.

`ocr` runs Tesseract. Here are the limits for one file, and the words for pictures that are not read.
"""

from __future__ import annotations

import posixpath
import re
import time
from typing import TYPE_CHECKING

from ...core.errors import UnreadableError
from ..documents.document import BESIDE, OCR, add_unread
from .detect import ending_of
from .document_builder import DocumentBuilder
from .formats import FORMATS

if TYPE_CHECKING:
    from ..documents.document import Document
    from .formats import Format
    from .office.package import Package

_SECONDS, _ALL_SECONDS = 60, 200  # for one picture, and for all pictures of a file
_MAX_PICTURES = 200  # of an Office file or an e-book
_MAX_BYTES, _MAX_ALL_BYTES = 32 << 20, 128 << 20  # of one picture in it, and of all
_MIN_BYTES = 1_000  # a smaller picture is a line or an icon
_PIXELS = 1_000  # of a picture, for each character that it may hold
_PAGE = 3_000  # characters in a picture at most, and in one of unknown size
_HEAD_BYTES = 64 << 10  # of a picture: its size stands in them
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the markers in a JPEG that its height and width follow
_WORD = re.compile(r"\w{3}")  # in photographs, Tesseract sees a letter or two

_ENDINGS = (".png", ".jpg", ".jpeg", ".jpe", ".tif", ".tiff", ".bmp", ".webp", ".gif")
PICTURE_FORMATS: dict[str, Format] = dict.fromkeys(_ENDINGS, ("image", ".pictures:read_image"))
WITH_PICTURES = frozenset(
    {"image", "pdf", "docx", "pptx", "xlsx", "odt", "odp", "ods", "epub"}
)  # their readers take Pictures


def may_have_pictures(path: str) -> bool:
    """Whether a file is named like an image, or like a file with pictures."""
    ending = ending_of(path)
    return ending in PICTURE_FORMATS or FORMATS.get(ending, ("",))[0] in WITH_PICTURES


def read_image(data: bytes, format_name: str, pictures: Pictures) -> Document:
    """Read the text in an image."""
    from .ocr import recognize

    builder = DocumentBuilder(metadata={OCR: pictures.languages})
    builder.add(recognize(data, pictures.languages, _SECONDS))
    return builder.document(format_name)


class Pictures:
    """The pictures of one file: reads their text within limits, and counts the unread ones."""

    def __init__(self, languages: str = "") -> None:
        """:param languages: to read them in, as Tesseract names them: "deu+eng"; "" to read none."""
        self.languages = languages
        self._end = time.monotonic() + _ALL_SECONDS
        self._shown: set[str] = set()
        self._bytes = 0
        self._unread = 0
        self._characters = 0  # that the unread pictures may hold
        self._is_used = False

    def text(self, picture: bytes) -> str | None:
        """The text in a picture; None if it cannot be read, or no time is left for it.

        :raises UnreadableError: when Tesseract is gone. The file then fails, instead of losing its text.
        """
        from .ocr import find_command, recognize

        find_command()
        self._is_used = True
        left = self._end - time.monotonic()
        try:
            return recognize(picture, self.languages, min(left, _SECONDS)) if left > 1 else None
        except UnreadableError:  # the other pictures are still read
            return None

    def text_in(self, package: Package, name: str) -> str:
        """The text in a picture of an Office file or an e-book, where it is shown first; "" everywhere else.

        :param name: of the file in the package.
        """
        size = package.size(name)
        if name in self._shown or posixpath.splitext(name.lower())[1] not in PICTURE_FORMATS or size < _MIN_BYTES:
            return ""
        self._shown.add(name)
        self._bytes += size
        is_within = len(self._shown) <= _MAX_PICTURES and size <= _MAX_BYTES and self._bytes <= _MAX_ALL_BYTES
        text = self.text(package.picture(name)) if self.languages and is_within else None
        if text is None:
            self._unread += 1
            self._characters += _capacity(package.picture(name, _HEAD_BYTES))
        return text if text and _WORD.search(text) else ""

    def describe(self, builder: DocumentBuilder) -> None:
        """Add the languages to the metadata of the file, and the number of pictures that were not read.

        A file with a logo is not read in part: the reason says so if the pictures hold less than a third of the text.
        """
        if self._is_used:
            builder.metadata[OCR] = self.languages
        if self._unread:
            count = f"{self._unread:,} {'picture' if self._unread == 1 else 'pictures'}"
            beside = f" {BESIDE}" if 2 * self._characters < builder.length else ""
            how = f"OCR: {self.languages}" if self.languages else "--ocr reads them"
            add_unread(builder.metadata, f"{count}{beside} not read ({how})")


def _capacity(head: bytes) -> int:
    """The number of characters that a picture may hold.

    :param head: its first bytes.
    """
    width, height = _size(head)
    return min(width * height // _PIXELS, _PAGE) if width and height else _PAGE


def _size(head: bytes) -> tuple[int, int]:
    """The width and the height of a picture in pixels; zeros if its format or its size is not known."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    if head.startswith(b"GIF8"):
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    if head.startswith(b"BM"):
        height = int.from_bytes(head[22:26], "little", signed=True)  # negative if the first row is at the top
        return int.from_bytes(head[18:22], "little"), abs(height)
    return _jpeg_size(head) if head.startswith(b"\xff\xd8") else (0, 0)


def _jpeg_size(head: bytes) -> tuple[int, int]:
    position = 2
    while head[position : position + 1] == b"\xff":
        if head[position + 1 : position + 2] and head[position + 1] in _FRAMES:
            return int.from_bytes(head[position + 7 : position + 9]), int.from_bytes(head[position + 5 : position + 7])
        position += 2 + int.from_bytes(head[position + 2 : position + 4])
    return 0, 0
