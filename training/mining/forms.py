"""The forms of a mined row: a column for each negative, a list of negatives, or a row for each negative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .negatives import MinedPair


def _common(pair: MinedPair) -> dict[str, Any]:
    """Return the columns that all forms share."""
    named = {"document_id": pair.document_id} if pair.document_id else {}
    return {"query": pair.query, "positive": pair.positive, **named}


def _triplets(pair: MinedPair, count: int, scores: bool) -> Iterator[dict[str, Any]]:  # noqa: ARG001 - one signature
    for negative, score in zip(pair.negatives, pair.scores[1:], strict=True):
        yield _common(pair) | {"negative": negative} | ({"scores": [pair.scores[0], score]} if scores else {})


def _tuple(pair: MinedPair, count: int, scores: bool) -> Iterator[dict[str, Any]]:
    if len(pair.negatives) == count:
        negatives = {f"negative_{number}": text for number, text in enumerate(pair.negatives, 1)}
        yield _common(pair) | negatives | ({"scores": pair.scores} if scores else {})


def _list(pair: MinedPair, count: int, scores: bool) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    yield _common(pair) | {"negatives": pair.negatives} | ({"scores": pair.scores} if scores else {})


FORMS: dict[str, Callable[[MinedPair, int, bool], Iterator[dict[str, Any]]]] = {  # pair, negatives, scores -> rows
    "tuple": _tuple,
    "list": _list,
    "triplet": _triplets,
}
