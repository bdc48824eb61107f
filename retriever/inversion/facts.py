"""Find out which facts of a text can be read back from its vector: numbers and names among its likeliest words.

A fact that is not read back may still be in the vector: it tells the true number from other candidates.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.words import folded, name_spans, number_spans, word_spans

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..models.encoder import Kind
    from .inverter import EmbeddingInverter

_ROOM = 2.0  # tokens that count as read back, for each token of the text
_WORDS = 12  # to return


@dataclass(frozen=True, slots=True)
class RetainedFacts:
    """The words and facts of a text that can be read back from its vector, and the facts that cannot."""

    words: tuple[str, ...]  # read back, likeliest first
    retained: tuple[str, ...]  # numbers and names that are read back
    missing: tuple[str, ...]  # numbers and names that are not among the likeliest words of the vector

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON."""
        return asdict(self)


def retained_facts(text: str, inverter: EmbeddingInverter, *, kind: Kind = "document") -> RetainedFacts:
    """Read a text back from its own vector.

    A word or a fact is read back if all of its tokens are among the likeliest 2n tokens of a text of n tokens.

    :param kind: what to encode the text as.
    """
    vector = inverter.check(inverter.encoder.encode([text], kind=kind))
    share = inverter.bags(vector).shares[0]
    tokens = inverter.tokens.token_spans(text)
    likely = np.argsort(-share, kind="stable")[: max(8, round(_ROOM * len(tokens)))]
    shares = dict(zip(likely.tolist(), share[likely].tolist(), strict=True))

    def read_back(spans: Iterable[tuple[int, int]]) -> dict[str, float]:
        """Map the text of each span to the share of its rarest token, 0 if that is not likely."""
        names: dict[str, float] = {}
        for first, last in spans:
            name = folded(text[first:last])
            inside = (shares.get(token, 0.0) for token, start, end in tokens if start < last and end > first)
            names[name] = max(min(inside, default=0.0), names.get(name, 0.0))
        return names

    facts = read_back([*number_spans(text), *name_spans(text)])
    words = read_back((first, last) for first, last in word_spans(text) if last - first > 2)
    return RetainedFacts(
        tuple(sorted((word for word, sure in words.items() if sure), key=lambda word: -words[word])[:_WORDS]),
        tuple(fact for fact, sure in facts.items() if sure),
        tuple(fact for fact, sure in facts.items() if not sure),
    )
