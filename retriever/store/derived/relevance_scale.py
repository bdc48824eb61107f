"""The scale of relevance of an index: typical cosines, and how often a judgement by them is wrong.

It is a cache beside the index, without any text: it may be missing, or have been measured on fewer passages.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from ..locations.location import ANY

if TYPE_CHECKING:
    from ....core.arrays import Floats
    from ...models.identity import EncoderId
    from ..locations.location import Location

# The fingerprints of all-MiniLM-L6-v2, and of the same in int8.
DEFAULT_ENCODERS = ("71d90b847842e4b324d369494a570cfe", "5d98315e822303933afa2a0c131f671f")
LINE = 0.5  # a hit of less relevance is weak
TOLERANCE = 0.1  # of either error, above which an index does not say that it has no answer
_NEAREST = 0.05  # cosines tell answers from other passages only if their medians are this far apart


@dataclass(frozen=True, slots=True)
class RelevanceScale:
    """The cosines of an encoder on the passages of an index, and the errors measured with them."""

    everyday: float = 0.24  # median cosine of everyday questions with their best passages
    own: float = 0.70  # of sentences of the passages with theirs
    answered: float | None = None  # the share of everyday questions that the index seems to answer
    refused: float | None = None  # the share of its own sentences that it does not seem to answer
    passages: int = 0  # of the index when it was measured
    line: float | None = None  # a hit of less relevance is weak: `LINE`, or the nearest value with small errors

    @property
    def is_reliable(self) -> bool:
        """Whether both errors were measured, and are small."""
        return all(error is not None and error <= TOLERANCE for error in (self.answered, self.refused))

    @property
    def tells_apart(self) -> bool:
        """Whether the two kinds of texts have different cosines."""
        return self.own - self.everyday >= _NEAREST

    def as_default(self, cosines: Floats) -> Floats:
        """The cosines that the default encoder would give."""
        default = RelevanceScale()
        slope = (default.own - default.everyday) / (self.own - self.everyday)
        scaled: Floats = (default.everyday + (cosines - self.everyday) * slope).astype(np.float32)
        return scaled

    def is_valid(self) -> bool:
        """Whether the values are possible ones: the file may come from a stranger."""
        shares = [share for share in (self.answered, self.refused, self.line) if share is not None]
        numbers = [self.everyday, self.own, *shares]
        return (
            all(type(number) is float and -1e6 < number < 1e6 for number in numbers)
            and all(0 <= number <= 1 for number in numbers[2:])
            and self.tells_apart
            and type(self.passages) is int
            and self.passages > 0
        )


FITTED = RelevanceScale(
    answered=0.03, refused=0.02
)  # of the default encoder; five collections: .025 and .010 in the mean


def scale_of(location: Location, encoder: EncoderId) -> RelevanceScale:
    """The scale of an index; if none was measured, that of the default encoder."""
    return read_scale(location, encoder) or (FITTED if encoder.fingerprint in DEFAULT_ENCODERS else RelevanceScale())


def read_scale(location: Location, encoder: EncoderId) -> RelevanceScale | None:
    """Read the scale that was measured with an encoder; None without one, or if its file is damaged."""
    try:
        scale = RelevanceScale(**json.loads(location.read(_file(encoder))[0]))
        return scale if scale.is_valid() else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def store_scale(location: Location, scale: RelevanceScale, encoder: EncoderId) -> None:
    """Write a scale beside the index, over an earlier one of the same encoder."""
    location.write(_file(encoder), json.dumps(asdict(scale)).encode(), over=ANY)


def _file(encoder: EncoderId) -> str:
    return f"relevance-{sha256(encoder.fingerprint.encode()).hexdigest()[:16]}.json"
