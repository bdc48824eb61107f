"""The stand-in for an encoder in an index without one, which holds only vectors that came with its documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....core.errors import InputError
from ..identity import EncoderId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....core.arrays import Floats
    from ..encoder import Kind

_REASON = "this index has no encoder, only the vectors of its documents"


@dataclass(slots=True)
class NoEncoder:
    """Has the dimension of the vectors, and refuses to encode any text."""

    dim: int
    name: str = ""
    max_tokens: int = 2**31
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        self.fingerprint = EncoderId.none(self.dim).fingerprint

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:  # noqa: ARG002 - of the protocol
        """:raises InputError: always."""
        raise InputError(f"{_REASON}: give a vector with the {'query' if kind == 'query' else 'document'}")

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:  # noqa: ARG002 - of the protocol
        """:raises InputError: always."""
        raise InputError(f"{_REASON}, so it cannot count tokens: give a tokenizer")


def check_encoder(identity: EncoderId | None, purpose: str) -> None:
    """Check that an index has an encoder.

    :param purpose: ends the message.
    :raises InputError: when it has none.
    """
    if identity is not None and identity.is_none:
        raise InputError(f"{_REASON}: {purpose}")
