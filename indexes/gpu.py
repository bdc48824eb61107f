"""Exact search on GPUs with torch: compare every vector, and give the answers of `FlatIndex`.

The vectors lie in the memory of the devices, equally divided, as float32. With lower precision, the ten best of ten
million vectors are not always the ten best. One query takes as long as reading the vectors; many queries take as long
as computing the products.

The k best of a block of scores lie within the k groups of 32 with the greatest maxima. So all scores are read once for
the maxima, and then 32 k of them for each query. `torch.topk` would read all of them several times.

The tests run this code on a CPU, and with `pytest -m gpu` on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.runtime.device import gpus
from ..core.units import format_bytes
from .flat import allowed_count, allowed_mask, top_k
from .metric import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from ..core.arrays import Floats, Ids, Mask, Positions
    from .base import VectorIndex
    from .flat import FlatIndex

_QUERIES = 1_024  # in a batch
_SCORES = 2**28  # in memory at a time: 1 GiB
_GROUP = 32  # scores that share a maximum
_ROWS = 65_536  # copied at a time
_SPARE = 2**32  # bytes of a device left free for scores and for other programs


@dataclass(frozen=True, slots=True)
class GpuIndex:
    """A `VectorIndex` over a copy of an exact index's vectors in GPU memory."""

    exact: FlatIndex
    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, exact: FlatIndex, devices: Sequence[str]) -> GpuIndex:
        """Copy the vectors to the devices.

        :param devices: torch's names for them.
        """
        bounds = np.linspace(0, len(exact.ids), len(devices) + 1).astype(int).tolist()
        shares = zip(devices, bounds[:-1], bounds[1:], strict=True)
        return cls(exact, tuple(_Part.of(exact, device, first, end) for device, first, end in shares))

    @property
    def ids(self) -> Ids:
        """The ids of `exact`, which stay in the host's memory."""
        return self.exact.ids

    def search(self, vectors: Floats, k: int, *, allowed: Mask | Positions | None = None) -> tuple[Floats, Ids]:
        """Compare every vector on all devices, 1,024 queries at a time, and merge the answers on the host."""
        queries = self.exact.prepare_queries(vectors)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        depth = min(k, len(self.ids) if allowed is None else allowed_count(allowed))
        mask = None if allowed is None else allowed_mask(allowed, len(self.ids))
        for start in range(0, len(queries) if depth else 0, _QUERIES):
            batch = slice(start, start + _QUERIES)
            scores[batch, :depth], ids[batch, :depth] = self._best(queries[batch], depth, mask)
        return scores, ids

    def reconstruct(self, ids: Ids) -> Floats:
        """Read the vectors of `exact` on the host: the copies on the devices may be normalized."""
        return self.exact.reconstruct(ids)

    def with_parameters(self, **search: Any) -> GpuIndex:
        """Return this index itself; any parameter raises InputError, since exact search has none."""
        self.exact.with_parameters(**search)
        return self

    def _best(self, queries: Floats, k: int, mask: Mask | None) -> tuple[Floats, Ids]:
        answers = [part.best(queries, k, mask) for part in self.parts]  # the devices work side by side
        scores, positions = (
            np.hstack([part.cpu().numpy() for part in arrays]) for arrays in zip(*answers, strict=True)
        )
        scores, positions = top_k(np.where(np.isfinite(scores), scores, np.float32(-np.inf)), positions, k)
        return scores, np.where(scores == -np.inf, -1, self.ids[positions])


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of an index on one device, from row `first` on."""

    first: int
    vectors: Tensor
    not_finite: Tensor | None  # a mask of rows with a number that is not finite: they answer no query
    metric: str

    @classmethod
    def of(cls, exact: FlatIndex, device: str, first: int, end: int) -> _Part:
        import torch

        rows = torch.empty((end - first, exact.vectors.shape[1]), device=device)
        not_finite = torch.zeros(end - first, dtype=torch.bool, device=device)
        for start in range(first, end, _ROWS):
            block = METRICS[exact.metric].prepare(np.array(exact.vectors[start : min(end, start + _ROWS)]))
            span = slice(start - first, start - first + len(block))
            rows[span] = torch.from_numpy(block)
            not_finite[span] = ~rows[span].isfinite().all(1)
        return cls(first, rows, not_finite if not_finite.any() else None, exact.metric)

    def best(self, queries: Floats, k: int, mask: Mask | None) -> tuple[Tensor, Tensor]:
        """Return scores and positions of the k best of these rows, or of all if there are fewer: (queries, k)."""
        import torch

        inputs, excluded = torch.tensor(queries, device=self.vectors.device), self._excluded(mask)
        best, positions = inputs.new_empty((len(inputs), 0)), inputs.new_empty((len(inputs), 0), dtype=torch.int64)
        for start, block in self._blocks(len(inputs)):
            scores = self._scores(inputs, block)
            if excluded is not None:
                scores.masked_fill_(excluded[start : start + len(block)], -torch.inf)
            block_best, columns = _top_k_of_groups(scores, k)
            best, order = torch.cat([best, block_best], 1).topk(min(k, best.shape[1] + block_best.shape[1]))
            positions = torch.cat([positions, columns + (self.first + start)], 1).gather(1, order)
        return (best if self._sign > 0 else -best.square()), positions

    def _blocks(self, queries: int) -> Iterator[tuple[int, Tensor]]:
        step = max(_GROUP, _SCORES // queries)
        for start in range(0, len(self.vectors), step):
            yield start, self.vectors[start : start + step]

    def _scores(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """Return inner products or minus the distances; computed from products, distances would lose digits."""
        import torch

        if self._sign > 0:
            return queries @ vectors.T
        return -torch.cdist(queries, vectors, compute_mode="donot_use_mm_for_euclid_dist")

    def _excluded(self, mask: Mask | None) -> Tensor | None:
        """Return a mask of this part's rows that may not be answers; None if all may."""
        import torch

        if mask is None:
            return self.not_finite
        own_mask = mask[self.first : self.first + len(self.vectors)]
        excluded = ~torch.tensor(own_mask, device=self.vectors.device)
        return excluded if self.not_finite is None else excluded | self.not_finite

    @property
    def _sign(self) -> int:
        return METRICS[self.metric].sign


def _top_k_of_groups(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k greatest scores of each row and their columns, read from the groups with the greatest maxima."""
    import torch

    count = scores.shape[1]
    whole = count - count % _GROUP
    if k * _GROUP >= whole:
        return scores.topk(min(k, count))
    groups = scores[:, :whole].view(len(scores), -1, _GROUP).amax(2).topk(k).indices
    numbers = torch.arange(count, device=scores.device)
    inside = (groups[:, :, None] * _GROUP + numbers[:_GROUP]).flatten(1)
    columns = torch.cat([inside, numbers[whole:].expand(len(scores), -1)], 1)
    best, order = scores.gather(1, columns).topk(k)
    return best, columns.gather(1, order)


def on_gpus(index: VectorIndex) -> tuple[VectorIndex, str]:
    """Copy an index to the GPUs of this machine for exact search, if they have room.

    :returns: the GPU index, or the index itself; and the name of the searching device, for messages.
    """
    devices, by = gpus()
    if not devices:
        return index, by
    import torch

    exact: Any = getattr(index, "exact", index)
    needed = exact.vectors.nbytes / len(devices) + _SPARE
    free = min(torch.cuda.mem_get_info(name)[0] for name in devices)
    if needed > free:
        return index, f"the CPU: a GPU has {format_bytes(free)} of memory free where {format_bytes(needed)} are needed"
    return GpuIndex.of(exact, devices), by
