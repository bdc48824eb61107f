"""Exact search on GPUs, by torch: every vector is compared, and the answers are those of `FlatIndex`.

The vectors lie in the memory of the devices, as many rows in each, as float32: with less, the ten best of ten million
are not always the ten best. One query takes as long as the vectors take to be read; many take as long as the products.

The k best of a block of scores lie within the k groups of 32 that have the greatest maxima. So all scores are read
once, for the maxima, and then 32 k for each query, where `torch.topk` would pass over all of them several times.

Not measured: no machine with a GPU was at hand. The tests run these lines on a CPU, and with `pytest -m gpu` on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.units import format_bytes
from .flat import best_of, count_of, mask_of
from .metric import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from ..core.arrays import Floats, Ids, Mask
    from .base import Places, VectorIndex
    from .flat import FlatIndex

_QUERIES = 1_024  # at a time
_SCORES = 2**28  # held at a time: 1 GiB
_GROUP = 32
_ROWS = 65_536  # that are copied at a time
_SPARE = 2**32  # bytes of a device that are left for scores and for others


@dataclass(frozen=True, slots=True)
class GpuIndex:
    """A `VectorIndex` over the vectors of another, which stays as it is."""

    exact: FlatIndex
    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, exact: FlatIndex, devices: Sequence[str]) -> GpuIndex:
        """:param devices: torch's names for them."""
        bounds = np.linspace(0, len(exact.ids), len(devices) + 1).astype(int).tolist()
        shares = zip(devices, bounds[:-1], bounds[1:], strict=True)
        return cls(exact, tuple(_Part.of(exact, device, first, end) for device, first, end in shares))

    @property
    def ids(self) -> Ids:
        return self.exact.ids

    def search(self, vectors: Floats, k: int, *, allowed: Mask | Places | None = None) -> tuple[Floats, Ids]:
        queries = self.exact.checked(vectors)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        found = np.full((len(queries), k), -1, np.int64)
        reach = min(k, len(self.ids) if allowed is None else count_of(allowed))
        mask = None if allowed is None else mask_of(allowed, len(self.ids))
        for at in range(0, len(queries) if reach else 0, _QUERIES):
            part = slice(at, at + _QUERIES)
            scores[part, :reach], found[part, :reach] = self._best(queries[part], reach, mask)
        return scores, found

    def reconstruct(self, ids: Ids) -> Floats:
        return self.exact.reconstruct(ids)

    def tuned(self, **search: Any) -> GpuIndex:
        self.exact.tuned(**search)
        return self

    def _best(self, queries: Floats, k: int, mask: Mask | None) -> tuple[Floats, Ids]:
        asked = [part.best(queries, k, mask) for part in self.parts]  # the devices work side by side
        scores, places = (np.hstack([part.cpu().numpy() for part in arrays]) for arrays in zip(*asked, strict=True))
        scores, places = best_of(np.where(np.isfinite(scores), scores, np.float32(-np.inf)), places, k)
        return scores, np.where(scores == -np.inf, -1, self.ids[places])


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of an index that are on one device, from the first on."""

    first: int
    vectors: Tensor
    broken: Tensor | None  # which of them hold a number that is not finite: no query has those as an answer
    metric: str

    @classmethod
    def of(cls, exact: FlatIndex, device: str, first: int, end: int) -> _Part:
        import torch

        held = torch.empty((end - first, exact.vectors.shape[1]), device=device)
        broken = torch.zeros(end - first, dtype=torch.bool, device=device)
        for at in range(first, end, _ROWS):
            block = METRICS[exact.metric].prepared(np.array(exact.vectors[at : min(end, at + _ROWS)]))
            here = slice(at - first, at - first + len(block))
            held[here] = torch.from_numpy(block)
            broken[here] = ~held[here].isfinite().all(1)
        return cls(first, held, broken if broken.any() else None, exact.metric)

    def best(self, queries: Floats, k: int, mask: Mask | None) -> tuple[Tensor, Tensor]:
        """Scores and places of the k best of these rows, of all of them where there are fewer: (queries, k)."""
        import torch

        given, left_out = torch.tensor(queries, device=self.vectors.device), self._left_out(mask)
        best, places = given.new_empty((len(given), 0)), given.new_empty((len(given), 0), dtype=torch.int64)
        for start, block in self._blocks(len(given)):
            scores = self._scores(given, block)
            if left_out is not None:
                scores.masked_fill_(left_out[start : start + len(block)], -torch.inf)
            new, at = _best_of_each(scores, k)
            best, chosen = torch.cat([best, new], 1).topk(min(k, best.shape[1] + new.shape[1]))
            places = torch.cat([places, at + (self.first + start)], 1).gather(1, chosen)
        return (best if self._sign > 0 else -best.square()), places

    def _blocks(self, queries: int) -> Iterator[tuple[int, Tensor]]:
        step = max(_GROUP, _SCORES // queries)
        for at in range(0, len(self.vectors), step):
            yield at, self.vectors[at : at + step]

    def _scores(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """The inner products, or minus the distances, which are not told from products: those cancel each other."""
        import torch

        if self._sign > 0:
            return queries @ vectors.T
        return -torch.cdist(queries, vectors, compute_mode="donot_use_mm_for_euclid_dist")

    def _left_out(self, mask: Mask | None) -> Tensor | None:
        import torch

        if mask is None:
            return self.broken
        mine = mask[self.first : self.first + len(self.vectors)]
        left_out = ~torch.tensor(mine, device=self.vectors.device)
        return left_out if self.broken is None else left_out | self.broken

    @property
    def _sign(self) -> int:
        return METRICS[self.metric].sign


def _best_of_each(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest of each row, and where they are."""
    import torch

    count = scores.shape[1]
    whole = count - count % _GROUP
    if k * _GROUP >= whole:
        return scores.topk(min(k, count))
    groups = scores[:, :whole].view(len(scores), -1, _GROUP).amax(2).topk(k).indices
    numbers = torch.arange(count, device=scores.device)
    inside = (groups[:, :, None] * _GROUP + numbers[:_GROUP]).flatten(1)
    places = torch.cat([inside, numbers[whole:].expand(len(scores), -1)], 1)
    best, at = scores.gather(1, places).topk(k)
    return best, places.gather(1, at)


def on_gpus(index: VectorIndex) -> tuple[VectorIndex, str]:
    """The same vectors, all compared on the GPUs of this machine, or the index itself; and what searches, in words."""
    try:
        import torch
    except ImportError:
        return index, "the CPU: GPUs are used with binocle[torch]"
    devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if not devices:
        return index, "the CPU: torch sees no GPU"
    exact: Any = getattr(index, "exact", index)
    needed = exact.vectors.nbytes / len(devices) + _SPARE
    least = min(torch.cuda.mem_get_info(name)[0] for name in devices)
    if needed > least:
        return index, f"the CPU: a GPU has {format_bytes(least)} of memory free where {format_bytes(needed)} are needed"
    return GpuIndex.of(exact, devices), f"{len(devices)} GPU{'s' * (len(devices) > 1)}"
