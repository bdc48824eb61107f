"""Which facts of a text its vector has lost: numbers and names that cannot be read back, and so not be searched by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .recovered import names, numbers

if TYPE_CHECKING:
    from ..retriever.inverter import EmbeddingInverter

_ROOM = 2.0  # tokens that count as read back from a vector, for each token of the text


@dataclass(frozen=True, slots=True)
class Kept:
    """What the vector of a text still says."""

    words: tuple[str, ...]  # of the text, read back from its vector, the surest first
    kept: tuple[str, ...]  # numbers and names among the tokens read back
    lost: tuple[str, ...]  # those that are not: only the lexical half of a search finds them

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def facts(text: str) -> list[str]:
    """The numbers of a text and its names, each once, as `recovered` has them."""
    return list(dict.fromkeys([*numbers(text), *names(text)]))


def kept(text: str, inverter: EmbeddingInverter, words: int = 12) -> Kept:
    """Read a text back from its own vector.

    A fact is kept when each of its tokens is among the likeliest ones, of which there are twice as many as the text
    has tokens.
    """
    vector = inverter.check(inverter.encoder.encode([text]))
    share = inverter.proposing.bag(vector)[0][0]
    own = inverter.tokens([text])[0]
    likely = np.argsort(-share, kind="stable")[: max(8, round(_ROOM * len(own)))].tolist()
    there, held = set(own), set(likely)
    found = facts(text)
    whole = [all(token in held for token in inverter.tokens([fact])[0]) for fact in found]
    named = [inverter.tokens.name(token) for token in likely if token in there]
    return Kept(
        tuple(name for name in named if name.isalnum() and len(name) > 2)[:words],
        tuple(fact for fact, is_kept in zip(found, whole, strict=True) if is_kept),
        tuple(fact for fact, is_kept in zip(found, whole, strict=True) if not is_kept),
    )
