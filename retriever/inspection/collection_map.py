"""The map of a collection: a point in a plane for each of some passages, near ones for texts of like meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core.arrays import isin_sorted
from .layout import plane

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ...core.arrays import Floats, Ids, Positions
    from ..store.filters.filter import Filter
    from ..store.snapshot import Snapshot

MAX_PASSAGES = 3_000  # passages that are shown
_AROUND = 5  # shown passages that place another one
_SOFTNESS = 0.05  # of cosines: a passage with a cosine higher by this counts e times as much
_COLUMNS = ["id", "document", "char_start", "char_end", "line_start"]
_FOLDERS, _DEEPEST = 8, 16  # folders that get a name, and how deep they are


@dataclass(frozen=True, slots=True)
class CollectionMap:
    """Some passages of one state of an index, ids ascending, and their positions from 0 to 1."""

    encoder: str  # fingerprint
    passages: int  # of the index, also the ones without a point
    rows: pa.Table  # columns id, document, char_start, char_end, line_start
    vectors: Floats  # shape (n, dim)
    points: Floats  # shape (n, 2)

    @classmethod
    def of(cls, snapshot: Snapshot, where: Filter | None = None) -> CollectionMap:
        """Draw the map of the passages in documents that pass a filter.

        Of more than 3,000 passages, 3,000 are shown, in equal distances through the index.
        """
        ids = snapshot.sorted_ids if where is None else snapshot.passing(where).chunks
        shown = ids[np.linspace(0, len(ids) - 1, MAX_PASSAGES).astype(np.intp)] if len(ids) > MAX_PASSAGES else ids
        vectors = snapshot.index.reconstruct(shown) if len(shown) else np.empty((0, snapshot.head.encoder.dim), "f")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = np.ascontiguousarray(vectors / np.maximum(lengths, 1e-12), np.float32)
        rows = snapshot.take("chunks", shown, _COLUMNS)
        return cls(snapshot.head.encoder.fingerprint, len(ids), rows, vectors, plane(vectors))

    def is_of(self, snapshot: Snapshot) -> bool:
        """Whether it was drawn with the encoder of a state."""
        return self.encoder == snapshot.head.encoder.fingerprint

    def visible(self, snapshot: Snapshot, where: Filter | None = None) -> Positions:
        """Return the shown passages that are still in an index, in documents that pass a filter."""
        ids = self.rows["id"].to_numpy()
        live = isin_sorted(ids, snapshot.sorted_ids if where is None else snapshot.passing(where).chunks)
        return np.flatnonzero(live)

    def positions(self, snapshot: Snapshot, passages: Ids) -> list[list[float] | None]:
        """Place passages on the map: an unshown passage near shown ones of similar meaning. None for a removed one.

        :param snapshot: a state with the same encoder.
        """
        ids = self.rows["id"].to_numpy()
        known, live = isin_sorted(passages, ids), isin_sorted(passages, snapshot.sorted_ids)
        positions = np.zeros((len(passages), 2), np.float32)
        positions[known] = self.points[np.searchsorted(ids, passages[known])]
        hidden = live & ~known
        if len(ids) and hidden.any():
            positions[hidden] = self._near(snapshot.index.reconstruct(passages[hidden]))
        shown = (live & bool(len(ids))).tolist()
        return [point if is_shown else None for point, is_shown in zip(positions.tolist(), shown, strict=True)]

    def _near(self, vectors: Floats) -> Floats:
        """Return the mean positions of the nearest shown passages, shape (n, 2)."""
        cosines = vectors @ self.vectors.T
        near = np.argsort(-cosines, axis=1)[:, :_AROUND]
        best = np.take_along_axis(cosines, near, 1)
        weights = np.exp((best - best[:, :1]) / _SOFTNESS)[..., None]
        means: Floats = (self.points[near] * weights).sum(1) / weights.sum(1)
        return means


def folders(paths: Sequence[str]) -> tuple[list[str], list[int]]:
    """Divide documents by folder: the names of at most 8 folders, largest first, and the number of each path's folder.

    The largest folder is divided into its folders until there would be too many. Files that are in none of the folders
    below a divided folder count to the divided folder itself, or to "".
    """
    parts = [path.split("/", _DEEPEST)[:-1] for path in paths]
    groups: dict[tuple[str, ...], list[int]] = {(): list(range(len(paths)))}
    whole: set[tuple[str, ...]] = set()
    while left := groups.keys() - whole:
        name = max(left, key=lambda name: (len(groups[name]), name))
        inside: dict[tuple[str, ...], list[int]] = {}
        for number in groups[name]:
            inside.setdefault(tuple(parts[number][: len(name) + 1]), []).append(number)
        rest = inside.pop(name, [])
        if name and len(groups) + len(inside) > _FOLDERS:
            whole.add(name)
            continue
        largest = sorted(inside, key=lambda name: (-len(inside[name]), name))[: _FOLDERS - 1]
        rest += [number for each in inside.keys() - set(largest) for number in inside[each]]
        del groups[name]
        groups |= {each: inside[each] for each in largest} | ({name: rest} if rest else {})
        whole.add(name)
    names = sorted(groups, key=lambda name: (not name, -len(groups[name]), name))
    number_of = {path: number for number, name in enumerate(names) for path in groups[name]}
    return ["/".join(name) for name in names], [number_of[path] for path in range(len(paths))]
