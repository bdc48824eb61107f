"""Which facts of a text its vector has lost: numbers and names that cannot be read back, and so not be searched by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.words import folded, name_spans, number_spans, word_spans

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..models.encoder import Kind
    from .inverter import EmbeddingInverter

_ROOM = 2.0  # tokens that count as read back from a vector, for each token of the text
_WORDS = 12  # of those read back, shown


@dataclass(frozen=True, slots=True)
class RetainedFacts:
    """What the vector of a text still says."""

    words: tuple[str, ...]  # of the text, read back from its vector, the surest first
    kept: tuple[str, ...]  # numbers and names among the tokens read back
    lost: tuple[str, ...]  # those that are not: only the lexical half of a search finds them

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def retained_facts(text: str, inverter: EmbeddingInverter, *, kind: Kind = "document") -> RetainedFacts:
    """Read a text back from its own vector.

    A word or a fact is read back when each of its tokens, where it stands in the text, is among the likeliest ones, of
    which there are twice as many as the text has tokens.

    :param kind: what the text is encoded as.
    """
    vector = inverter.check(inverter.encoder.encode([text], kind=kind))
    share = inverter.proposing.bag(vector)[0][0]
    tokens = inverter.tokens.token_spans(text)
    likely = np.argsort(-share, kind="stable")[: max(8, round(_ROOM * len(tokens)))]
    held = dict(zip(likely.tolist(), share[likely].tolist(), strict=True))

    def sure(spans: Iterable[tuple[int, int]]) -> dict[str, float]:
        """What stands at these places, with how likely its least likely token is at best."""
        found: dict[str, float] = {}
        for start, end in spans:
            name = folded(text[start:end])
            least = min((held.get(token, 0.0) for token, at, to in tokens if at < end and to > start), default=0.0)
            found[name] = max(least, found.get(name, 0.0))
        return found

    facts = sure([*number_spans(text), *name_spans(text)])
    said = sure((start, end) for start, end in word_spans(text) if end - start > 2)
    return RetainedFacts(
        tuple(sorted((word for word, least in said.items() if least), key=lambda word: -said[word])[:_WORDS]),
        tuple(fact for fact, least in facts.items() if least),
        tuple(fact for fact, least in facts.items() if not least),
    )
