"""Check the parts of an index against each other: the tables, the vectors, the indexes of words and of neighbours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import BinocleError, DamagedError
from ...core.terms import STOP_WORDS
from ...indexes.manifest import IndexManifest
from ..store.derived import lexical, live_neighbourhood
from ..store.tables import PREVIOUS
from .fault import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..store.snapshot import Snapshot

_SAMPLES = 50  # passages looked up in the full-text index
_TOGETHER = 10  # of them in one search


def index_faults(snapshot: Snapshot, rows: list[dict[str, Any]]) -> Iterator[Fault]:
    """Compare the tables of a store with each other, and its indexes with the tables.

    :param rows: of all documents.
    """
    yield from _store_faults(snapshot, rows)
    yield from _vector_faults(snapshot)
    yield from _text_faults(snapshot)
    yield from _word_faults(snapshot)
    yield from _neighbour_faults(snapshot)


def _store_faults(snapshot: Snapshot, rows: list[dict[str, Any]]) -> Iterator[Fault]:
    """Duplicate documents and chunks, and documents with another number of chunks than recorded."""
    paths: set[tuple[str, str]] = set()
    for row in rows:
        if (row["source"], row["path"]) in paths:
            yield Fault("store", row["path"], "is in the documents table twice")
        paths.add((row["source"], row["path"]))
    expected = {row["id"]: row["chunks"] for row in rows if row["chunks"]}
    chunk_ids = snapshot.chunk_ids
    numbers, counts = np.unique(chunk_ids["document"].to_numpy(), return_counts=True)
    counted = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    names = {row["id"]: row["path"] for row in rows}
    for number in sorted(expected.keys() | counted.keys()):
        if expected.get(number, 0) != counted.get(number, 0):
            problem = f"should have {expected.get(number, 0)} passages in the store but has {counted.get(number, 0)}"
            yield Fault("store", names.get(number, f"document {number}"), problem)
    if len(np.unique(chunk_ids["id"].to_numpy())) != len(chunk_ids):
        yield Fault("store", "", "two passages have the same id")


def _vector_faults(snapshot: Snapshot) -> Iterator[Fault]:
    """The published index against the store: its files' checksums, and each vector by value."""
    name = snapshot.head.vectors
    if name is not None and snapshot.damage:
        yield Fault("vector index", name, str(snapshot.damage))
    elif name is not None:
        try:
            for part in map(snapshot.store.location.vectors, snapshot.head.parts):
                IndexManifest.read(part).check_files(part)
        except DamagedError as error:
            yield Fault("vector index", name, str(error))
    index = snapshot.index
    dim = snapshot.head.encoder.dim
    for batch in snapshot.batches(["id", "vector"]):
        ids = batch["id"].to_numpy()
        stored = batch["vector"].flatten().to_numpy().reshape(-1, dim)
        if not np.isfinite(stored).all():
            yield Fault("store", "", f"a vector of the passages {ids[0]} to {ids[-1]} is not finite")
        try:
            same = np.array_equal(index.reconstruct(ids), stored)
        except BinocleError as error:
            yield Fault("vector index", str(name), f"lacks passages of the store: {error}")
            return
        if not same:
            yield Fault("vector index", str(name), f"differs from the store in the passages {ids[0]} to {ids[-1]}")
    yield from _previous_faults(snapshot)


def _previous_faults(snapshot: Snapshot) -> Iterator[Fault]:
    """Check that each vector of the encoder before the last switch is whole and finite."""
    before = snapshot.head.previous
    if before is None:
        return
    for batch in snapshot.batches(["id", PREVIOUS]):
        vectors = batch[PREVIOUS].drop_null().to_pylist()
        if not all(len(vector) == 4 * before.dim and _is_finite(vector) for vector in vectors):
            ids = batch["id"]
            yield Fault("store", "", f"a previous vector of the passages {ids[0]} to {ids[-1]} is damaged")


def _is_finite(vector: bytes) -> bool:
    return bool(np.isfinite(np.frombuffer(vector, "<f4")).all())


def _text_faults(snapshot: Snapshot) -> Iterator[Fault]:
    """Check the full-text index: its checksums, and a search for a sample of passages by their own words.

    An index that is not trusted is skipped: searches never open its full-text index either.
    """
    if not snapshot.store.trusted:
        return
    try:
        snapshot.check_text(again=True)
    except DamagedError as error:
        yield Fault("full-text index", "", str(error))
        return
    table = snapshot.read("chunks", ["id"])
    step = max(1, len(table) // _SAMPLES)
    rows = snapshot.chunks_by_id(table["id"].to_pylist()[::step], ["context"])
    words = {number: _words(row["context"]) for number, row in rows.items()}
    passages = [number for number in rows if len(words[number]) >= 2]  # one may have the stem of a stop word
    try:
        for start in range(0, len(passages), _TOGETHER):
            for number in _not_found(snapshot, {number: words[number] for number in passages[start:][:_TOGETHER]}):
                yield Fault("full-text index", "", f"does not find passage {number} by its own words")
    except DamagedError as error:
        yield Fault("full-text index", "", str(error))


def _words(context: str) -> list[str]:
    """Return words of a passage that the full-text index has as they are: no stop word, and no part of `house42`."""
    words = {word.lower() for word in re.findall(r"\b[a-zA-Z]{5,30}\b", context)}
    return sorted(words.difference(STOP_WORDS))[:32]


def _not_found(snapshot: Snapshot, words: Mapping[int, list[str]]) -> list[int]:
    """Return the passages that the full-text index does not find by their own words.

    A search for several passages takes as long as a search for one. Each passage that it misses is searched for alone.
    """
    together = sorted(set().union(*words.values()))
    hits = snapshot.full_text(" ".join(together), len(words), f"id in ({', '.join(map(str, words))})")
    missed = words.keys() - set(hits["id"].to_pylist())
    return [
        number for number in sorted(missed) if not len(snapshot.full_text(" ".join(words[number]), 1, f"id = {number}"))
    ]


def _word_faults(snapshot: Snapshot) -> Iterator[Fault]:
    """Check the inverted index: its checksums and its values."""
    try:
        lexical.check(snapshot)
    except DamagedError as error:
        yield Fault("inverted index", "", str(error))


def _neighbour_faults(snapshot: Snapshot) -> Iterator[Fault]:
    """Check the neighbours of the passages: their checksums, and that a search can map them."""
    try:
        live_neighbourhood.check(snapshot)
    except DamagedError as error:
        yield Fault("neighbours", "", str(error))
