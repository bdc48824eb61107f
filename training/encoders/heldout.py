"""Measure an encoder on the held-out rows: one measure for each shape of data, with its interval."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.units import count_of
from ...indexes.metric import cosines, normalized
from ..data.dataset import TRAIN, Shape, TrainingSet, counts, hash_of, take
from ..evaluation import significance
from ..evaluation.significance import SAMPLES, Statistic
from ..evaluation.similarity import MEASURES
from ..mining.bm25 import BM25

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Doubles, Floats
    from ..evaluation.significance import Difference, Weighted

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
_MIN_ROWS = 10  # minimum of rows to choose checkpoints by: on one or two, all models have the same value
_MIN_SIMILAR_ROWS = 3  # minimum of rows to compare texts with each other
_BLOCK_TEXTS = 4  # minimum of texts for a correlation of their cosines
_DOCUMENTS = 1_000  # that a held-out query is searched in; training rows give half as many at least
_POOL = 10_000  # maximum of training rows that documents are chosen from
_CHOOSING = 1_000  # maximum of held-out queries that choose them
_BLOCK = 512  # queries scored against all texts at once
_RESAMPLES = 1_000
_SAMPLES = 2_000  # of the difference of two measures that are no means


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measure on the held-out rows, higher is better, with its 95 % bootstrap interval (Efron 1979)."""

    name: str
    value: float
    low: float
    high: float
    rows: int
    values: Doubles = field(
        repr=False, compare=False, default_factory=lambda: np.empty(0)
    )  # of queries if a mean; scores if not
    labels: NDArray[Any] | None = field(
        repr=False, compare=False, default=None
    )  # of the rows, if the measure is no mean

    @classmethod
    def of(cls, facts: dict[str, Any] | None) -> Estimate | None:
        """Read what `as_dict_with_values` returned."""
        if facts is None:
            return None
        labels = facts.get("labels")
        values = np.array(facts.get("values", []), np.float64)
        return cls(
            facts["name"],
            facts["value"],
            facts["interval"][0],
            facts["interval"][1],
            facts["rows"],
            values,
            None if labels is None else np.array(labels),
        )

    def difference(self, base: Doubles, *, samples: int | None = None) -> Difference:
        """Subtract the measure of the `values` of a base on the same rows, with interval and p."""
        if self.labels is None:
            return significance.difference(self.values, base, samples=samples or SAMPLES)
        return STATISTICS[self.name].difference(self.values, base, self.labels, samples=samples or _SAMPLES)

    @property
    def margin(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    def as_dict(self) -> dict[str, Any]:
        """Return the estimate for JSON, rounded to 4 digits, without the values of single queries."""
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "interval": [round(self.low, 4), round(self.high, 4)],
            "rows": self.rows,
        }

    def as_dict_with_values(self) -> dict[str, Any]:
        """Return the estimate with the values of its rows, for a later process."""
        labels = None if self.labels is None else self.labels.tolist()
        interval = [self.low, self.high]
        return {**self.as_dict(), "value": self.value, "interval": interval} | {
            "values": self.values.tolist(),
            "labels": labels,
        }


def can_tell(data: TrainingSet) -> bool:
    """Check whether the held-out rows suffice to tell a better model from a worse one."""
    return len(data.held_out()) >= _MIN_ROWS and can_measure(data)


def can_measure(data: TrainingSet) -> bool:
    """Check whether the held-out rows give a value: they need more than one document, label or score."""
    rows = data.held_out()
    if data.shape in _RETRIEVED:
        documents = take(data.table().select(["positive"]), np.concatenate([rows, data.training()[:_MIN_ROWS]]))
        return len(rows) > 0 and (data.shape is not Shape.PAIRS or len(set(documents["positive"].to_pylist())) > 1)
    if len(rows) < _MIN_SIMILAR_ROWS:
        return False
    if data.shape is Shape.TEXTS:
        return len(rows) >= _MIN_SIMILAR_ROWS * _BLOCK_TEXTS
    label_counts = np.unique(take(data.table(), rows)["label"].to_numpy(), return_counts=True)[1]
    return len(label_counts) > 1 and (data.shape is not Shape.GROUPED or bool(label_counts.max() > 1))


def lengths(table: pa.Table, limit: int) -> NDArray[np.int64]:
    """Return the characters of each row's texts, each text cut at `limit`."""
    columns = [np.minimum(pc.utf8_length(column).to_numpy(), limit) for column in table.columns]
    return np.asarray(np.sum(columns, axis=0), np.int64)


def characters(data: TrainingSet, limit: int, distractors: Sequence[str]) -> int:
    """Count the characters that one measure reads."""
    table = take(data.table().select(list(data.texts)), data.held_out())
    count = int(lengths(table, limit).sum())
    if data.shape in _RETRIEVED:
        count += sum(min(len(text), limit) for text in distractors)
    return count


def account(data: TrainingSet) -> str:
    """Describe the parts of the data in a line, with advice if a part is too small."""
    rows = counts(data)
    line = f"{count_of(rows['training'], 'row')} to learn from, {rows['held_out']:,} held out"
    if rows["left_out"]:
        line += f", {rows['left_out']:,} left out because they share a text with held-out rows"
    if rows["left_out"] > sum(rows.values()) / 10:
        line += ": hold out a smaller share, or other rows, to learn from more"
    if data.unused_negatives:
        line += f"; {data.unused_negatives:,} negatives are not used, of rows that have more than the first one"
    if rows["held_out"] and not can_tell(data):
        line += "; those held out are too few or too much alike to choose weights by: the last are kept"
    return line


def measure(
    encode: Encode,
    data: TrainingSet,
    *,
    distractors: Sequence[str] | None = None,
    teacher: Encode | None = None,
    has_queries: bool = True,
    seed: int = 0,
) -> Estimate | None:
    """Measure an encoder on the held-out rows; None if they give no value.

    :param distractors: what `choose_distractors` returned; by default it is called again, which takes seconds.
    :param teacher: for texts alone, the encoder to agree with.
    :param has_queries: whether the column `query` has queries. If not, as in translations, its texts are encoded as
        documents, like all others.
    """
    if not can_measure(data):
        return None
    table = take(data.table(), data.held_out())
    texts = {name: table[name].to_pylist() for name in data.texts}
    name = NAMES[data.shape]
    if data.shape in _RETRIEVED:
        kind = "query" if has_queries else "document"
        chosen = choose_distractors(data) if distractors is None else distractors
        return mean(name, _retrieval(encode, kind, texts, chosen, _answers(data)), seed)
    if data.shape is Shape.TEXTS:
        if teacher is None:
            return None
        return replace(mean(name, _agreement(encode, texts["text"], teacher), seed), rows=len(table))
    labels = table["label"].to_numpy()
    if data.shape is Shape.GROUPED:
        return mean(name, _neighbours(encode(texts["text"], "document"), texts["text"], labels), seed)
    first, second = (encode(texts[name], "query" if name == "query" else "document") for name in data.texts)
    return statistic(name, cosines(first, second), labels, seed)


def choose_distractors(data: TrainingSet) -> list[str]:
    """Choose positives of training rows that are hard to tell from the answers to held-out queries.

    Among a few hundred texts at random, any encoder finds the right one. So each query in turn chooses the text with
    the highest BM25 that no other has chosen. No encoder chooses, so none is favoured.
    """
    if data.shape not in _RETRIEVED:
        return []
    table = take(data.table().select(list(data.texts)), data.held_out())
    judged = len(table) * (len(data.texts) - 1)
    missing = max(_DOCUMENTS - judged, _DOCUMENTS // 2)
    rows = data.training()
    pool = rows[np.linspace(0, len(rows) - 1, min(_POOL, len(rows))).astype(np.int64)]
    texts = list(dict.fromkeys(take(data.table().select(["positive"]), pool)["positive"].to_pylist()))
    if len(texts) <= missing:
        return texts
    queries = list(dict.fromkeys(table["query"].to_pylist()))
    sample = np.linspace(0, len(queries) - 1, min(_CHOOSING, len(queries))).astype(np.int64)
    bm25 = BM25.of(texts)
    rankings = [np.argsort(-bm25.scores(queries[number]), kind="stable")[:missing] for number in sample]
    by_rank = chain.from_iterable(zip(*rankings, strict=True))
    return [texts[number] for number in islice(dict.fromkeys(by_rank), missing)]


def _answers(data: TrainingSet) -> Iterator[tuple[str, str]]:
    """Yield query and positive of the held-out rows, and of the unused rows: these may answer a held-out query too."""
    rows = take(data.table().select(["query", "positive"]), np.flatnonzero(data.part != TRAIN))
    yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)


def _retrieval(
    encode: Encode,
    kind: str,
    texts: dict[str, list[str]],
    distractors: Sequence[str],
    answers: Iterable[tuple[str, str]],
) -> Floats:
    """Return nDCG@10 of each different query over the documents of the held-out rows and the distractors.

    Near copies, as `hash_of` defines them, are one document. With equal scores the positive comes last: an encoder
    gains nothing by giving all texts one vector.

    :param kind: of the queries: "query" or "document".
    :param answers: queries with their positives; those of other queries, and other documents, do not count.
    """
    queries = list(dict.fromkeys(texts["query"]))
    judged = (text for name, column in texts.items() if name != "query" for text in column)
    different: dict[int, str] = {}
    for text in chain(judged, distractors):
        different.setdefault(hash_of(text), text)
    documents = [*different.values()][::-1]  # the positives last
    numbers = {key: number for number, key in enumerate(reversed(different))}
    relevant: dict[str, set[int]] = {query: set() for query in queries}
    for query, positive in answers:
        if query in relevant and (number := numbers.get(hash_of(positive))) is not None:
            relevant[query].add(number)
    query_vectors, vectors = encode(queries, kind), encode(documents, "document")
    values = np.empty(len(queries), np.float32)
    for start in range(0, len(queries), _BLOCK):
        scores = query_vectors[start : start + _BLOCK] @ vectors.T
        for row, ranking in enumerate(np.argsort(-scores, axis=1, kind="stable")[:, :10]):
            own = relevant[queries[start + row]]
            gains = np.array([number in own for number in ranking]) / np.log2(np.arange(2, len(ranking) + 2))
            values[start + row] = gains.sum() / (1 / np.log2(np.arange(2, min(len(own), 10) + 2))).sum()
    return values


def _agreement(encode: Encode, texts: list[str], teacher: Encode) -> Floats:
    """Return the Spearman correlation of encoder's and teacher's cosines, by blocks of neighbouring texts.

    A block has 32 texts, or fewer for ten blocks: the interval comes from how much they differ.
    """
    own, expected = encode(texts, "document"), teacher(texts, "document")
    size = min(32, max(_BLOCK_TEXTS, len(texts) // 10))
    blocks = np.array_split(np.arange(len(texts)), len(texts) // size)
    return np.array([spearman(_pairs(own[block]), _pairs(expected[block])) for block in blocks], np.float32)


def _pairs(vectors: Floats) -> Floats:
    unit = normalized(vectors)
    similarities: Floats = unit @ unit.T
    return similarities[np.triu_indices(len(unit), 1)]


def _neighbours(vectors: Floats, texts: Sequence[str], labels: NDArray[np.int64]) -> Floats:
    """Return 1 for each text with a nearest neighbour of its class, else 0; an equal text is no neighbour."""
    unit = normalized(vectors)
    similarities = unit @ unit.T
    keys = np.array(list(map(hash_of, texts)), np.uint64)
    similarities[keys[:, None] == keys] = -np.inf
    same: Floats = (labels[similarities.argmax(1)] == labels).astype(np.float32)
    return same


def spearman(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the rank correlation. Equal values share their mean rank; 0 if either side is constant."""
    return float(np.nan_to_num(STATISTICS["spearman"].value(scores, labels)))


def _separation(scores: Doubles, labels: Doubles) -> Weighted:
    """Return how well the score separates the classes: mean recall if each pair gets the nearest class mean."""
    classes = np.unique(labels)
    own = (labels == classes[:, None]).astype(np.float64)

    def weighted(weights: Doubles) -> Doubles:
        recalls = np.full((len(weights), len(classes)), np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):  # a sample may lack a class
            means = ((weights * scores) @ own.T) / (weights @ own.T)
            for row, (sample, centres) in enumerate(zip(weights, np.nan_to_num(means, nan=np.inf), strict=True)):
                right = own[np.abs(scores - centres[:, None]).argmin(0), np.arange(len(scores))]
                recalls[row] = own @ (sample * right) / (own @ sample)
        return np.asarray(np.nanmean(recalls, axis=1), np.float64)

    return weighted


def _standardised(scores: Doubles) -> Doubles:
    return np.asarray((scores - scores.mean()) / max(float(scores.std()), 1e-12), np.float64)


STATISTICS: dict[str, Statistic] = {  # the measures that are no means
    "spearman": MEASURES["similarity"]["Spearman"],
    "average precision": MEASURES["pairs"]["AP"],
    "balanced accuracy": Statistic(_separation, _standardised),
}


def mean(name: str, values: Floats, seed: int) -> Estimate:
    """Return the mean of values with its bootstrap interval."""
    exact = np.asarray(values, np.float64)
    value = float(exact.mean())
    low, high = significance.interval(exact, samples=_RESAMPLES, seed=seed) if len(exact) > 1 else (value, value)
    return Estimate(name, value, low, high, len(exact), exact)


def resampled(
    name: str, of: Callable[[Any, Any], float], scores: NDArray[Any], labels: NDArray[Any], seed: int
) -> Estimate:
    """Return any measure of scores and labels with its bootstrap interval."""
    generator = np.random.default_rng(seed)
    resamples = [generator.integers(0, len(scores), len(scores)) for _ in range(200)]
    low, high = np.percentile([of(scores[drawn], labels[drawn]) for drawn in resamples], [2.5, 97.5])
    return Estimate(name, of(scores, labels), float(low), float(high), len(scores))


def statistic(name: str, scores: Floats, labels: NDArray[Any], seed: int) -> Estimate:
    """Return one of `STATISTICS` with its bootstrap interval; 0 if the scores are all the same."""
    measured, exact = STATISTICS[name], np.asarray(scores, np.float64)
    bounds = measured.interval(exact, labels, samples=200, seed=seed)
    value, low, high = np.nan_to_num([measured.value(exact, labels), *bounds]).tolist()
    return Estimate(name, value, low, high, len(exact), exact, labels)
