"""The encoder protocol: texts to unit vectors, and the encoder's own tokens to measure texts by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from ...core.checks import listed
from ...core.errors import InputError
from ...core.words import encodable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats


Kind = Literal["query", "document"]


class Encoder(Protocol):
    """An encoder as the engine uses it. `load_encoder` returns one; any object with these members will do."""

    name: str
    dim: int
    max_tokens: int  # of a text, without special tokens and prompt
    fingerprint: str  # equal fingerprints give equal vectors, up to the precision of the processor

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        """Return float32 vectors, C-contiguous, shape (len(texts), dim).

        They have length 1 unless the model is trained for dot products.

        :param kind: decides the prompt before each text, if the model has one for queries or for documents.
        """
        ...

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return the tokens of each text as (start, end) characters, in order, not truncated, no special tokens."""
        ...


def encode_finite(encoder: Encoder, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
    """Encode texts for storage or search.

    :raises InputError: when a number is not finite; such a vector cannot be compared.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of damaged weights; the error says so in one line
        vectors = encoder.encode(texts, kind=kind)
    if not np.isfinite(vectors).all():
        raise InputError(f"{encoder.name} gives vectors that are not finite: its weights are damaged")
    return vectors


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts as a list that a tokenizer takes.

    :raises InputError: when they are no list of texts.
    """
    if isinstance(texts, str):
        raise InputError("expected a list of texts, but one text came: put it in a list")
    checked = listed(texts, "texts")
    for text in checked:
        if not isinstance(text, str):
            raise InputError(f"expected a list of texts, but one of them is of type {type(text).__name__}")
    return [encodable(text) for text in checked]


def lower_case(text: str) -> str:
    """Return a text in lower case and of the same length, so that every offset still holds."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(character.lower()[:1] for character in text)
