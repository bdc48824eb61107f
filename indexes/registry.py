"""The table of index kinds, and `IndexSpec`, the choice of one kind with its parameters.

Exact search is right for up to a hundred thousand vectors; `tuning.automatic` replaces it for more. Lists and graphs
answer faster, and codes take less memory. `FaissIndex` compares the candidates of a code with the stored vectors, so
every kind gives true scores.

LanceDB's own vector index is left out. It lies within the store's table and changes with the table. So it can neither
be built aside nor be checked against a checksum.
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

KINDS: dict[str, VectorIndexKind] = {
    # Tried by `optimize`:
    "flat": FlatKind(),
    "ivf_pq_fast": FaissKind(Lists(), codes.PQ_FAST),
    "ivf_rabitq_fast": FaissKind(Lists(), codes.RABITQ_FAST),
    "ivf_int8": FaissKind(Lists(), codes.INT8),
    "ivf_fp16": FaissKind(Lists(), codes.FP16),
    "hnsw_int8": FaissKind(Graph(), codes.INT8),
    "hnsw": FaissKind(Graph(), codes.WHOLE),
    # On request alone:
    "fp16": FaissKind(Scan(), codes.FP16),
    "bf16": FaissKind(Scan(), codes.BF16),
    "int8": FaissKind(Scan(), codes.INT8),
    "pq": FaissKind(Scan(), codes.PQ),
    "opq": FaissKind(Scan(), codes.OPQ),
    "pq_fast": FaissKind(Scan(), codes.PQ_FAST),
    "rabitq": FaissKind(Scan(), codes.RABITQ),
    "rabitq_fast": FaissKind(Scan(), codes.RABITQ_FAST),
    "ivf": FaissKind(Lists(), codes.WHOLE),
    "ivf_bf16": FaissKind(Lists(), codes.BF16),
    "ivf_pq": FaissKind(Lists(), codes.PQ),
    "ivf_opq": FaissKind(Lists(), codes.OPQ),
    "ivf_opq_fast": FaissKind(Lists(), codes.OPQ_FAST),
    "ivf_rabitq": FaissKind(Lists(), codes.RABITQ),
    "hnsw_fp16": FaissKind(Graph(), codes.FP16),
    "factory": FactoryKind(Scan(), codes.UNKNOWN),  # any string for FAISS's index factory
}


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """The kind of an index and its parameters; the vectors decide every parameter that is left out."""

    kind: str = "flat"
    build: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    metric: str = "ip"

    def check(self, dim: int) -> IndexSpec:
        """Check the spec for vectors of this dimension and return it.

        :raises InputError: when the kind is unknown, or cannot be built with these parameters.
        """
        if self.kind not in KINDS:
            raise InputError(f"there is no kind of index {self.kind!r}: expected one of {', '.join(KINDS)}")
        metric_of(self.metric)
        KINDS[self.kind].check(dim, self.build, self.search)
        return self

    def supported(self, dim: int) -> IndexSpec:
        """Return the spec if vectors of this dimension allow it, else its kind without parameters, else exact search.

        After a switch to another encoder, the parameters that fitted the old dimension may not fit the new one.
        """
        for spec in (self, IndexSpec(self.kind, metric=self.metric)):
            try:
                return spec.check(dim)
            except InputError:
                continue
        return IndexSpec(metric=self.metric)
