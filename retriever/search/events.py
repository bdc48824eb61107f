"""An event for each search, which an application may observe."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results.hits import Hits

_LOG = logging.getLogger("binocle")


@dataclass(frozen=True, slots=True)
class SearchEvent:
    """A search that was answered."""

    query: str
    hits: Hits
    seconds: float  # in all; of searches that were answered together, the mean

    def log(self) -> None:
        """Write a line at level DEBUG to the logger `binocle`; it has the length of the query, and not its text."""
        _LOG.debug("search of %d characters: %d hits in %.1f ms", len(self.query), len(self.hits), 1e3 * self.seconds)
