"""Score pairs of texts: an encoder by the cosine of their vectors, a cross-encoder by reading both together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from ...core.errors import InputError
from ...indexes.metric import normalized
from ...retriever.models import encoder as encoders
from ...retriever.models import model_files
from ...retriever.models import settings as model_settings
from ...retriever.models.load import load_encoder, load_reranker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from typing_extensions import TypeIs

_Array = TypeVar("_Array", bound="NDArray[np.floating]")


class CrossEncoder(Protocol):
    """Scores a query and a passage together."""

    name: str

    def score(self, query: str, passages: Sequence[str]) -> NDArray[np.float32]:
        """Return one score a passage; higher is better."""
        ...


Model = encoders.Encoder | CrossEncoder


def load(name: str | None) -> Model:
    """Load an encoder, or a cross-encoder if the folder says so; all-MiniLM-L6-v2 by default."""
    name = name or model_files.DEFAULT_MODEL
    return load_reranker(name) if model_settings.reads_pairs(model_files.find(name)) else load_encoder(name)


def pair_scores(model: Model, left: Sequence[str], right: Sequence[str]) -> NDArray[np.float64]:
    """Return one score a pair. An encoder takes both texts as documents, since neither is a query."""
    if is_encoder(model):
        vectors = unit_vectors(model, [*left, *right])
        cosines: NDArray[np.float64] = np.einsum(
            "rd,rd->r", vectors[: len(left)], vectors[len(left) :], dtype=np.float64
        )
        return cosines
    scores = np.empty(len(left), np.float64)
    rows_of: dict[str, list[int]] = {}
    for row, text in enumerate(left):
        rows_of.setdefault(text, []).append(row)
    for text, rows in rows_of.items():
        scores[rows] = model.score(text, [right[row] for row in rows])
    return finite(model, scores)


def scores(model: Model, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return how well each text answers a query: an encoder's cosine, or a cross-encoder's score."""
    if not is_encoder(model):
        return finite(model, model.score(query, texts))
    cosines: NDArray[np.float32] = unit_vectors(model, texts) @ unit_vectors(model, [query], kind="query")[0]
    return cosines


def is_encoder(model: Model) -> TypeIs[encoders.Encoder]:
    """Whether a model has vectors for texts."""
    return hasattr(model, "encode")


def score_name(model: Model) -> str:
    """Name the scores of a model for an axis or a table."""
    return "cosine similarity" if is_encoder(model) else "score of the cross-encoder"


def unit_vectors(
    model: encoders.Encoder, texts: Sequence[str], *, kind: encoders.Kind = "document"
) -> NDArray[np.float32]:
    """Return unit vectors, shape (len(texts), dim), float32; each different text is encoded once."""
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    vectors = normalized(finite(model, model.encode(list(rows), kind=kind)))
    return vectors[[rows[text] for text in texts]]


def finite(model: Model, values: _Array) -> _Array:
    """:raises InputError: for scores or vectors that are not finite."""
    if not np.isfinite(values).all():
        raise InputError(
            f"{model.name} gives scores that are not numbers: its weights are damaged, or its training was"
        )
    return values
