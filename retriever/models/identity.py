"""The identity of an encoder, as an index remembers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.checks import is_count
from ...core.errors import InputError


@dataclass(frozen=True, slots=True)
class EncoderId:
    """Which encoder vectors are of: equal fingerprints give equal vectors, equal cuts equal passages."""

    model: str
    fingerprint: str
    dim: int
    cut: str = ""  # of `cut.cut_of`; empty where it was not written down

    @classmethod
    def of(cls, value: Any) -> EncoderId:
        """Check what a file says of an encoder.

        :raises InputError: when no encoder can have these values.
        """
        try:
            found = cls(**value)
        except TypeError:
            raise InputError(f"{value!r} does not identify an encoder") from None
        texts = (found.model, found.fingerprint, found.cut)
        if (
            not all(isinstance(text, str) and "\0" not in text for text in texts)
            or not is_count(found.dim)
            or not 0 < found.dim < 2**16
        ):
            raise InputError(f"{value!r} does not identify an encoder")
        return found
