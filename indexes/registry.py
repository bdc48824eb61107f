"""The table of kinds of vector index, and the choice of one.

Exact search is right up to some hundred thousand vectors. Beyond, lists and graphs answer faster, and codes take less
memory; `FaissKind` compares what a code found with the stored vectors, so that every kind gives true scores.

Not here: LanceDB's own vector index, which lies within the store's table and changes with it, and so can be neither
built aside nor held against a checksum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError
from . import faiss_codes as codes
from .faiss_kind import FactoryKind, FaissKind
from .faiss_structures import Graph, Lists, Scan
from .flat import FlatKind
from .metric import metric_of

if TYPE_CHECKING:
    from .base import VectorIndexKind

_ANY = codes.Code(
    lambda _dim, _values: "", lambda _dim, _values: 0.0, lambda dim, _: 0.5 * dim, 8, lambda _: 256, selects=False
)

KINDS: dict[str, VectorIndexKind] = {
    "flat": FlatKind(),
    "fp16": FaissKind(Scan(), codes.FP16),
    "bf16": FaissKind(Scan(), codes.BF16),
    "int8": FaissKind(Scan(), codes.INT8),
    "pq": FaissKind(Scan(), codes.PQ),
    "opq": FaissKind(Scan(), codes.OPQ),
    "pq_fast": FaissKind(Scan(), codes.PQ_FAST),
    "rabitq": FaissKind(Scan(), codes.RABITQ),
    "rabitq_fast": FaissKind(Scan(), codes.RABITQ_FAST),
    "ivf": FaissKind(Lists(), codes.WHOLE),
    "ivf_fp16": FaissKind(Lists(), codes.FP16),
    "ivf_bf16": FaissKind(Lists(), codes.BF16),
    "ivf_int8": FaissKind(Lists(), codes.INT8),
    "ivf_pq": FaissKind(Lists(), codes.PQ),
    "ivf_opq": FaissKind(Lists(), codes.OPQ),
    "ivf_pq_fast": FaissKind(Lists(), codes.PQ_FAST),
    "ivf_opq_fast": FaissKind(Lists(), codes.OPQ_FAST),
    "ivf_rabitq": FaissKind(Lists(), codes.RABITQ),
    "ivf_rabitq_fast": FaissKind(Lists(), codes.RABITQ_FAST),
    "hnsw": FaissKind(Graph(), codes.WHOLE),
    "hnsw_fp16": FaissKind(Graph(), codes.FP16),
    "hnsw_int8": FaissKind(Graph(), codes.INT8),
    "factory": FactoryKind(Scan(), _ANY),
}


@dataclass(frozen=True, slots=True)
class Spec:
    """Which kind of index, how it is built, and how it is searched; what is left out follows from the vectors."""

    kind: str = "flat"
    build: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    metric: str = "ip"

    def checked(self, dim: int) -> Spec:
        """Itself.

        :raises InputError: when there is no such kind, or it cannot be built so for vectors of this dimension.
        """
        if self.kind not in KINDS:
            raise InputError(f"there is no kind of index {self.kind!r}: expected one of {', '.join(KINDS)}")
        metric_of(self.metric)
        KINDS[self.kind].check(dim, self.build, self.search)
        return self

    def fitting(self, dim: int) -> Spec:
        """Itself; for vectors it was not made for its kind without parameters, or exact search."""
        for spec in (self, Spec(self.kind, metric=self.metric)):
            try:
                return spec.checked(dim)
            except InputError:
                continue
        return Spec(metric=self.metric)
