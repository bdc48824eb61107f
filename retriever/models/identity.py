"""The identity of an encoder, as an index stores it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.errors import InputError


@dataclass(frozen=True, slots=True)
class EncoderId:
    """The encoder of stored vectors.

    Equal fingerprints give equal vectors, up to the precision of the processor; equal cuts give equal passages.
    """

    model: str
    fingerprint: str
    dim: int
    cut: str = ""  # of `token_boundary_digest`; empty in an index that did not store it

    @classmethod
    def of(cls, value: Any) -> EncoderId:
        """Check the description of an encoder in a file.

        :raises InputError: when no encoder can have these values.
        """
        try:
            identity = cls(**value)
        except TypeError:
            raise InputError(f"{value!r} does not identify an encoder") from None
        texts = (identity.model, identity.fingerprint, identity.cut)
        if (
            not all(isinstance(text, str) and "\0" not in text for text in texts)
            or type(identity.dim) is not int
            or not 0 < identity.dim < 2**16
        ):
            raise InputError(f"{value!r} does not identify an encoder")
        return identity
