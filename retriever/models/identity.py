"""The identity of an encoder, as an index stores it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from .encoders.adapted_encoder import AdaptedEncoder
from .tokens.token_boundaries import token_boundary_digest

if TYPE_CHECKING:
    from .encoder import Encoder

MAX_DIM = 2**16
_MAX_TOKENS = 2**31


@dataclass(frozen=True, slots=True)
class EncoderId:
    """The encoder of stored vectors.

    Equal fingerprints give equal vectors, up to the precision of the processor; equal cuts and passage tokens give
    equal passages.
    """

    model: str
    fingerprint: str
    dim: int
    cut: str = ""  # of `token_boundary_digest`; empty in an index that did not store it
    base: str = ""  # of an encoder with an adapter: the encoder of the stored vectors
    base_fingerprint: str = ""
    passage_tokens: int = 0  # that a passage has at most, if the encoder reads more; 0: as many as it reads

    @classmethod
    def of_encoder(cls, encoder: Encoder) -> EncoderId:
        """Identify an encoder, as a new index names it."""
        if encoder.fingerprint == cls.none(encoder.dim).fingerprint:
            return cls.none(encoder.dim)
        cut = token_boundary_digest(encoder)
        base = encoder.base if isinstance(encoder, AdaptedEncoder) else None
        names = (base.name, base.fingerprint) if base else ("", "")
        return cls(encoder.name, encoder.fingerprint, encoder.dim, cut, *names)

    @classmethod
    def none(cls, dim: int) -> EncoderId:
        """Describe vectors that came with their documents, in an index without an encoder."""
        return cls("", f"none-{dim}", dim)

    @property
    def document_fingerprint(self) -> str:
        """The fingerprint of the encoder of the stored vectors: without the adapter of the queries, if there is one."""
        return self.base_fingerprint or self.fingerprint

    @property
    def without_adapter(self) -> EncoderId | None:
        """The encoder that an adapter is for; None without an adapter."""
        if not self.base_fingerprint:
            return None
        return EncoderId(self.base, self.base_fingerprint, self.dim, self.cut, passage_tokens=self.passage_tokens)

    @property
    def is_none(self) -> bool:
        """Whether the index has no encoder."""
        return self == EncoderId.none(self.dim)

    @classmethod
    def of(cls, value: Any) -> EncoderId:
        """Check the description of an encoder in a file.

        :raises InputError: when no encoder can have these values.
        """
        try:
            identity = cls(**value)
        except TypeError:
            raise InputError(f"{value!r} does not identify an encoder") from None
        texts = (identity.model, identity.fingerprint, identity.cut, identity.base, identity.base_fingerprint)
        if (
            not all(isinstance(text, str) and "\0" not in text for text in texts)
            or type(identity.dim) is not int
            or not 0 < identity.dim < MAX_DIM
            or type(identity.passage_tokens) is not int
            or not 0 <= identity.passage_tokens < _MAX_TOKENS
        ):
            raise InputError(f"{value!r} does not identify an encoder")
        return identity
