"""Encoder: texts to unit vectors, with the encoder's own tokens to count by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from ...core.errors import InputError
from ...core.words import encodable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats


Kind = Literal["query", "document"]


class Encoder(Protocol):
    """What the engine needs of an encoder. `load_encoder` makes one; anything with these members will do."""

    name: str
    dim: int
    max_tokens: int  # of a text, special tokens and prompt left out
    fingerprint: str  # equal fingerprints give equal vectors

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        """Float32, C-contiguous, shape (len(texts), dim); of length 1 unless the model is made for dot products."""
        ...

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """For each text its tokens as (start, end) characters, in order, without special tokens, not truncated."""
        ...


def encode_finite(encoder: Encoder, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
    """The vectors of texts, to be stored or searched with.

    :raises InputError: when one is not finite: nothing can be compared with it.
    """
    vectors = encoder.encode(texts, kind=kind)
    if not np.isfinite(vectors).all():
        raise InputError(f"{encoder.name} gives vectors that are not finite: its weights are damaged")
    return vectors


def check_texts(texts: Sequence[str]) -> list[str]:
    """A list of texts that can be tokenized, or an error that says what came instead."""
    if isinstance(texts, str):
        raise InputError("expected a list of texts, but one text came: put it in a list")
    given = list(texts)
    for text in given:
        if not isinstance(text, str):
            raise InputError(f"expected a list of texts, but one of them is of type {type(text).__name__}")
    return [encodable(text) for text in given]  # half a surrogate pair is no character


def lower_case(text: str) -> str:
    """A text in lower case, with every character at the place it had."""
    made = text.lower()
    return made if len(made) == len(text) else "".join(character.lower()[:1] for character in text)
