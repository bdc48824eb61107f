"""Estimate the work to index a folder: the number of files, and roughly the time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....core.runtime.device import usable_cores
from ....core.units import count_of
from ...documents.scan import scan
from ...readers.detect import ending_of
from ...readers.formats import FORMATS, KEEP_LINES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PASSAGES_PER_CORE = 60  # a second; short ones take half as long

# Bytes of a passage, from the Rust book (Markdown) and a folder of office files, PDF and HTML.
_TEXT_BYTES, _OTHER_BYTES = 800, 8_000
_TEXT_READERS = (".plain_text.", *KEEP_LINES)


@dataclass(frozen=True, slots=True)
class IndexingEstimate:
    """The files of a folder that have a reader."""

    files: int
    seconds: float  # to index them on this machine, roughly
    is_whole: bool  # else there are more: the folder takes long to look through

    def __str__(self) -> str:
        prefix = "" if self.is_whole else "more than "
        files = f"{prefix}{count_of(self.files, 'file')}"
        return f"{files}, {_rough(self.seconds)}{'' if self.is_whole else ' or more'}"


def estimate(
    root: Path,
    *,
    leave_out: Path | None = None,
    within: Sequence[str] = (),
    exclude: Sequence[str] = (),
    seconds: float = 1.0,
) -> IndexingEstimate:
    """Look through a folder, without opening a file of it.

    :param within: as `leave_out` and `exclude`, a parameter of `scan`.
    :param seconds: to look at most.
    """
    files, passages, end = 0, 0.0, time.monotonic() + seconds
    for entry in scan(root, leave_out=leave_out, within=within, exclude=exclude):
        if time.monotonic() > end:
            return IndexingEstimate(files, _seconds(passages), is_whole=False)
        if not entry.reason and (reader := FORMATS.get(ending_of(entry.path))):
            files += 1
            passages += 1 + entry.size / (_TEXT_BYTES if reader[1].startswith(_TEXT_READERS) else _OTHER_BYTES)
    return IndexingEstimate(files, _seconds(passages), is_whole=True)


def _seconds(passages: float) -> float:
    return passages / (_PASSAGES_PER_CORE * usable_cores())


def _rough(seconds: float) -> str:
    for name, length in (("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = round(seconds / length)
            return f"about {count} {name}{'s' * (count != 1)}"
    return "less than a minute"
