"""Read pictures of text with Tesseract: images, and PDF pages without text. Only runs with `--ocr` do so.

Tesseract is a command of the system, in a process of its own that ends with a limit. Smith, 2007, "An Overview of the
Tesseract OCR Engine".
"""

from __future__ import annotations

import shutil
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING

from ...core.errors import InputError, UnreadableError
from .base import DocumentBuilder

if TYPE_CHECKING:
    from ..documents.document import Document
    from .formats import Format

COMMAND = "tesseract"
_SECONDS, _ALL_SECONDS = 60, 200  # for one picture, and for all pictures of a file

_ENDINGS = (".png", ".jpg", ".jpeg", ".jpe", ".tif", ".tiff", ".bmp", ".webp", ".gif")
FORMATS: dict[str, Format] = {
    **dict.fromkeys(_ENDINGS, ("image", f"{__name__}:read_image")),
    ".pdf": ("pdf", f"{__name__}:read_scanned_pdf"),
}


def require() -> None:
    """Check that Tesseract is installed.

    :raises InputError: when it is not.
    """
    if shutil.which(COMMAND) is None:
        raise InputError(
            f"OCR needs the command {COMMAND}, which is not installed: on Debian, apt install tesseract-ocr"
        )


def read_image(data: bytes, format_name: str) -> Document:
    """Read the text in an image."""
    builder = DocumentBuilder(metadata={"ocr": True})
    builder.add(recognize(data, _SECONDS))
    return builder.document(format_name)


def read_scanned_pdf(data: bytes, format_name: str) -> Document:
    """Read a PDF, and the text in pictures of pages that have no other."""
    from .pdf import read_pdf

    return read_pdf(data, format_name, recognize=partial(_within, time.monotonic() + _ALL_SECONDS))


def _within(deadline: float, picture: bytes) -> str:
    """Read a picture if time is left for it; "" if not, or if Tesseract cannot."""
    left = deadline - time.monotonic()
    try:
        return recognize(picture, min(left, _SECONDS)) if left > 1 else ""
    except UnreadableError:  # the other pages are still read
        return ""


def recognize(picture: bytes, seconds: float) -> str:
    """Return the text in a picture, as Tesseract sees it.

    :raises UnreadableError: when it is no picture, or takes too long.
    """
    command = shutil.which(COMMAND)
    if command is None:
        raise UnreadableError("Tesseract is not installed")
    try:
        done = subprocess.run(  # noqa: S603 - no argument comes from a file
            [command, "stdin", "stdout"],
            input=picture,
            capture_output=True,
            timeout=seconds,
            check=False,
            env={"OMP_THREAD_LIMIT": "1", "PATH": "/usr/bin:/bin"},
        )
    except subprocess.TimeoutExpired:
        raise UnreadableError(f"Tesseract took longer than {seconds:.0f} s") from None
    if done.returncode:
        raise UnreadableError("Tesseract cannot read it as a picture")
    return done.stdout.decode("utf-8", "replace").replace("\x0c", "\n")
