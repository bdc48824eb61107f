"""The inputs of a BERT beside its weights: the tokens of a text, and the pooling of their states."""

from __future__ import annotations

from typing import Literal, Protocol

Pooling = Literal["cls", "mean"]


class Tokens(Protocol):
    """A text or a pair as token ids: an `Encoding` of the tokenizer, or a part of one."""

    @property
    def ids(self) -> list[int]:
        """The ids of the tokens."""
        ...

    @property
    def type_ids(self) -> list[int]:
        """0 for tokens of the first text, 1 for those of the second."""
        ...
