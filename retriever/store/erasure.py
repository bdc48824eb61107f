"""The deadline for erasing deleted texts and vectors from the disk: a small file beside the index, until they are gone.

It is written before the commit that deletes. The first writer after the deadline erases before it does anything else,
even if the process that set the deadline was killed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...core.checks import is_real
from .locations.location import ANY

if TYPE_CHECKING:
    from .locations.location import Location

_FILE = "erase.json"


def due(location: Location) -> float | None:
    """Return when deleted rows must be erased, in seconds since 1970; None if nothing waits.

    A damaged file means now.
    """
    try:
        moment = json.loads(location.read(_FILE)[0])["due"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return 0.0
    return float(moment) if is_real(moment) else 0.0


def promise(location: Location, moment: float) -> float:
    """Note when deleted rows are erased at the latest, unless an earlier moment is noted; return the noted moment."""
    earlier = due(location)
    moment = moment if earlier is None else min(moment, earlier)
    location.write(_FILE, json.dumps({"due": moment}).encode(), over=ANY)
    return moment


def clear(location: Location) -> None:
    """Remove the deadline, since no deleted row waits to be erased."""
    location.remove(_FILE)
