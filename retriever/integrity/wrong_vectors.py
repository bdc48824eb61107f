"""Stored vectors that are not those of their texts: swapped, of another encoder, or damaged.

The words of a text say roughly where its vector lies (`probe`). The rows that lie furthest from there are embedded
anew, and only one whose new vector differs from the stored one is wrong: a right one is never called wrong, at the
price of embedding a few per cent. It goes on as long as it finds some. A random sample of the rest then says how many
can have been missed, and if even that has a wrong one, every row is embedded.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...core.errors import BinocleError
from ...core.progress import OnProgress, ignore
from ..indexing.indexer import key_of
from ..indexing.report import progress_of_passages
from ..store.tables import matrix, rows_among
from .vector_regression import MOST, leave_one_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...core.arrays import Floats, Integers, Mask
    from ..models.encoder import Encoder
    from ..store.snapshot import Snapshot


_FEW = 1_000  # rows that are all embedded anew: it takes seconds
_CHANCE = 0.01  # of vectors put to random texts are nearer than where suspicion begins
_LEAST, _MOST = 0.03, 0.1  # of the rows are embedded at first
_STEP, _PATIENCE = 0.02, 20  # and so many more at a time, but not fewer rows, as long as some of them are wrong
_SAMPLE = 200  # of the rest
_SURE = 0.95
# A right vector may differ a little from the stored one: another processor, runtime or batch. In bf16 the cosine is
# about 0.9999, and of one-bit codes, some of which turn over, 0.99; 0.2 is the distance at a cosine of 0.98.
_APART = np.float32(0.2)
_LENGTH = np.float32(1e-3)  # a unit vector's, which a flipped bit changes by more than rounding does
_AT_ONCE = 256  # passages embedded at a time
_SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class WrongVector:
    """A chunk whose stored vector is not that of its text."""

    chunk: int  # its id
    document: int
    char_start: int
    char_end: int
    cosine: float  # of the stored vector and the text's own
    vector: Floats  # the text's own


@dataclass(frozen=True, slots=True)
class VectorCheck:
    wrong: tuple[WrongVector, ...]
    rows: int
    embedded: int  # of them
    missed: int  # at most so many wrong ones are left, 95 % sure

    def as_text(self) -> str:
        told = f"{self.embedded:,} of {self.rows:,} passages embedded anew"
        if self.embedded >= self.rows:
            return told
        return f"{told}; at most {self.missed:,} of the other vectors are wrong (95 % sure)"


def search(snapshot: Snapshot, encoder: Encoder, progress: OnProgress = ignore) -> VectorCheck:
    """The chunks whose stored vectors are not what the index's encoder makes of their texts."""
    trial = _Checker(snapshot, encoder, progress)
    if trial.rows <= _FEW:
        trial.embed(np.arange(trial.rows))
    else:
        order, first = _suspects(trial)
        step = max(_PATIENCE, round(_STEP * trial.rows))
        end, found = first, trial.embed(order[:first])
        while found and end < trial.rows:
            found = trial.embed(order[end : end + step])
            end += step
        rest = order[end:]
        sample = np.random.default_rng(_SEED).permutation(rest)[:_SAMPLE]
        if trial.embed(sample):
            trial.embed(np.setdiff1d(rest, sample))
        elif len(sample) < len(rest):
            trial.missed = math.floor(len(rest) * (1 - (1 - _SURE) ** (1 / len(sample))))
    trial.embed_equals()
    return trial.found()


def changed(snapshot: Snapshot, encoder: Callable[[], Encoder]) -> VectorCheck:
    """The chunks whose vectors are others in the store than when its index was published, with what they should be."""
    wrong = [np.empty(0, np.int64)]
    for batch in snapshot.batches(["id", "vector"]):
        ids = batch["id"].to_numpy()
        wrong.append(ids[_differs(snapshot, ids, matrix(batch["vector"], snapshot.head.encoder.dim))])
    if not any(map(len, wrong)):
        return VectorCheck((), snapshot.chunks.count_rows(), 0, 0)
    trial = _Checker(snapshot, encoder(), ignore)
    trial.embed(np.flatnonzero(np.isin(snapshot.read("chunks", ["id"])["id"].to_numpy(), np.concatenate(wrong))))
    return trial.found()


def mended(snapshot: Snapshot, wrong: Iterable[WrongVector]) -> Iterator[pa.RecordBatch]:
    """Every chunk as it is, but these with the vectors of their texts."""
    right = {row.chunk: row.vector for row in wrong}
    dim, names = snapshot.head.encoder.dim, snapshot.chunks.schema.names
    for batch in snapshot.batches(names):
        vectors = matrix(batch["vector"], dim).copy()
        for place, number in enumerate(batch["id"].to_pylist()):
            if number in right:
                vectors[place] = right[number]
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dim)
        yield batch.set_column(names.index("vector"), snapshot.chunks.schema.field("vector"), column)


class _Checker:
    """Rows by their place in the table, and what embedding some of them anew has shown."""

    def __init__(self, snapshot: Snapshot, encoder: Encoder, progress: OnProgress) -> None:
        self.snapshot = snapshot
        self.encoder = encoder
        self.rows = snapshot.chunks.count_rows()
        self.missed = 0
        self._wrong: dict[int, WrongVector] = {}  # by chunk id
        self._own: dict[int, Floats] = {}  # the vectors of the texts of wrong chunks, by the text's key
        self._embedded = np.zeros(self.rows, np.bool_)
        self._progress = progress
        self._done = 0
        self._start = time.monotonic()

    def found(self) -> VectorCheck:
        rows = sorted(self._wrong.values(), key=lambda row: row.chunk)
        return VectorCheck(tuple(rows), self.rows, int(self._embedded.sum()), self.missed)

    def take(self, places: Integers, columns: list[str]) -> tuple[pa.Table, Floats]:
        with self.snapshot.reading("chunks"):
            table = self.snapshot.chunks.take(places.tolist(), columns=[*columns, "id", "vector"])
        return table, matrix(table["vector"], self.encoder.dim)

    def told(self, rows: int) -> None:
        self._done += rows
        total = max(self._done, round((1 + _LEAST) * self.rows) + _SAMPLE)
        self._progress(progress_of_passages("checking vectors", self._done, total, self._start))

    def embed(self, places: Integers) -> int:
        """Embed these rows; gives how many have a wrong vector."""
        before = len(self._wrong)
        places = np.sort(places)
        for start in range(0, len(places), _AT_ONCE):
            some = places[start : start + _AT_ONCE]
            table, stored = self.take(some, [*_PLACE, "key", "context"])
            texts = table["context"].to_pylist()
            own = dict.fromkeys(texts)
            vectors = dict(zip(own, self.encoder.encode(list(own), kind="document"), strict=True))
            self._judge(table, stored, np.stack([vectors[text] for text in texts]))
            self._embedded[some] = True
            self.told(len(some))
        return len(self._wrong) - before

    def embed_equals(self) -> None:
        """Judge the rows that have the same text as a wrong one: they may have got their vector from it."""
        keys = list(self._own)
        for start in range(0, len(keys), 1_000):
            columns = [*_PLACE, "key", "context", "id", "vector"]
            table = self.snapshot.read("chunks", columns, rows_among("key", keys[start : start + 1_000]))
            own = np.stack([self._own[key] for key in table["key"].to_pylist()])
            self._judge(table, matrix(table["vector"], self.encoder.dim), own)

    def _judge(self, table: pa.Table, stored: Floats, own: Floats) -> None:
        ids = table["id"].to_numpy()
        wrong = _apart(stored, own) | _differs(self.snapshot, ids, stored)
        for place in np.flatnonzero(wrong):
            row = {name: table[name][place].as_py() for name in (*_PLACE, "id", "key", "context")}
            if row["key"] == key_of(row["context"]):  # else the text is not what was embedded: a fault of its own
                self._own[row["key"]] = own[place]
                where: dict[str, Any] = {name: row[name] for name in _PLACE}
                cosine = _cosine(stored[place], own[place])
                self._wrong[row["id"]] = WrongVector(row["id"], cosine=cosine, vector=own[place], **where)


_PLACE = ("document", "char_start", "char_end")


def _suspects(trial: _Checker) -> tuple[Integers, int]:
    """All rows, the most suspicious first, and how many to begin with."""
    rows = trial.rows
    distances, by_chance = np.empty(rows, np.float32), np.empty(rows, np.float32)
    random = np.random.default_rng(_SEED)
    for block in np.array_split(random.permutation(rows), math.ceil(rows / MOST)):
        places = np.sort(block)
        table, stored = trial.take(places, ["context"])
        texts = table["context"].to_pylist()
        length = np.linalg.norm(_finite(stored).astype(np.float64), axis=1)
        vectors = (_finite(stored) / np.maximum(length, 1e-12)[:, None]).astype(np.float32)
        expected = leave_one_out(_tokens(trial.encoder, texts), vectors)
        distances[places] = ((vectors - expected) ** 2).sum(1)
        by_chance[places] = ((random.permutation(vectors) - expected) ** 2).sum(1)
        broken = ~np.isfinite(stored).all(1) | _differs(trial.snapshot, table["id"].to_numpy(), stored)
        if np.median(np.abs(length - 1)) < _LENGTH:
            broken |= np.abs(length - 1) > _LENGTH
        distances[places[broken]] = np.inf
        trial.told(len(places))
    suspicious = int((distances > np.quantile(by_chance, _CHANCE)).sum())
    least, most = round(_LEAST * rows), round(_MOST * rows)
    first = max(int(np.isinf(distances).sum()), min(max(suspicious, least), most))
    return np.argsort(-distances, kind="stable"), first


def _tokens(encoder: Encoder, texts: list[str]) -> list[list[str]]:
    limit = encoder.max_tokens
    spans = encoder.offsets(texts)
    return [
        [text[start:end].lower() for start, end in tokens[:limit]] for text, tokens in zip(texts, spans, strict=True)
    ]


def _finite(vectors: Floats) -> Floats:
    """Zeros for the vectors that are not finite."""
    return np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, np.float32(0))


def _apart(stored: Floats, own: Floats) -> Mask:
    with np.errstate(over="ignore", invalid="ignore"):
        near: Mask = np.linalg.norm(stored - own, axis=1) <= _APART * np.linalg.norm(own, axis=1)
        unit = np.abs(np.linalg.norm(own, axis=1) - 1) < _LENGTH
        near &= ~unit | (np.abs(np.linalg.norm(stored, axis=1) - 1) <= _LENGTH)
    return ~near  # so too where the distance is not a number


def _differs(snapshot: Snapshot, ids: Integers, stored: Floats) -> Mask:
    """Which vectors are not, bit for bit, those of the published index, whose checksum is right."""
    try:
        published = np.ascontiguousarray(snapshot.index.reconstruct(ids))
    except BinocleError:
        return np.zeros(len(ids), np.bool_)  # it lacks some, which is a fault of its own
    different: Mask = (published.view(np.uint32) != np.ascontiguousarray(stored).view(np.uint32)).any(1)
    return different


def _cosine(one: Floats, other: Floats) -> float:
    a, b = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-300))
