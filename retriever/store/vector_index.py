"""The vector index of a state of the store: made, put where every machine finds it, and named in a state to commit.

Nobody searches it before the writer has committed the state that names it.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.errors import BinocleError, DamagedError
from ...indexes.manifest import IndexManifest, IndexMetadata
from ...indexes.published import amend, build
from ...indexes.tuning.benchmark import BenchmarkResult, queries_needed
from ...indexes.tuning.optimize import optimize
from ...indexes.tuning.renewal import rebuild, renew
from . import benchmark_queries as questions
from .tables import matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ...core.arrays import Floats, Ids
    from ...indexes.base import VectorIndex
    from ...indexes.manifest import BuiltIndex
    from ...indexes.registry import IndexSpec
    from ...indexes.tuning.benchmark import Requirements
    from ...indexes.tuning.optimize import TuningResult
    from ..models.encoder import Encoder
    from ..models.identity import EncoderId
    from .benchmark_queries import BenchmarkQueries
    from .head import Head
    from .snapshot import Snapshot
    from .store import Store

    EncoderOf = Callable[[EncoderId], Encoder]

# Rows that may be newer than the vector index, or deleted from it, before it is built anew: they are searched
# exactly or masked meanwhile, so this trades a little search time for a lot of writing.
_STALE_ROWS = 1_000
_STALE_SHARE = 0.1


def is_stale(snapshot: Snapshot) -> bool:
    """Whether so much has changed since the index was built that it is to be built anew."""
    if snapshot.head.vectors is None:
        return bool(len(snapshot.chunk_ids))
    index = snapshot.index
    masked = 0 if index.held is None else int((~index.held).sum())
    newer = 0 if index.tail is None else len(index.tail.ids)
    return masked + newer > max(_STALE_ROWS, _STALE_SHARE * len(snapshot.chunk_ids))


def chosen(
    snapshot: Snapshot,
    demand: Requirements,
    asked: BenchmarkQueries,
    *,
    kinds: Sequence[str],
    tell: Callable[[str], None],
) -> tuple[TuningResult, Head]:
    """What meets a demand fastest, and the state with it; the state as it is if nothing does."""
    head, store = snapshot.head, snapshot.store
    outcome = optimize(_bench(snapshot), asked.vectors, demand, source=asked.source, kinds=kinds, log=tell)
    if choice := outcome.choice:
        names = _put(store, choice.built, choice.metadata)
        head = _with(replace(head, demand=demand), names, choice.spec)
    return outcome, head


def built(snapshot: Snapshot, spec: IndexSpec, settle: Callable[[VectorIndex], IndexMetadata] | None = None) -> Head:
    """The state with an index of this kind, for no demand.

    :param settle: is given the index as it was written and read again. What it raises discards the index.
    """
    made = _bench(snapshot)(spec)
    try:
        settled = IndexMetadata() if settle is None else settle(made.load())
        names = _put(snapshot.store, made, settled)
    except BaseException:
        made.discard()
        raise
    spec = spec if settled.search is None else replace(spec, search=settled.search)
    return _with(replace(snapshot.head, demand=None), names, spec)


def amended(snapshot: Snapshot, settled: IndexMetadata) -> Head:
    """The state with the index it has under other search parameters or measurements."""
    head, place = snapshot.head, snapshot.store.place
    folders = [place.vectors(name) for name in head.parts]
    names = [amend(folder.parent, folder.name, settled) for folder in folders]
    for name in names:
        place.keep(name)
    made = IndexManifest.read(place.vectors(names[0]))
    measured = BenchmarkResult.from_dict(made.measurements)
    return _with(replace(head, demand=None if measured is None else measured.requirements), names, made.spec)


def renewed(
    snapshot: Snapshot, before: Head, encoder_of: EncoderOf | None
) -> tuple[Head, str, BenchmarkQueries | None]:
    """The state with an index of all its rows, of the kind that was chosen; what to say of it; queries made for it.

    What was chosen for a demand is measured again, for it now holds other rows, and mended if it missed that.

    :param before: the state whose index it takes the place of.
    :param encoder_of: loads the encoder, to make queries with.
    """
    head, store, measured = snapshot.head, snapshot.store, _measured(snapshot.store, before)
    make, spec = _bench(snapshot), head.index.supported(head.encoder.dim)
    if measured is None:
        made, note = rebuild(make, spec)
        return _with(head, _put(store, made, IndexMetadata()), head.index), note, None
    asked, kept = None, questions.read_stored(store.place, head.encoder)
    if kept is None and (asked := _questions(snapshot, measured.requirements, encoder_of)):
        kept, measured = asked.vectors, replace(measured, source=asked.source)
    elif head.encoder.fingerprint != before.encoder.fingerprint:  # it was measured with others
        measured = replace(measured, source=BenchmarkResult(measured.requirements).source)
    renewal = renew(make, spec, measured, kept)
    names = _put(store, renewal.built, renewal.metadata)
    return (
        _with(replace(head, demand=measured.requirements), names, renewal.requested or renewal.spec),
        renewal.note,
        asked,
    )


def _questions(snapshot: Snapshot, demand: Requirements, encoder_of: EncoderOf | None) -> BenchmarkQueries | None:
    """Made from the passages, if the encoder is at hand and they are enough to prove the demand."""
    if encoder_of and snapshot.chunks.count_rows() and queries_needed(demand.recall) <= demand.query_count:
        with contextlib.suppress(BinocleError):
            asked = questions.of_passages(snapshot, encoder_of(snapshot.head.encoder), demand, seed=0)
            if len(asked.vectors) >= 2 * queries_needed(demand.recall):
                return asked
    return None


def _measured(store: Store, head: Head) -> BenchmarkResult | None:
    """What was demanded of the published index, and measured; the demand alone if the index is gone or damaged."""
    with contextlib.suppress(DamagedError):
        if head.vectors is not None:
            published = IndexManifest.read(store.place.vectors(head.vectors))
            if measured := BenchmarkResult.from_dict(published.measurements):
                return measured
    return BenchmarkResult(head.demand) if head.demand else None


def _bench(snapshot: Snapshot) -> Callable[[IndexSpec], BuiltIndex]:
    """Makes vector indexes of this state that nobody searches yet: here, or in shards by those who serve them."""
    store, head = snapshot.store, snapshot.head

    def made(spec: IndexSpec) -> BuiltIndex:
        shards = store.spread(snapshot, spec) if store.spread else None
        return shards or build(store.path / "vectors", spec, _rows(snapshot), dim=head.encoder.dim, covers=head.rows)

    return made


def _rows(snapshot: Snapshot) -> Iterable[tuple[Ids, Floats]]:
    dim = snapshot.head.encoder.dim
    return ((batch["id"].to_numpy(), matrix(batch["vector"], dim)) for batch in snapshot.batches(["id", "vector"]))


def _put(store: Store, made: BuiltIndex, settled: IndexMetadata) -> tuple[str, ...]:
    """The names of an index that nobody searched yet, put where every machine finds it."""
    names = made.publish(settled)
    if isinstance(names, str):
        store.place.keep(names)
        return (names,)
    return names


def _with(head: Head, names: Sequence[str], spec: IndexSpec) -> Head:
    """With this vector index, in one part or several."""
    return replace(head, vectors=names[0] if names else None, shards=tuple(names[1:]), index=spec)
