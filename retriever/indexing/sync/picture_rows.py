"""The rows of files with pictures: the languages of OCR for each, and the files to read again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ....core.errors import DamagedError, InputError
from ...documents.document import OCR, metadata_of
from ...readers.detect import ending_of
from ...readers.ocr import choose_languages
from ...readers.pictures import PICTURE_FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...store.snapshot import Snapshot
    from ...store.store import Store

    Row = dict[str, Any]

_READ = re.compile(r"\(OCR: ([^()]+)\)")
_PASSED_OVER = ("(scanned", "(--ocr ")  # in the reason of a file with pictures that were not read


def languages_of(row: Row) -> str:
    """The languages that OCR read a file's pictures in; "" if it read none, or the row is damaged."""
    if f'"{OCR}"' in (row["metadata"] or ""):
        try:
            languages = metadata_of(row).get(OCR)
        except DamagedError:
            return ""
        return languages if isinstance(languages, str) else "eng" if languages is True else ""
    match = _READ.search(row["reason"] or "")
    return match[1] if match else ""


def latest_languages(rows: Iterable[Row]) -> str:
    """The languages that OCR read pictures in last; "" if it read none."""
    latest = max((row for row in rows if languages_of(row)), key=lambda row: int(row["id"]), default=None)
    return languages_of(latest) if latest else ""


def languages_from_now_on(
    ocr: bool | None, choice: str | None, store: Store | None, snapshot: Callable[[], Snapshot]
) -> str | None:
    """The languages to read the pictures of an index in from now on: "" to read none, None as before.

    :param choice: the languages that the user names, if any.
    :param store: the index, None if there is none yet.
    :raises InputError: when Tesseract is not installed, or lacks one of them.
    """
    if choice and ocr is not None and not ocr:
        raise InputError(f"ocr_language={choice!r} reads pictures, and ocr=False reads none: expected one of them")
    if not choice and not ocr:
        return None if ocr is None else ""
    if choice or store is None:
        return choose_languages(choice or "")
    return choose_languages(before=store.settings.ocr or latest_languages(snapshot().document_rows.to_pylist()))


def is_to_read(row: Row, languages: str) -> bool:
    """Whether pictures of a file were passed over, or read in other languages than these."""
    before, reason = languages_of(row), row["reason"]
    if before:
        return before != languages
    is_image = ending_of(row["path"]) in PICTURE_FORMATS and reason.startswith("no reader for")
    return is_image or any(words in reason for words in _PASSED_OVER)
