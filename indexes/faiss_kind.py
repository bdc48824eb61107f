"""How a FAISS index is built and read: a structure to find the way, a code for each vector, and the vectors beside it.

A FAISS file is untrusted input. `published` has held it against its checksum before this module is asked to load it;
here its size and its type are looked at before FAISS reads on, under limits of what it may allocate.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import DamagedError, InputError
from .base import Parameter, TextParameter, check_parameters, with_defaults
from .faiss_index import FaissIndex, reason, refusal
from .faiss_structures import Graph, Lists, Scan
from .flat import FlatKind
from .metric import metric_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ..core.arrays import Floats, Ids
    from .base import Parameters
    from .faiss_codes import Code
    from .faiss_structures import Structure
    from .metric import Metric

FILE = "index.faiss"
_SEED = 1234
_SAMPLE = 32_768  # vectors that codes are learnt from, and at least so many a list:
_SAMPLE_OF_LIST = 48
_BLOCK = 32_768  # vectors added at a time
_GPU = Parameter("gpu", "whether it is built on the GPUs, 0 or 1; it is searched on the CPU", 0, 1, 0)
_TYPES = frozenset(  # the first four bytes of the files that are read
    b"IxFI IxF2 IxSQ IxPq IPfs Ixrq Ixrr Irfn IxPT IxRq IwFl IwSq IwPQ IwPf Iwrq Iwrr Iwrn IHNf IHNs IHNp INSf".split()
)
_MOST = 2**20  # a number in a factory string: more would take more memory than there is, or for ever
_NEIGHBOURS = {"HNSW": (2, 256), "NSG": (16, 256)}
_limits = threading.Lock()  # FAISS's limits are of the whole process


@dataclass(frozen=True, slots=True)
class FaissKind:
    structure: Structure
    code: Code

    files = FlatKind.files | {FILE}

    @property
    def build_parameters(self) -> tuple[Parameter, ...]:
        return (*self.structure.build_parameters, *self.code.parameters, _GPU)

    @property
    def search_parameters(self) -> tuple[Parameter, ...]:
        return (*self.structure.search_parameters, *self._again)

    def check(self, dim: int, build: Parameters, search: Parameters) -> None:
        check_parameters("building this kind of index", self.build_parameters, build)
        check_parameters("searching this kind of index", self.search_parameters, search)
        self.recipe(1_000_000, dim, self.values(build))

    def bytes_per_vector(self, dim: int, build: Parameters, count: int = 1_000_000) -> float:
        values = self.values(build)
        return 8 + self.code.size(dim, values) + self.structure_of(values).size(count, dim, values)

    def values(self, build: Parameters) -> dict[str, Any]:
        """All parameters of a build: None where it follows from the number of vectors."""
        return with_defaults(self.build_parameters, build)

    def recipe(self, count: int, dim: int, build: dict[str, Any]) -> str:
        """FAISS's factory string."""
        return self.code.before(dim, build) + self.structure.factory(count, build) + self.code.factory(dim, build)

    def structure_of(self, build: dict[str, Any]) -> Structure:  # noqa: ARG002
        return self.structure

    def selects(self, build: dict[str, Any]) -> bool:
        """Whether a filter is given to FAISS."""
        return self.code.selects and type(self.structure_of(build)) is Scan

    def write(
        self, folder: Path, batches: Iterable[tuple[Ids, Floats]], *, dim: int, metric: str, build: Parameters
    ) -> None:
        import faiss

        FlatKind().write(folder, batches, dim=dim, metric=metric)
        vectors = FlatKind().load(folder, dim=dim, metric=metric).vectors
        values = self.values(build)
        if len(vectors) < max(1, self._least(len(vectors), dim, values)):
            (folder / FILE).write_bytes(b"")  # nothing to learn from: all are compared
            return
        index = self._built(vectors, metric_of(metric), values)
        faiss.write_index(index, str(folder / FILE))
        if not _is_known(folder / FILE):
            raise InputError(f"{type(index).__name__}, which that makes, is not a type of index that is served here")

    def load(self, folder: Path, *, dim: int, metric: str, build: Parameters, search: Parameters) -> FaissIndex:
        exact = FlatKind().load(folder, dim=dim, metric=metric)
        values = self.values(build)
        count = len(exact.ids)
        try:
            size = (folder / FILE).stat().st_size
        except OSError as error:
            raise DamagedError(f"{folder / FILE} cannot be read: {error.strerror}") from error
        index = None
        if size or count >= max(1, self._least(count, dim, values)):
            most = 4 * count * self.bytes_per_vector(dim, build, max(1, count)) + 64 * dim * dim + 2**24
            if not count * self.code.size(dim, values) <= size <= most:
                raise DamagedError(f"{folder / FILE} has {size} bytes, which {count} vectors of this kind cannot take")
            index = _read(folder / FILE, size)
            if (index.d, index.ntotal, index.metric_type) != (dim, count, metric_of(metric).faiss):
                raise DamagedError(f"{folder / FILE} holds other vectors than those beside it")
        return FaissIndex(exact, index, self, values, with_defaults(self.search_parameters, search))

    @property
    def _again(self) -> tuple[Parameter, ...]:
        if not self.code.depth:
            return ()
        doc = "how many candidates are compared with the stored vectors for each one asked for"
        return (Parameter("k_factor", doc, 1, 256, self.code.depth),)

    def _least(self, count: int, dim: int, build: dict[str, Any]) -> int:
        """So many vectors are needed to learn from; given fewer than dimensions to rotate, FAISS ends the process."""
        rotations = re.findall(r"OPQ\d+(?:_(\d+))?", self.recipe(count, dim, build))  # dimensions, where told
        rotated = [max(dim, int(out or 0)) for out in rotations]
        return max(self.code.least(build), self.structure_of(build).least(count, build), *rotated)

    def _built(self, vectors: Floats, metric: Metric, build: dict[str, Any]) -> Any:
        """An index of them, which can be searched: that is tried once."""
        count, dim = vectors.shape
        index = _made(recipe := self.recipe(count, dim, build), dim, metric)
        if build.get("gpu"):
            return _built_on_gpu(index, vectors, metric)
        if hasattr(index, "hnsw"):
            index.hnsw.efConstruction = build["ef_construction"]
        _train(index, vectors, metric)
        with refusal(f"build {recipe!r}"):
            for at in range(0, count, _BLOCK):
                index.add(metric.prepared(vectors[at : at + _BLOCK]))
            index.search(metric.prepared(vectors[:1]), 1)
        return index


@dataclass(frozen=True, slots=True)
class FactoryKind(FaissKind):
    """Whatever FAISS makes of a string: https://github.com/facebookresearch/faiss/wiki/The-index-factory."""

    @property
    def build_parameters(self) -> tuple[Parameter, ...]:
        factory = TextParameter("factory", "a string for FAISS's index factory such as IVF1024,PQ48x4fs", 1, 200)
        return (factory, *Graph.build_parameters[1:], _GPU)

    @property
    def search_parameters(self) -> tuple[Parameter, ...]:
        return (*Lists.search_parameters, *Graph.search_parameters, *self._again)

    def check(self, dim: int, build: Parameters, search: Parameters) -> None:
        recipe = build.get("factory")
        if not isinstance(recipe, str) or not recipe or re.search("IDMap|Refine|RFlat", recipe):
            raise InputError(
                f"{recipe!r} is not the factory string of an index of vectors: expected one such as IVF1024,PQ48x4fs, "
                "without IDMap and Refine, which are seen to here"
            )
        check_parameters("building this kind of index", self.build_parameters, build)
        check_parameters("searching this kind of index", self.search_parameters, search)
        _check_numbers(recipe)
        _made(recipe, dim, metric_of("ip"))

    def bytes_per_vector(self, dim: int, build: Parameters, count: int = 1_000_000) -> float:
        import faiss

        values, whole = self.values(build), _made(build["factory"], dim, metric_of("ip"))
        index = faiss.downcast_index(whole.index) if isinstance(whole, faiss.IndexPreTransform) else whole
        index = faiss.downcast_index(index.storage) if hasattr(index, "storage") else index
        code = getattr(index, "code_size", 4 * dim)
        return 8.0 + code + self.structure_of(values).size(count, dim, values)

    def values(self, build: Parameters) -> dict[str, Any]:
        values = FaissKind.values(self, build)
        for name, pattern in (("nlist", r"IVF(\d+)"), ("m", r"HNSW(\d+)")):
            if match := re.search(pattern, str(values["factory"])):
                values[name] = int(match[1])
        return values

    def recipe(self, count: int, dim: int, build: dict[str, Any]) -> str:  # noqa: ARG002
        return str(build["factory"])

    def structure_of(self, build: dict[str, Any]) -> Structure:
        if "nlist" in build:
            return Lists()
        return Graph() if "m" in build else Scan()


def _made(recipe: str, dim: int, metric: Metric) -> Any:
    import faiss

    with refusal(f"make {recipe!r} for dimension {dim}"):
        index = faiss.index_factory(dim, recipe, metric.faiss)
    if index.metric_type != metric.faiss:  # a graph of product codes compares by distance, whatever is asked for
        raise InputError(f"FAISS cannot make {recipe!r} for the inner product: choose another kind of index")
    return index


def _check_numbers(recipe: str) -> None:
    """Whether FAISS can take each: of some that it cannot it says nothing, but ends the process or goes on for ever."""
    if not all(0 < int(number) <= _MOST for number in re.findall("[0-9]+", recipe)):
        raise InputError(f"{recipe!r} holds a number that no index can have: expected each from 1 to {_MOST:,}")
    for graph, number in re.findall("(HNSW|NSG)([0-9]+)", recipe):
        least, most = _NEIGHBOURS[graph]
        if not least <= int(number) <= most:
            raise InputError(f"a node of {graph} in {recipe!r} has from {least} to {most} neighbours, not {number}")


def _train(index: Any, vectors: Floats, metric: Metric) -> None:
    """On a sample, the same each time, and without a word from FAISS about its size."""
    import faiss

    lists = faiss.try_extract_index_ivf(index)
    wanted = max(_SAMPLE, _SAMPLE_OF_LIST * (lists.nlist if lists else 0))
    count = len(vectors)
    chosen = np.random.default_rng(_SEED).choice(count, min(count, wanted), replace=False)
    kept = list(_quiet(index))
    try:
        with refusal(f"learn this index from {len(chosen)} vectors"):
            index.train(metric.prepared(vectors[np.sort(chosen)]))
    finally:
        for rotation, _ in kept:
            rotation.pq = None


def _quiet(index: Any) -> Iterator[tuple[Any, Any]]:
    """Have FAISS not warn of few vectors, and rotate for as many bits as are used in fewer rounds; gives rotations."""
    import faiss

    inner = index
    if isinstance(inner, faiss.IndexPreTransform):
        chain = [faiss.downcast_VectorTransform(inner.chain.at(place)) for place in range(inner.chain.size())]
        inner = faiss.downcast_index(inner.index)
        for rotation in chain:
            if isinstance(rotation, faiss.OPQMatrix):
                bits = inner.pq.nbits if hasattr(inner, "pq") else 8
                rotation.pq = coder = faiss.ProductQuantizer(rotation.d_out, rotation.M, bits)
                coder.cp.min_points_per_centroid = 1
                rotation.niter, rotation.niter_pq, rotation.niter_pq_0 = 8, 2, 8
                yield rotation, coder  # which FAISS does not keep alive
    for owner in (inner, getattr(inner, "pq", inner)):
        if hasattr(owner, "cp"):
            owner.cp.min_points_per_centroid = 1


def _is_known(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(4) in _TYPES


def _read(file: Path, size: int) -> Any:
    """What FAISS wrote, memory-mapped where it can be."""
    import faiss

    if not _is_known(file):
        raise DamagedError(f"{file} does not hold a FAISS index of a known type")
    with _limits:
        before = faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()
        try:
            faiss.set_deserialization_vector_byte_limit(size + 2**24)
            faiss.set_deserialization_loop_limit(2**24)
            index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)
        except RuntimeError as error:
            raise DamagedError(f"{file} cannot be read by FAISS: {reason(error)}") from None
        finally:
            faiss.set_deserialization_vector_byte_limit(before[0])
            faiss.set_deserialization_loop_limit(before[1])
    return index


def _built_on_gpu(index: Any, vectors: Floats, metric: Metric) -> Any:
    """Lists and scans shared out among the GPUs; a graph by CAGRA (Ootomo et al. 2023), searched as HNSW.

    Not measured: no machine with a GPU was at hand.
    """
    import faiss

    if not faiss.get_num_gpus():
        raise InputError(
            "gpu=1 needs a GPU and faiss-gpu-cuvs in the place of faiss-cpu: leave gpu out to build without, or "
            "pip install 'binocle[gpu]' && pip uninstall -y faiss-cpu faiss-gpu-cuvs && "
            "pip install --no-deps faiss-gpu-cuvs"
        )
    _train(index, vectors, metric)
    with refusal("build this kind of index on a GPU"):
        if hasattr(index, "hnsw"):
            return _with_graph(index, metric.prepared(vectors), metric)
        options = faiss.GpuMultipleClonerOptions()
        options.shard = True
        shared = faiss.index_cpu_to_all_gpus(index, co=options)
        for at in range(0, len(vectors), _BLOCK):
            shared.add(metric.prepared(vectors[at : at + _BLOCK]))
        return faiss.index_gpu_to_cpu(shared)


def _with_graph(index: Any, vectors: Floats, metric: Metric) -> Any:
    """CAGRA's graph over the codes that the index is to hold: what CAGRA itself gives back holds whole vectors."""
    import faiss

    m = index.hnsw.nb_neighbors(1)
    config = faiss.GpuIndexCagraConfig()
    config.graph_degree, config.intermediate_graph_degree = 2 * m, 4 * m
    made = faiss.GpuIndexCagra(faiss.StandardGpuResources(), index.d, metric.faiss, config)
    made.train(vectors)
    copied = faiss.IndexHNSWCagra()
    made.copyTo(copied)
    index.storage.add(vectors)
    index.hnsw, index.ntotal = copied.hnsw, len(vectors)
    return index
