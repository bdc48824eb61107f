"""The neighbourhoods of a store's passages: published beside the vector index, and made current for one state.

They are a cache, in a folder of `vectors/` that HEAD names. A reader without them ranks without neighbours. Passages
that came since have none, deleted neighbours are left out, and many changes bring new neighbourhoods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....core.arrays import isin_sorted
from ....core.errors import DamagedError
from ....indexes import neighbourhood
from ....indexes.flat import FlatIndex, exact_index
from ....indexes.manifest import IndexManifest
from ....indexes.neighbourhood import Neighbourhood
from ....indexes.published import publish_files

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ....core.arrays import Floats, Ids
    from ..committed_rows import CommittedRows
    from .live_index import LiveIndex

KIND = "neighbours"
MIN_PASSAGES = 1_000  # passages: of fewer, 50 are no neighbourhood but a large part of all
_MAX_PASSAGES = 4_000_000  # passages: more would not be compared in the memory of one machine
_STALE_ROWS = 100  # with this number and share of changed rows, all neighbourhoods are computed again
_STALE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class LiveNeighbourhood:
    """The neighbourhoods of one state of the store."""

    published: Neighbourhood
    state: CommittedRows
    complete: bool  # they are of exactly the passages of this state

    def around(self, ids: Ids) -> tuple[Ids, NDArray[np.int32]]:
        """Return passages with all their neighbours, ids ascending, and the index of each among them.

        :param ids: ascending.
        :returns: ids, shape (m,), and indices, shape (len(ids), 51): of the passage itself, then of its neighbours; -1
            for none.
        """
        positions, known = self.published.positions(ids)
        count, newer = len(self.published.ids), ids[~known]  # with higher ids than all that have neighbours
        rows = np.full((len(ids), 1 + neighbourhood.NEIGHBOURS), -1, np.int32)
        rows[known, 0], rows[~known, 0] = positions[known], np.arange(count, count + len(newer))
        rows[known, 1:] = self.published.nearest(positions[known])
        marked, indices = np.zeros(count + len(newer) + 1, np.bool_), np.empty(count + len(newer) + 1, np.int32)
        marked[rows] = True
        passages = np.flatnonzero(marked[:-1])
        indices[passages], indices[-1] = np.arange(len(passages)), -1
        passages = np.concatenate([self.published.ids[passages[passages < count]], newer])
        around = indices[rows]
        if not self.complete:
            live = np.append(isin_sorted(passages, self.state.sorted_ids), True)
            around[~live[around]] = -1
        return passages, around

    def documents(self, ids: Ids) -> Ids:
        """Return the document of each passage."""
        positions, known = self.published.positions(ids)
        documents: Ids = self.published.documents[positions]
        if not known.all():
            rows = self.state.chunk_ids
            indices = np.searchsorted(rows["id"].to_numpy(), ids[~known])
            documents[~known] = rows["document"].to_numpy()[indices]
        return documents

    def document_cosines(self, ids: Ids, vector: Floats, cosines: Floats) -> Floats:
        """Return the cosines of a vector with the mean vectors of the documents of passages.

        :param cosines: of the vector with the passages themselves. They are returned for a document of one passage, and
            for a document without a mean vector yet.
        """
        positions, known = self.published.positions(ids)
        result = cosines.copy()
        result[known] = self.published.document_cosines(positions[known], vector, cosines[known])
        return result


def load(state: CommittedRows) -> LiveNeighbourhood | None:
    """Map the neighbourhoods that a state names; None if it names none, or if another encoder made them.

    :raises DamagedError: when they were removed or changed.
    """
    name, encoder = state.head.neighbours, state.head.encoder
    if name is None:
        return None
    folder = state.store.location.vectors(name)
    manifest = IndexManifest.read(folder)
    if manifest.kind != KIND or manifest.build.get("encoder") != encoder.document_fingerprint:
        return None
    published = Neighbourhood.load(folder, manifest.count, encoder.dim)
    return LiveNeighbourhood(published, state, complete=np.array_equal(published.ids, state.sorted_ids))


def check(state: CommittedRows) -> None:
    """Compare the checksums of the neighbourhoods, and map them.

    :raises DamagedError: when a file was removed or changed.
    """
    if state.head.neighbours is not None:
        folder = state.store.location.vectors(state.head.neighbours)
        IndexManifest.read(folder).check_files(folder)
        load(state)


def are_useful(passages: int) -> bool:
    """Tell whether an index of this size has neighbourhoods: few passages gain nothing, millions cost too much."""
    return MIN_PASSAGES <= passages <= _MAX_PASSAGES


def is_stale(state: CommittedRows) -> bool:
    """Tell whether the neighbourhoods of a state are missing or damaged, or too many passages changed since."""
    try:
        live = load(state)
    except DamagedError:
        return True
    if live is None:
        return True
    if live.complete:
        return False
    ids, published = state.sorted_ids, live.published.ids
    common = int(np.searchsorted(ids, published[-1], side="right"))  # ids are never reused: the others are newer
    return len(ids) + len(published) - 2 * common > max(_STALE_ROWS, _STALE_SHARE * len(ids))


def publish(state: CommittedRows, index: LiveIndex) -> str:
    """Compute neighbourhoods of all passages and write them; return their name, for a commit.

    :param index: of exactly these passages.
    """
    head, store = state.head, state.store
    rows = state.read("chunks", ["id", "document", "key"]).sort_by("id")
    ids, documents, keys = (rows[name].to_numpy() for name in ("id", "document", "key"))
    vectors = _vectors(index, ids)

    def write(folder: Path) -> None:
        neighbourhood.write(folder, ids, vectors, documents, keys)

    description = {"encoder": head.encoder.document_fingerprint}
    name = publish_files(store.path / "vectors", KIND, write, count=len(ids), covers=head.rows, description=description)
    store.location.keep(name)
    return name


def _vectors(index: LiveIndex, ids: Ids) -> Floats:
    """Return the vectors of all passages: mapped, if the vector index has exactly these."""
    exact = exact_index(index.published)
    if isinstance(exact, FlatIndex) and np.array_equal(exact.ids, ids):
        return exact.vectors
    return index.reconstruct(ids)
