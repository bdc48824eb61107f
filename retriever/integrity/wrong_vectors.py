"""Find stored vectors that do not belong to their texts: swapped, of another encoder, or damaged.

The words of a text predict roughly where its vector lies (`vector_regression`). The rows furthest from their prediction
are embedded anew; a vector is wrong if the new one differs. So no right vector is ever called wrong, at the price of
embedding a few per cent of the rows. The search goes on while it finds wrong vectors. A random sample of the remaining
rows then bounds the number of wrong ones missed. If the sample has a wrong one too, every row is embedded.

Vectors that came with their documents are compared with the published index, which has a checksum.
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
from .vector_regression import MAX_TEXTS, leave_one_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...core.arrays import Floats, Integers, Mask
    from ..models.encoder import Encoder
    from ..store.snapshot import Snapshot


_SMALL = 1_000  # rows: an index up to this size is embedded whole, in seconds
_CHANCE = 0.01  # share of vectors of random other texts that lie nearer than the threshold of suspicion
_FIRST_MIN, _FIRST_MAX = 0.03, 0.1  # share of the rows that are embedded first
_STEP, _MIN_STEP = 0.02, 20  # share and minimum of the rows in each further round, until a round has no wrong vector
_SAMPLE = 200  # rows, of the remaining ones
_CONFIDENCE = 0.95
# A right vector may differ a little from the stored one: another processor, runtime or batch. The cosine is about
# 0.9999 in bf16, and 0.99 for one-bit codes, since bits may flip; 0.2 is the distance at a cosine of 0.98.
_MAX_DISTANCE = np.float32(0.2)
_LENGTH = np.float32(1e-3)  # tolerance for a unit vector's length; a flipped bit changes it by more than rounding does
_BATCH_SIZE = 256  # passages embedded together
_SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class WrongVector:
    """A chunk with a stored vector that does not belong to its text."""

    chunk: int  # its id
    document: int
    char_start: int
    char_end: int
    cosine: float  # between the stored vector and the right one
    vector: Floats  # the right one


@dataclass(frozen=True, slots=True)
class VectorCheck:
    """The result of a search for wrong vectors."""

    wrong: tuple[WrongVector, ...]
    rows: int  # with a vector of the encoder
    embedded: int  # rows embedded anew
    missed: int  # upper bound on the wrong vectors not found, with 95 % confidence

    def as_text(self) -> str:
        """One line for people."""
        summary = f"{self.embedded:,} of {self.rows:,} passages embedded anew"
        if self.embedded >= self.rows:
            return summary
        return f"{summary}; at most {self.missed:,} of the other vectors are wrong (95 % sure)"


def search(snapshot: Snapshot, encoder: Encoder, progress: OnProgress = ignore) -> VectorCheck:
    """Find the chunks with a stored vector that differs from the encoder's."""
    rows, own = _by_origin(snapshot)
    checker = _Checker(snapshot, encoder, progress, len(rows))
    checker.compare(own)
    if checker.rows <= _SMALL:
        checker.embed(rows)
    else:
        order, first = _suspects(checker, rows)
        step = max(_MIN_STEP, round(_STEP * checker.rows))
        end, wrong = first, checker.embed(order[:first])
        while wrong and end < checker.rows:
            wrong = checker.embed(order[end : end + step])
            end += step
        rest = order[end:]
        sample = np.random.default_rng(_SEED).permutation(rest)[:_SAMPLE]
        if checker.embed(sample):
            checker.embed(np.setdiff1d(rest, sample))
        elif len(sample) < len(rest):
            checker.missed = math.floor(len(rest) * (1 - (1 - _CONFIDENCE) ** (1 / len(sample))))
    checker.embed_equals()
    return checker.result()


def changed(snapshot: Snapshot, encoder: Callable[[], Encoder]) -> VectorCheck:
    """Find wrong vectors among the ones changed since the vector index was published."""
    ids_changed = [np.empty(0, np.int64)]
    for batch in snapshot.batches(["id", "vector"]):
        ids = batch["id"].to_numpy()
        ids_changed.append(ids[_differs(snapshot, ids, matrix(batch["vector"], snapshot.head.encoder.dim))])
    if not any(map(len, ids_changed)):
        return VectorCheck((), snapshot.chunks.count_rows(), 0, 0)
    rows, own = _by_origin(snapshot)
    checker = _Checker(snapshot, encoder(), ignore, len(rows))
    ids = snapshot.read("chunks", ["id"])["id"].to_numpy()
    suspicious = np.flatnonzero(np.isin(ids, np.concatenate(ids_changed)))
    checker.compare(np.intersect1d(own, suspicious))
    checker.embed(np.intersect1d(rows, suspicious))
    return checker.result()


def _by_origin(snapshot: Snapshot) -> tuple[Integers, Integers]:
    """Return the positions of rows with a vector of the encoder, and of rows with a vector of their document."""
    table = snapshot.read("chunks", ["key", "context"])
    keys = np.array([key_of(context) for context in table["context"].to_pylist()], np.int64)
    is_own = table["key"].to_numpy() != keys
    return np.flatnonzero(~is_own), np.flatnonzero(is_own)


def replace(snapshot: Snapshot, wrong: Iterable[WrongVector]) -> Iterator[pa.RecordBatch]:
    """Every chunk of the store, the wrong vectors replaced by the right ones."""
    right = {vector.chunk: vector.vector for vector in wrong}
    dim, names = snapshot.head.encoder.dim, snapshot.chunks.schema.names
    for batch in snapshot.batches(names):
        vectors = matrix(batch["vector"], dim).copy()
        for row, number in enumerate(batch["id"].to_pylist()):
            if number in right:
                vectors[row] = right[number]
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dim)
        yield batch.set_column(names.index("vector"), snapshot.chunks.schema.field("vector"), column)


class _Checker:
    """Embeds rows anew, by their position in the table, and collects the wrong ones."""

    def __init__(self, snapshot: Snapshot, encoder: Encoder, progress: OnProgress, rows: int) -> None:
        """:param rows: the number of rows with a vector of the encoder."""
        self.snapshot = snapshot
        self.encoder = encoder
        self.rows = rows
        self.missed = 0
        self._wrong: dict[int, WrongVector] = {}  # by chunk id
        self._right: dict[int, Floats] = {}  # the right vectors of wrong chunks, by the key of the text
        self._embedded = np.zeros(snapshot.chunks.count_rows(), np.bool_)
        self._progress = progress
        self._done = 0
        self._start = time.monotonic()

    def result(self) -> VectorCheck:
        """The wrong vectors so far, in order of id."""
        rows = sorted(self._wrong.values(), key=lambda row: row.chunk)
        return VectorCheck(tuple(rows), self.rows, int(self._embedded.sum()), self.missed)

    def take(self, rows: Integers, columns: list[str]) -> tuple[pa.Table, Floats]:
        """Read rows with their ids and stored vectors."""
        with self.snapshot.reading("chunks"):
            table = self.snapshot.chunks.take(rows.tolist(), columns=[*columns, "id", "vector"])
        return table, matrix(table["vector"], self.encoder.dim)

    def report_done(self, rows: int) -> None:
        """Report progress; at least a first share of the rows and a sample are to come."""
        self._done += rows
        total = max(self._done, round((1 + _FIRST_MIN) * self.rows) + _SAMPLE)
        self._progress(progress_of_passages("checking vectors", self._done, total, self._start))

    def embed(self, rows: Integers) -> int:
        """Embed rows anew, and count the new wrong vectors."""
        before = len(self._wrong)
        rows = np.sort(rows)
        for start in range(0, len(rows), _BATCH_SIZE):
            batch = rows[start : start + _BATCH_SIZE]
            table, stored = self.take(batch, [*_SPAN, "key", "context"])
            texts = table["context"].to_pylist()
            distinct = list(dict.fromkeys(texts))
            vectors = dict(zip(distinct, self.encoder.encode(distinct, kind="document"), strict=True))
            self._compare(table, stored, np.stack([vectors[text] for text in texts]))
            self._embedded[batch] = True
            self.report_done(len(batch))
        return len(self._wrong) - before

    def compare(self, rows: Integers) -> None:
        """Compare rows with the published index, and collect the rows that differ."""
        for start in range(0, len(rows), _BATCH_SIZE):
            table, stored = self.take(rows[start : start + _BATCH_SIZE], list(_SPAN))
            ids = table["id"].to_numpy()
            for position in np.flatnonzero(_differs(self.snapshot, ids, stored)).tolist():
                right = self.snapshot.index.reconstruct(ids[position : position + 1])[0]
                self._collect(table, position, stored[position], right)

    def _collect(self, table: pa.Table, position: int, stored: Floats, right: Floats) -> None:
        span: dict[str, Any] = {name: table[name][position].as_py() for name in _SPAN}
        number = table["id"][position].as_py()
        self._wrong[number] = WrongVector(number, cosine=_cosine(stored, right), vector=right, **span)

    def embed_equals(self) -> None:
        """Check the rows with the same text as a wrong one: they may have copied its vector."""
        keys = list(self._right)
        for start in range(0, len(keys), 1_000):
            columns = [*_SPAN, "key", "context", "id", "vector"]
            table = self.snapshot.read("chunks", columns, rows_among("key", keys[start : start + 1_000]))
            right = np.stack([self._right[key] for key in table["key"].to_pylist()])
            self._compare(table, matrix(table["vector"], self.encoder.dim), right)

    def _compare(self, table: pa.Table, stored: Floats, right: Floats) -> None:
        """Collect the rows with a stored vector that differs from the right one, or from the published one."""
        ids = table["id"].to_numpy()
        wrong = _are_apart(stored, right) | _differs(self.snapshot, ids, stored)
        for position in np.flatnonzero(wrong):
            key, context = (table[name][position].as_py() for name in ("key", "context"))
            if key == key_of(context):  # a wrong key is another fault: another text was embedded
                self._right[key] = right[position]
                self._collect(table, int(position), stored[position], right[position])


_SPAN = ("document", "char_start", "char_end")


def _suspects(checker: _Checker, positions_of: Integers) -> tuple[Integers, int]:
    """Order rows, the most suspicious first; returns the number to embed first, too.

    :param positions_of: the positions of the rows in the table.
    """
    rows = checker.rows
    distances, by_chance = np.empty(rows, np.float32), np.empty(rows, np.float32)
    random = np.random.default_rng(_SEED)
    for block in np.array_split(random.permutation(rows), math.ceil(rows / MAX_TEXTS)):
        positions = np.sort(block)
        table, stored = checker.take(positions_of[positions], ["context"])
        texts = table["context"].to_pylist()
        length = np.linalg.norm(_finite(stored).astype(np.float64), axis=1)
        vectors = (_finite(stored) / np.maximum(length, 1e-12)[:, None]).astype(np.float32)
        expected = leave_one_out(_tokens(checker.encoder, texts), vectors)
        distances[positions] = ((vectors - expected) ** 2).sum(1)
        by_chance[positions] = ((random.permutation(vectors) - expected) ** 2).sum(1)
        broken = ~np.isfinite(stored).all(1) | _differs(checker.snapshot, table["id"].to_numpy(), stored)
        if np.median(np.abs(length - 1)) < _LENGTH:
            broken |= np.abs(length - 1) > _LENGTH
        distances[positions[broken]] = np.inf
        checker.report_done(len(positions))
    suspicious = int((distances > np.quantile(by_chance, _CHANCE)).sum())
    minimum, maximum = round(_FIRST_MIN * rows), round(_FIRST_MAX * rows)
    first = max(int(np.isinf(distances).sum()), min(max(suspicious, minimum), maximum))
    return positions_of[np.argsort(-distances, kind="stable")], first


def _tokens(encoder: Encoder, texts: list[str]) -> list[list[str]]:
    """The tokens that the encoder reads, in lower case."""
    limit = encoder.max_tokens
    spans = encoder.offsets(texts)
    return [
        [text[start:end].lower() for start, end in tokens[:limit]] for text, tokens in zip(texts, spans, strict=True)
    ]


def _finite(vectors: Floats) -> Floats:
    """Replace vectors that are not finite by zeros."""
    return np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, np.float32(0))


def _are_apart(stored: Floats, right: Floats) -> Mask:
    """Compare vectors row by row; True too where the distance is not a number."""
    with np.errstate(over="ignore", invalid="ignore"):
        near: Mask = np.linalg.norm(stored - right, axis=1) <= _MAX_DISTANCE * np.linalg.norm(right, axis=1)
        unit = np.abs(np.linalg.norm(right, axis=1) - 1) < _LENGTH
        near &= ~unit | (np.abs(np.linalg.norm(stored, axis=1) - 1) <= _LENGTH)
    return ~near


def _differs(snapshot: Snapshot, ids: Integers, stored: Floats) -> Mask:
    """Compare vectors bit for bit with the published index, which has a valid checksum."""
    try:
        published = np.ascontiguousarray(snapshot.index.reconstruct(ids))
    except BinocleError:
        return np.zeros(len(ids), np.bool_)  # missing rows are another fault
    different: Mask = (published.view(np.uint32) != np.ascontiguousarray(stored).view(np.uint32)).any(1)
    return different


def _cosine(stored: Floats, right: Floats) -> float:
    a, b = stored.astype(np.float64), right.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-300))
