"""How good an encoder is on the rows that were held out: one measure for each shape of data, with its interval."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ...indexes.metric import cosines, normalized
from ..data.dataset import Shape, TrainingSet, counts, take
from ..runs.checkpoints import MARGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats

    Encode = Callable[[Sequence[str], str], Floats]  # texts and "query" or "document" to vectors (n, dim)

NAMES = {
    Shape.PAIRS: "ndcg@10",
    Shape.TRIPLETS: "ndcg@10",
    Shape.GRADED: "ndcg@10",
    Shape.SCORED: "spearman",
    Shape.LABELLED: "average precision",
    Shape.CLASSED: "balanced accuracy",
    Shape.GROUPED: "precision@1",
    Shape.TEXTS: "agreement",
}
_RETRIEVED = (Shape.PAIRS, Shape.TRIPLETS, Shape.GRADED)
_FEWEST = 10  # rows that anything is chosen by: of one or two every model has the same figure
_FEWEST_ALIKE = 3  # rows by which anything is measured whose texts are compared with one another
_DOCUMENTS = 500  # at least, where there are as many, that a held-out query's are looked for among
_BLOCK = 512  # queries whose similarities to all texts are in memory at once
_RESAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure on the held-out rows, higher being better, with its 95 % bootstrap interval (Efron 1979)."""

    name: str
    value: float
    low: float
    high: float
    rows: int
    values: Floats = field(repr=False, default_factory=lambda: np.empty(0, np.float32))  # per query, where it is a mean

    @classmethod
    def of(cls, facts: dict[str, Any] | None) -> Estimate | None:
        """Read what `as_dict` returned, without the single values."""
        if facts is None:
            return None
        low, high = facts["interval"]
        return cls(facts["name"], facts["value"], low, high, facts["rows"])

    def as_metrics(self) -> dict[str, float]:
        """As a trainer is given it."""
        return {self.name: self.value, self.name + MARGIN: (self.high - self.low) / 2}

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "interval": [round(self.low, 4), round(self.high, 4)],
            "rows": self.rows,
        }


def can_tell(data: TrainingSet) -> bool:
    """Whether the rows that are held out can tell a better model from a worse one: of too few no figure changes."""
    return len(data.held_out()) >= _FEWEST and can_measure(data)


def can_measure(data: TrainingSet) -> bool:
    """Whether the rows that are held out give a figure: where there is something to be told apart."""
    rows = data.held_out()
    if data.shape in _RETRIEVED:
        documents = take(data.table().select(["positive"]), np.concatenate([rows, data.training()[:_FEWEST]]))
        return len(rows) > 0 and (data.shape is not Shape.PAIRS or len(set(documents["positive"].to_pylist())) > 1)
    if len(rows) < _FEWEST_ALIKE:
        return False
    if data.shape is Shape.TEXTS:
        return True
    each = np.unique(take(data.table(), rows)["label"].to_numpy(), return_counts=True)[1]
    return len(each) > 1 and (data.shape is not Shape.GROUPED or bool(each.max() > 1))


def account(data: TrainingSet) -> str:
    """The parts of the data in a line, and what is amiss with them."""
    rows = counts(data)
    said = f"{rows['training']:,} rows to learn from, {rows['held_out']:,} held out"
    if rows["left_out"]:
        said += f", {rows['left_out']:,} left out since they share a text with one of those"
    if rows["left_out"] > sum(rows.values()) / 10:
        said += ": hold out a smaller share, or other rows, to learn from more"
    if rows["held_out"] and not can_tell(data):
        said += "; those held out are too few or too much alike to choose weights by: the last are kept"
    return said


def measure(encode: Encode, data: TrainingSet, *, teacher: Encode | None = None, seed: int = 0) -> Estimate | None:
    """Measure an encoder on the rows of `data` that are held out. None where that tells nothing.

    :param teacher: for texts alone: whose vectors the encoder's should be.
    """
    if not can_measure(data):
        return None
    table = take(data.table(), data.held_out())
    texts = {name: table[name].to_pylist() for name in data.texts}
    name = NAMES[data.shape]
    if data.shape in _RETRIEVED:
        return mean(name, _retrieval(encode, texts, _others(data, texts)), seed)
    if data.shape is Shape.TEXTS:
        return mean(name, _agreement(encode, texts["text"], teacher), seed) if teacher else None
    labels = table["label"].to_numpy()
    if data.shape is Shape.GROUPED:
        return mean(name, _neighbours(encode(texts["text"], "document"), labels), seed)
    alike = cosines(encode(texts["sentence1"], "query"), encode(texts["sentence2"], "document"))
    of = {Shape.SCORED: spearman, Shape.LABELLED: average_precision, Shape.CLASSED: _separation}[data.shape]
    return resampled(name, of, alike, labels, seed)


def _others(data: TrainingSet, texts: dict[str, list[str]]) -> list[str]:
    """Positives of rows that are learned from: among a few dozen held-out documents alone any encoder finds its own."""
    rows = data.training()
    wanted = max(0, _DOCUMENTS - sum(len(column) for name, column in texts.items() if name != "query"))
    chosen = np.linspace(0, len(rows) - 1, min(wanted, len(rows))).astype(np.int64)
    found: list[str] = take(data.table().select(["positive"]), rows[chosen])["positive"].to_pylist()
    return found


def _retrieval(encode: Encode, texts: dict[str, list[str]], others: Sequence[str]) -> Floats:
    """nDCG@10 of each different query over all different documents of the held-out rows, and others."""
    queries = list(dict.fromkeys(texts["query"]))
    own = (text for name, column in texts.items() if name != "query" for text in column)
    documents = list(dict.fromkeys(chain(own, others)))
    place = {text: number for number, text in enumerate(documents)}
    relevant: dict[str, set[int]] = {}
    for query, positive in zip(texts["query"], texts["positive"], strict=True):
        relevant.setdefault(query, set()).add(place[positive])
    found, stored = encode(queries, "query"), encode(documents, "document")
    values = np.empty(len(queries), np.float32)
    for start in range(0, len(queries), _BLOCK):
        scores = found[start : start + _BLOCK] @ stored.T
        for row, ranking in enumerate(np.argsort(-scores, axis=1, kind="stable")[:, :10]):
            wanted = relevant[queries[start + row]]
            gains = np.array([number in wanted for number in ranking]) / np.log2(np.arange(2, len(ranking) + 2))
            values[start + row] = gains.sum() / (1 / np.log2(np.arange(2, min(len(wanted), 10) + 2))).sum()
    return values


def _agreement(encode: Encode, texts: list[str], teacher: Encode) -> Floats:
    """How similarities of neighbouring texts agree between encoder and teacher: their cosines' Spearman, by blocks."""
    own, others = encode(texts, "document"), teacher(texts, "document")
    blocks = range(0, max(1, len(texts) - 31), 32)
    return np.array([spearman(*(_pairs(v[b : b + 32]) for v in (own, others))) for b in blocks], np.float32)


def _pairs(vectors: Floats) -> Floats:
    unit = normalized(vectors)
    similarities: Floats = unit @ unit.T
    return similarities[np.triu_indices(len(unit), 1)]


def _neighbours(vectors: Floats, labels: NDArray[np.int64]) -> Floats:
    """Whether the nearest other text is of the same class."""
    unit = normalized(vectors)
    similarities = unit @ unit.T
    np.fill_diagonal(similarities, -np.inf)
    same: Floats = (labels[similarities.argmax(1)] == labels).astype(np.float32)
    return same


def spearman(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Rank correlation, equal values sharing their mean rank; 0 where either side is constant."""
    one, other = _ranks(scores), _ranks(labels)
    if one.std() == 0 or other.std() == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse], np.float64)


def average_precision(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Mean of the precision at each positive, the pairs ranked by score."""
    hits = labels[np.argsort(-scores, kind="stable")] == 1
    if not hits.any():
        return 0.0
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())


def _separation(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """How well the cosine alone tells the classes apart: mean recall when each pair gets the nearest class mean."""
    classes = np.unique(labels)
    means = np.array([scores[labels == one].mean() for one in classes])
    guesses = classes[np.abs(scores[:, None] - means[None, :]).argmin(1)]
    return float(np.mean([(guesses[labels == one] == one).mean() for one in classes]))


def mean(name: str, values: Floats, seed: int) -> Estimate:
    drawn = np.random.default_rng(seed).integers(0, len(values), (_RESAMPLES, len(values)))
    low, high = np.percentile(values[drawn].mean(1), [2.5, 97.5])
    return Estimate(name, float(values.mean()), float(low), float(high), len(values), values)


def resampled(name: str, of: Callable[[Any, Any], float], scores: Floats, labels: NDArray[Any], seed: int) -> Estimate:
    generator = np.random.default_rng(seed)
    resamples = [generator.integers(0, len(scores), len(scores)) for _ in range(200)]
    low, high = np.percentile([of(scores[drawn], labels[drawn]) for drawn in resamples], [2.5, 97.5])
    return Estimate(name, of(scores, labels), float(low), float(high), len(scores))
