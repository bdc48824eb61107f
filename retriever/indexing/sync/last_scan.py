"""The time of the last scan of the folder, to notice a changed file that keeps its size and its mtime.

Copies that keep times (`cp -p`, rsync, archives) leave such files, but no program can set the ctime of a file. One with
a ctime after the last scan may have changed since, so its bytes decide. The time is a small file beside the tables,
since only a scan needs it. An index without the file relies on size and mtime.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from ...store.locations.location import ANY

if TYPE_CHECKING:
    from ...store.locations.location import Location

_FILE = "scanned.json"
_NEVER = 2**63 - 1  # nanoseconds since 1970: no file has a later ctime


def read_last_scan(location: Location) -> int:
    """Return when the last complete scan began, in nanoseconds since 1970; a time in the far future if unknown."""
    try:
        value = json.loads(location.read(_FILE)[0])["time_ns"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return _NEVER
    return value if type(value) is int else _NEVER


def note_scan(location: Location, time_ns: int) -> None:
    """Note the start of a scan after which all changed files were read."""
    with contextlib.suppress(OSError):  # the disk is full: the next scan looks at more files than it needs to
        location.write(_FILE, json.dumps({"time_ns": time_ns}).encode(), over=ANY)
