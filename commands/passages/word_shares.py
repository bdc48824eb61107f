"""`binocle search --explain`: the words that made a query and a passage similar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.printable import printable
from .retained import embedded_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...retriever.retriever import Retriever
    from ...retriever.search.results.hit import Hit

_LISTED, _PRINTED = 20, 5  # pairs of words in JSON and in lines


def word_shares(query: str, retriever: Retriever) -> Callable[[Hit], dict[str, Any] | None]:
    """A function that splits a hit's cosine between pairs of words; it gives None where the cosine cannot be split.

    The listed pairs, `rest` and `special`, the share of [CLS] and [SEP], add up to `cosine`.
    """
    from ...retriever.inspection.contributions import contributions, word_pairs
    from ...retriever.inspection.token_states import Inspector

    try:
        inspector = Inspector.load(retriever.encoder.name)
    except InputError:  # static vectors, or defended ones
        return lambda _: None
    left = inspector.read(query.strip(), kind="query")

    def shares_of(hit: Hit) -> dict[str, Any] | None:
        if hit.best.scores.get("semantic") is None or not left.pooling or left.pooling == ("cls",):
            return None
        right = inspector.read(embedded_text(hit))
        shares = contributions(left, right)
        pairs = word_pairs(left, right, shares)
        cosine, words = float(shares.sum()), sum(pair.share for pair in pairs)
        return {
            "cosine": cosine,
            "pairs": [pair._asdict() for pair in pairs[:_LISTED]],
            "rest": sum(pair.share for pair in pairs[_LISTED:]),
            "special": cosine - words,
        }

    return shares_of


def shares_line(shares: dict[str, Any]) -> str:
    """Name the pairs of words with the largest shares, in one line."""
    pairs = (f"{pair['query']} ~ {pair['passage']} {pair['share']:.3f}" for pair in shares["pairs"][:_PRINTED])
    return printable(f"cosine {shares['cosine']:.3f}, strongest {', '.join(pairs)}")
