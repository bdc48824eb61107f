"""Build and read a FAISS index: a structure to find the way, a code for each vector, and the vectors beside it.

A FAISS file is untrusted input. `manifest` compares it with its checksum before this module loads it. Here its size and
its type are checked before FAISS reads on, under limits on what FAISS may allocate.
"""

from __future__ import annotations

import mmap
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import DamagedError, InputError
from .base import Parameter, TextParameter, check_parameters, with_defaults
from .faiss_index import FaissIndex, faiss_errors, faiss_reason
from .faiss_structures import Graph, Lists, Scan
from .faiss_validation import check_index
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

_WRITTEN = 1 << 20  # bytes that FAISS hands over together
FAISS_FILE = "index.faiss"
_SEED = 1234
_SAMPLE = 32_768  # vectors to learn codes from
_SAMPLE_PER_LIST = 48  # at least, for each list
_BLOCK = 32_768  # vectors added at a time
_GPU = Parameter("gpu", "whether it is built on the GPUs, 0 or 1; it is searched on the CPU", 0, 1, 0)
_TYPES = frozenset(  # the first four bytes of the FAISS files that may be read
    b"IxFI IxF2 IxSQ IxPq IPfs Ixrq Ixrr Irfn IxPT IxRq IwFl IwSq IwPQ IwPf Iwrq Iwrr Iwrn IHNf IHNs IHNp".split()
)
_MAX_NUMBER = 2**20  # in a factory string: a greater one would exhaust the memory or never end
_NEIGHBOURS = 2, 256  # of a node: minimum and maximum
_VIEW_EXCESS = 8
_limits = threading.Lock()  # FAISS's limits hold for the whole process


@dataclass(frozen=True, slots=True)
class FaissKind:
    """A kind of index that FAISS serves: one structure over one code."""

    structure: Structure
    code: Code

    files = FlatKind.files | {FAISS_FILE}

    @property
    def build_parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the structure, then of the code, then `gpu`."""
        return (*self.structure.build_parameters, *self.code.parameters, _GPU)

    @property
    def search_parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the structure, then `k_factor` if the code loses precision."""
        return (*self.structure.search_parameters, *self._rerank_parameters)

    def check(self, dim: int, build: Parameters, search: Parameters) -> None:
        """Check names, ranges, and that the code can cut vectors of this dimension, without loading FAISS."""
        check_parameters("building this kind of index", self.build_parameters, build)
        check_parameters("searching this kind of index", self.search_parameters, search)
        self.recipe(1_000_000, dim, self.values(build))

    def bytes_per_vector(self, dim: int, build: Parameters, count: int = 1_000_000) -> float:
        """Add up 8 bytes for the id, the code, and the structure's share, by formula."""
        values = self.values(build)
        return 8 + self.code.size(dim, values) + self.structure_of(values).size(count, dim, values)

    def values(self, build: Parameters) -> dict[str, Any]:
        """Return every build parameter; None for one that follows from the number of vectors."""
        return with_defaults(self.build_parameters, build)

    def recipe(self, count: int, dim: int, build: dict[str, Any]) -> str:
        """Return FAISS's factory string."""
        return self.code.rotation(dim, build) + self.structure.factory(count, build) + self.code.factory(dim, build)

    def structure_of(self, build: dict[str, Any]) -> Structure:  # noqa: ARG002
        """Return the structure that these build parameters give."""
        return self.structure

    def write(
        self, folder: Path, batches: Iterable[tuple[Ids, Floats]], *, dim: int, metric: str, build: Parameters
    ) -> None:
        """Write the files of `FlatKind`, then train and fill FAISS's index from the mapped vectors.

        FAISS's index is in memory until it is written. With too few vectors to learn from, its file is empty.

        :raises InputError: when FAISS cannot build it, or builds a type that `load` does not read.
        """
        import faiss

        FlatKind().write(folder, batches, dim=dim, metric=metric)
        vectors = FlatKind().load(folder, dim=dim, metric=metric).vectors
        values = self.values(build)
        if len(vectors) < max(1, self._training_vectors(len(vectors), dim, values)):
            (folder / FAISS_FILE).write_bytes(b"")  # too few to learn from: all are compared
            return
        index = self._build(vectors, metric_of(metric), values)
        with (folder / FAISS_FILE).open("wb") as stream:  # FAISS passes over an error when it closes a file of its own
            faiss.write_index(index, faiss.PyCallbackIOWriter(stream.write, _WRITTEN))
        if not _is_known(folder / FAISS_FILE):
            raise InputError(
                f"FAISS made a {type(index).__name__} of that, which is not a type of index that is served here"
            )

    def load(self, folder: Path, *, dim: int, metric: str, build: Parameters, search: Parameters) -> FaissIndex:
        """Open the files of `FlatKind`, and FAISS's file once its size and type are plausible."""
        exact = FlatKind().load(folder, dim=dim, metric=metric)
        values = self.values(build)
        count = len(exact.ids)
        try:
            size = (folder / FAISS_FILE).stat().st_size
        except OSError as error:
            raise DamagedError(f"{folder / FAISS_FILE} cannot be read: {error.strerror}") from error
        index = None
        if size or count >= max(1, self._training_vectors(count, dim, values)):
            limit = 4 * count * self.bytes_per_vector(dim, build, max(1, count)) + 64 * dim * dim + 2**24
            if not count * self.code.size(dim, values) <= size <= limit:
                raise DamagedError(
                    f"{folder / FAISS_FILE} has {size} bytes, which {count} vectors of this kind cannot take"
                )
            index = _read(folder / FAISS_FILE, size)
            try:
                check_index(index, _faiss_index(self.recipe(count, dim, values), dim, metric_of(metric)), count)
            except ValueError as error:
                raise DamagedError(f"{folder / FAISS_FILE} is not an index of the vectors beside it: {error}") from None
        structure, search_values = self.structure_of(values), with_defaults(self.search_parameters, search)
        return FaissIndex(exact, index, structure, self.code, self.search_parameters, values, search_values)

    @property
    def _rerank_parameters(self) -> tuple[Parameter, ...]:
        if not self.code.candidates:
            return ()
        doc = "how many candidates are compared with the stored vectors for each one asked for"
        return (Parameter("k_factor", doc, 1, 256, self.code.candidates),)

    def _training_vectors(self, count: int, dim: int, build: dict[str, Any]) -> int:
        """Return the minimum number of vectors to learn from.

        With fewer vectors than dimensions to rotate, FAISS would end the process.
        """
        rotations = re.findall(r"OPQ\d+(?:_(\d+))?", self.recipe(count, dim, build))  # output dimension, if any
        dimensions = [max(dim, int(out or 0)) for out in rotations]
        structure = self.structure_of(build)
        return max(self.code.training_vectors(build), structure.training_vectors(count, build), *dimensions)

    def _build(self, vectors: Floats, metric: Metric, build: dict[str, Any]) -> Any:
        """Build FAISS's index, and search it once to see that it can be searched."""
        count, dim = vectors.shape
        index = _faiss_index(recipe := self.recipe(count, dim, build), dim, metric)
        if build.get("gpu"):
            return _build_on_gpu(index, vectors, metric)
        if hasattr(index, "hnsw"):
            index.hnsw.efConstruction = build["ef_construction"]
        _train(index, vectors, metric)
        with faiss_errors(f"build {recipe!r}"):
            for start in range(0, count, _BLOCK):
                index.add(metric.prepare(vectors[start : start + _BLOCK]))
            index.search(metric.prepare(vectors[:1]), 1)
        return index


@dataclass(frozen=True, slots=True)
class FactoryKind(FaissKind):
    """Any index that FAISS's factory makes of a string.

    https://github.com/facebookresearch/faiss/wiki/The-index-factory
    """

    @property
    def build_parameters(self) -> tuple[Parameter, ...]:
        """The factory string, then `ef_construction` and `gpu`, which the string cannot express."""
        factory = TextParameter("factory", "a string for FAISS's index factory such as IVF1024,PQ48x4fs", 1, 200)
        return (factory, *Graph.build_parameters[1:], _GPU)

    @property
    def search_parameters(self) -> tuple[Parameter, ...]:
        """The parameters of lists and of graphs, then `k_factor`; a search ignores any that its structure lacks."""
        return (*Lists.search_parameters, *Graph.search_parameters, *self._rerank_parameters)

    def check(self, dim: int, build: Parameters, search: Parameters) -> None:
        """Refuse IDMap, Refine, NSG and numbers that crash FAISS, then let FAISS create the empty index."""
        recipe = build.get("factory")
        if not isinstance(recipe, str) or not recipe or re.search("IDMap|Refine|RFlat|NSG", recipe):
            raise InputError(
                f"{recipe!r} is not the factory string of an index of vectors: expected one such as IVF1024,PQ48x4fs, "
                "without IDMap and Refine, which Binocle adds, and without NSG: damaged graphs of it never end"
            )
        check_parameters("building this kind of index", self.build_parameters, build)
        check_parameters("searching this kind of index", self.search_parameters, search)
        _check_numbers(recipe)
        _faiss_index(recipe, dim, metric_of("ip"))

    def bytes_per_vector(self, dim: int, build: Parameters, count: int = 1_000_000) -> float:
        """Read the code's size from FAISS's empty index; add 8 bytes for the id and the structure's share."""
        import faiss

        values, whole = self.values(build), _faiss_index(build["factory"], dim, metric_of("ip"))
        index = faiss.downcast_index(whole.index) if isinstance(whole, faiss.IndexPreTransform) else whole
        index = faiss.downcast_index(index.storage) if hasattr(index, "storage") else index
        code = getattr(index, "code_size", 4 * dim)
        return 8.0 + code + self.structure_of(values).size(count, dim, values)

    def values(self, build: Parameters) -> dict[str, Any]:
        """Add `nlist` or `m` from the factory string, which `structure_of` goes by."""
        values = FaissKind.values(self, build)
        for name, pattern in (("nlist", r"IVF(\d+)"), ("m", r"HNSW(\d+)")):
            if match := re.search(pattern, str(values["factory"])):
                values[name] = int(match[1])
        return values

    def recipe(self, count: int, dim: int, build: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the user's string unchanged, for any number of vectors."""
        return str(build["factory"])

    def structure_of(self, build: dict[str, Any]) -> Structure:
        """Return lists for IVF, also with HNSW in the string, a graph for HNSW alone, else a scan."""
        if "nlist" in build:
            return Lists()
        return Graph() if "m" in build else Scan()


def _faiss_index(recipe: str, dim: int, metric: Metric) -> Any:
    """Create FAISS's empty index from a factory string."""
    import faiss

    with faiss_errors(f"make {recipe!r} for dimension {dim}"):
        index = faiss.index_factory(dim, recipe, metric.faiss)
    if index.metric_type != metric.faiss:  # a graph of product codes always compares by distance
        raise InputError(f"FAISS cannot make {recipe!r} for the inner product: choose another kind of index")
    return index


def _check_numbers(recipe: str) -> None:
    """Check the numbers of a factory string: for a few of them FAISS would end the process or never return."""
    if not all(0 < int(number) <= _MAX_NUMBER for number in re.findall("[0-9]+", recipe)):
        raise InputError(f"{recipe!r} holds a number that no index can have: expected each from 1 to {_MAX_NUMBER:,}")
    minimum, maximum = _NEIGHBOURS
    for number in re.findall("HNSW([0-9]+)", recipe):
        if not minimum <= int(number) <= maximum:
            raise InputError(f"a node of HNSW in {recipe!r} has from {minimum} to {maximum} neighbours, not {number}")


def _train(index: Any, vectors: Floats, metric: Metric) -> None:
    """Train the index on a fixed random sample, without FAISS's warnings about its size."""
    import faiss

    lists = faiss.try_extract_index_ivf(index)
    size = max(_SAMPLE, _SAMPLE_PER_LIST * (lists.nlist if lists else 0))
    count = len(vectors)
    sample = np.random.default_rng(_SEED).choice(count, min(count, size), replace=False)
    rotations = list(_configure_training(index))
    try:
        with faiss_errors(f"learn this index from {len(sample)} vectors"):
            index.train(metric.prepare(vectors[np.sort(sample)]))
    finally:
        for rotation, _ in rotations:
            rotation.pq = None


def _configure_training(index: Any) -> Iterator[tuple[Any, Any]]:
    """Silence FAISS's warnings of few vectors; learn rotations for the bits in use, and in fewer rounds.

    Yields each rotation with its quantizer, which FAISS does not keep alive: hold it until the training has ended.
    """
    import faiss

    inner = index
    if isinstance(inner, faiss.IndexPreTransform):
        chain = [faiss.downcast_VectorTransform(inner.chain.at(number)) for number in range(inner.chain.size())]
        inner = faiss.downcast_index(inner.index)
        for rotation in chain:
            if isinstance(rotation, faiss.OPQMatrix):
                bits = inner.pq.nbits if hasattr(inner, "pq") else 8
                rotation.pq = coder = faiss.ProductQuantizer(rotation.d_out, rotation.M, bits)
                coder.cp.min_points_per_centroid = 1
                rotation.niter, rotation.niter_pq, rotation.niter_pq_0 = 8, 2, 8
                yield rotation, coder
    for owner in (inner, getattr(inner, "pq", inner)):
        if hasattr(owner, "cp"):
            owner.cp.min_points_per_centroid = 1


def _is_known(file: Path) -> bool:
    """Whether the file begins with a type of `_TYPES`."""
    with file.open("rb") as stream:
        return stream.read(4) in _TYPES


def _read(file: Path, size: int) -> Any:
    """Read FAISS's file, memory-mapped if its type allows that."""
    import faiss

    if not _is_known(file):
        raise DamagedError(f"{file} does not hold a FAISS index of a known type")
    with _limits:
        before = faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()
        try:
            faiss.set_deserialization_vector_byte_limit(size + 2**24)
            faiss.set_deserialization_loop_limit(2**24)
            # FAISS's own reader of mapped files copies from beyond the end of a file that is cut within a number.
            data = _mapped(file, size)
            index = faiss.read_index(
                faiss.ZeroCopyIOReader(faiss.swig_ptr(data), size), faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
            )
        except RuntimeError as error:
            raise DamagedError(f"{file} cannot be read by FAISS: {faiss_reason(error)}") from None
        finally:
            faiss.set_deserialization_vector_byte_limit(before[0])
            faiss.set_deserialization_loop_limit(before[1])
    index.referenced_objects = [data]  # the codes of the index lie in it
    return index


def _mapped(file: Path, size: int) -> Any:
    """Map a file, with at least 8 readable bytes after its end: a view of FAISS may have a part of a number there."""
    if -size % mmap.PAGESIZE >= _VIEW_EXCESS:
        return np.memmap(file, np.uint8, "r").view(np.ndarray)
    return np.append(np.fromfile(file, np.uint8), np.zeros(_VIEW_EXCESS, np.uint8))


def _build_on_gpu(index: Any, vectors: Floats, metric: Metric) -> Any:
    """Build lists and scans across all GPUs; a graph by CAGRA (Ootomo et al. 2023), to be searched as HNSW.

    Not measured: no machine with a GPU was available.
    """
    import faiss

    if not faiss.get_num_gpus():
        raise InputError(
            "gpu=1 needs a GPU and faiss-gpu-cuvs instead of faiss-cpu: leave gpu out to build without, or "
            "pip install 'binocle[gpu]' && pip uninstall -y faiss-cpu faiss-gpu-cuvs && "
            "pip install --no-deps faiss-gpu-cuvs"
        )
    _train(index, vectors, metric)
    with faiss_errors("build this kind of index on a GPU"):
        if hasattr(index, "hnsw"):
            return _add_graph(index, metric.prepare(vectors), metric)
        options = faiss.GpuMultipleClonerOptions()
        options.shard = True
        shared = faiss.index_cpu_to_all_gpus(index, co=options)
        for start in range(0, len(vectors), _BLOCK):
            shared.add(metric.prepare(vectors[start : start + _BLOCK]))
        return faiss.index_gpu_to_cpu(shared)


def _add_graph(index: Any, vectors: Floats, metric: Metric) -> Any:
    """Put CAGRA's graph over the codes of an HNSW index; CAGRA's own copy would hold whole vectors."""
    import faiss

    m = index.hnsw.nb_neighbors(1)
    config = faiss.GpuIndexCagraConfig()
    config.graph_degree, config.intermediate_graph_degree = 2 * m, 4 * m
    cagra = faiss.GpuIndexCagra(faiss.StandardGpuResources(), index.d, metric.faiss, config)
    cagra.train(vectors)
    hnsw = faiss.IndexHNSWCagra()
    cagra.copyTo(hnsw)
    index.storage.add(vectors)
    index.hnsw, index.ntotal = hnsw.hnsw, len(vectors)
    return index
