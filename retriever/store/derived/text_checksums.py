"""Checksums of the segments of Lance's full-text index, so that nobody opens a damaged one.

Lance trusts the sizes that a segment states, and a size that is too large ends the process. So the commit that adds a
segment notes its checksum in `full-text.json`. A segment does not change once it is written. A segment without a note
is from an earlier version. Object storage keeps an object completely or not at all, so there checksums are empty.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ....core.files import open_regular
from ..locations.location import ANY
from ..tables import FULL_TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable

    import lance

    from ..locations.location import Location
    from ..tables import TableLocation

_FILE = "full-text.json"


def segments(table: lance.LanceDataset) -> frozenset[str]:
    """Return the names of the segments; it reads the table's manifest alone."""
    return frozenset(segment.uuid for index in table.describe_indices() for segment in index.segments)


def noted(location: Location) -> dict[str, str]:
    """Return the noted checksum of each segment, by name; {} if the note is unreadable or of other settings."""
    try:
        note = json.loads(location.read(_FILE)[0])
        checksums = note["segments"] if note["analysis"] == _analysis() else {}
        return {name: checksum for name, checksum in checksums.items() if isinstance(checksum, str)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def note(location: Location, names: Iterable[str], *, keep: Iterable[str] = ()) -> None:
    """Note the checksums of segments that this process wrote.

    :param keep: segments with a note that stays.
    """
    before = noted(location)
    checksums = {name: before[name] for name in sorted(keep) if name in before}
    checksums |= {name: _checksum(location.table("chunks"), name) for name in sorted(names)}
    location.write(_FILE, json.dumps({"analysis": _analysis(), "segments": checksums}).encode(), over=ANY)


def check(location: Location, names: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the segments with the noted checksum, and those with another. Segments without a note are in neither."""
    if not (names := frozenset(names)):
        return names, names
    checksums, table = noted(location), location.table("chunks")
    names &= checksums.keys()
    sound = frozenset(name for name in names if _is_equal(checksums[name], _checksum(table, name)))
    return sound, names - sound


def _is_equal(checksum: str, expected: str) -> bool:
    """Compare two checksums; an index that was copied from or to object storage has one alone."""
    return not checksum or not expected or checksum == expected


def _checksum(table: TableLocation, segment: str) -> str:
    """Hash the names and bytes of a segment's files; "" on object storage."""
    if "://" in table.uri:
        return ""
    total = hashlib.sha256()
    for file in sorted((Path(table.uri) / "_indices" / segment).glob("*")):
        with open_regular(file) as stream:
            total.update(f"{file.name} {hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def _analysis() -> str:
    """Return a digest of the settings that split texts."""
    return hashlib.sha256(json.dumps(FULL_TEXT, sort_keys=True).encode()).hexdigest()[:16]
