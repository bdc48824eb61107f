"""Compare a FAISS index from a file with the empty index that its parameters make, before a search trusts it.

FAISS uses sizes, positions and links from its file as addresses, and checks only some of them. So every number of the
index must equal the number in the empty index. The parts that vectors add (codes, positions in lists, links of a graph)
must fit the count of vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

# Whole numbers and switches of FAISS's types. Neither vectors nor training change them.
_NUMBERS = (
    *("d", "metric_type", "code_size", "type", "nlist", "by_residual", "centered", "parallel_mode", "max_codes"),
    *("M", "M2", "nbits", "ksub", "dsub", "bits", "nb_bits", "qb", "qtype", "rangestat", "search_type", "encode_signs"),
    *("bbs", "qbs", "qbs2", "implem", "skip", "n_per_block", "block_size", "use_precomputed_table", "polysemous_ht"),
    *("d_in", "d_out", "have_bias", "tot_bits", "norm_bits", "only_8bit", "search_bounded_queue"),
    *("use_beam_LUT", "max_beam_size", "total_codebook_size", "is_similarity", "is_panorama", "keep_max_size_level0"),
)
_QUANTIZERS = ("pq", "sq", "rabitq", "rq", "hnsw", "direct_map")


def check_index(index: Any, empty: Any, count: int) -> None:
    """Check an index of `count` vectors.

    :param empty: the index that FAISS's factory makes of the same parameters.
    :raises ValueError: naming the first contradiction.
    """
    _compare("the index", index, empty)
    if index.ntotal != count or not index.is_trained:
        raise ValueError(f"the index has {index.ntotal} of {count} vectors, or is not trained")
    _check_codes(index, count)
    if hasattr(empty, "hnsw"):
        _check_graph(index.hnsw, count)
    if getattr(empty, "invlists", None) is not None:
        _check_lists(index.invlists, count)
    for part, empty_part, part_count in _parts(index, empty, count):
        check_index(part, empty_part, part_count)


def _parts(index: Any, empty: Any, count: int) -> Iterator[tuple[Any, Any, int]]:
    """Yield the indexes within an index, with the empty one and the count of each."""
    import faiss

    for name in ("index", "storage", "quantizer"):
        expected = getattr(empty, name, None)
        if isinstance(expected, faiss.Index):
            part = getattr(index, name)
            if part is None:
                raise ValueError(f"the index lacks its {name}")
            pair = faiss.downcast_index(part), faiss.downcast_index(expected)
            yield *pair, empty.nlist if name == "quantizer" else count


def _compare(label: str, part: Any, empty: Any) -> None:
    """Check that a part has the type and the numbers of the empty one, and so have its quantizers."""
    import faiss

    if not isinstance(part, type(empty)) and type(part) is not faiss.LinearTransform:  # a rotation, once it is learnt
        raise ValueError(f"{label} is of type {type(part).__name__}, not {type(empty).__name__}")
    for name in _NUMBERS:
        expected = getattr(empty, name, None)
        if isinstance(expected, int) and (value := getattr(part, name, expected)) != expected:
            raise ValueError(f"{name} of {label} is {value}, not {expected}")
    for name in _QUANTIZERS:
        if hasattr(empty, name) and hasattr(part, name):  # a learnt rotation has no more quantizer
            _compare(name, getattr(part, name), getattr(empty, name))
    if hasattr(empty, "chain"):
        _compare_transforms(part.chain, empty.chain)
    if getattr(empty, "invlists", None) is not None:
        _compare_lists(part, empty)


def _compare_transforms(chain: Any, empty: Any) -> None:
    import faiss

    if chain.size() != empty.size():
        raise ValueError(f"{chain.size()} transformations come before the index, not {empty.size()}")
    for number in range(empty.size()):
        pair = (faiss.downcast_VectorTransform(transforms.at(number)) for transforms in (chain, empty))
        _compare(f"transformation {number}", *pair)


def _compare_lists(index: Any, empty: Any) -> None:
    import faiss

    if index.invlists is None:
        raise ValueError("the index lacks its lists")
    _compare("the lists", *(faiss.downcast_InvertedLists(each.invlists) for each in (index, empty)))


def _check_codes(index: Any, count: int) -> None:
    """Check the length of the codes of an index that holds them in one piece, and of RaBitQ's centre."""
    codes = getattr(index, "codes", None)
    if codes is not None:
        size, expected = codes.size(), count * index.code_size
        if hasattr(index, "get_block_stride"):
            blocks = -(-count // index.bbs)
            expected = blocks * index.get_block_stride()
            if index.ntotal2 != blocks * index.bbs:
                raise ValueError(f"the blocks have room for {index.ntotal2} vectors, not {blocks * index.bbs}")
        if size != expected:
            raise ValueError(f"the codes of {count} vectors have {size} bytes, not {expected}")
    if hasattr(index, "center") and index.center.size() != index.d:
        raise ValueError(f"the centre has {index.center.size()} numbers, not {index.d}")


def _check_lists(lists: Any, count: int) -> None:
    """Check that the lists hold each position from 0 to `count` - 1 once."""
    import faiss

    sizes = [lists.list_size(number) for number in range(lists.nlist)]
    if sum(sizes) != count:
        raise ValueError(f"the lists have {sum(sizes)} of {count} vectors")
    parts = [faiss.rev_swig_ptr(lists.get_ids(number), size) for number, size in enumerate(sizes) if size]
    positions = np.concatenate(parts) if parts else np.empty(0, np.int64)
    presence = np.zeros(count, np.bool_)
    presence[positions[positions.view(np.uint64) < count]] = True
    if not presence.all():
        raise ValueError("the lists do not hold each vector once")


def _check_graph(graph: Any, count: int) -> None:
    """Check that links on upper levels lead to nodes of that level: FAISS only checks that the nodes exist."""
    import faiss

    levels, starts = (faiss.vector_to_array(vector) for vector in (graph.levels, graph.cum_nneighbor_per_level))
    offsets = faiss.vector_to_array(graph.offsets).astype(np.int64)
    if (len(levels), len(offsets)) != (count, count + 1):
        raise ValueError(f"the graph has {len(levels)} of {count} nodes")
    if not count:
        return
    if not 0 <= graph.entry_point < count or levels[graph.entry_point] != graph.max_level + 1:
        raise ValueError(f"the graph begins at node {graph.entry_point}, which has no level {graph.max_level}")
    links = faiss.rev_swig_ptr(graph.neighbors.data(), graph.neighbors.size())
    for level in range(1, graph.max_level + 1):
        nodes = np.flatnonzero(levels > level)
        neighbours = links[offsets[nodes][:, None] + np.arange(starts[level], starts[level + 1])]
        if (levels[neighbours[neighbours >= 0]] <= level).any():
            raise ValueError(f"a link of level {level} leads to a node below it")
