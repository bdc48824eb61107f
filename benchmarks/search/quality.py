"""Retrieval quality of each mode, and of the ways to fuse words and meaning, over several collections.

    python -m benchmarks.search.quality --data DIR [--indexes DIR]
    python -m benchmarks.search.quality --unseen DIR [--indexes DIR]

The folder of --data holds scifact/ and cranfield/ in BEIR's layout, squad11/squad11_dev.jsonl.gz and
debian_descriptions/debian12_descriptions.jsonl.gz. That of --unseen holds cacm/, cisi/ and npl/ with the files that
`benchmarks.collections` names; nothing was chosen on them. Missing collections are left out.

Every fusion ranks the same candidates: the 200 best passages of either side. Passages that only the words found get
their true cosine. The ranking with neighbours is the engine's own; p is of the difference to standard scores, by
randomisation over the queries.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.retriever import Retriever
from binocle.retriever.search.query import Query
from binocle.training.data import beir
from binocle.training.evaluation import retrieval as evaluation
from binocle.training.evaluation.measures import ndcg_at_10, values
from binocle.training.evaluation.significance import align, difference

from .. import collections
from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from binocle.training.evaluation.measures import Qrels, Run

    Floats = NDArray[np.float32]
    Fusion = Callable[[Floats, Floats], Floats]  # BM25 (0 where the words did not find it) and cosine to a score


def standard(lexical: Floats, semantic: Floats, share: float = 0.5) -> Floats:
    def scaled(values: Floats) -> Floats:
        return (values - values.mean()) / max(values.std(), 1e-6)

    return (1 - share) * scaled(lexical) + share * scaled(semantic)


def over_maximum(lexical: Floats, semantic: Floats) -> Floats:
    return lexical / max(lexical.max(), 1e-6) + semantic / max(semantic.max(), 1e-6)


def min_max(lexical: Floats, semantic: Floats) -> Floats:
    """Each side over the range of its own candidates."""

    def scaled(values: Floats, own: Floats) -> Floats:
        low, high = (own.min(), own.max()) if len(own) else (0.0, 1.0)
        return np.clip((values - low) / max(high - low, 1e-6), 0, 1)

    nearest = np.sort(semantic)[::-1][:200]
    return scaled(lexical, lexical[lexical > 0]) + scaled(semantic, nearest)


def reciprocal_rank(lexical: Floats, semantic: Floats) -> Floats:
    """Cormack et al. 2009, k = 60."""

    def reciprocal(values: Floats, own: NDArray[np.bool_]) -> Floats:
        ranks = np.empty(len(values), np.int64)
        ranks[np.argsort(-values, kind="stable")] = np.arange(1, len(values) + 1)
        return np.where(own, 1 / (60 + ranks), 0).astype(np.float32)

    return reciprocal(lexical, lexical > 0) + reciprocal(semantic, semantic >= np.sort(semantic)[::-1][:200].min())


NEIGHBOURS, BEFORE = "standard scores with neighbours", "standard scores, semantic .5"
FUSIONS: dict[str, Fusion] = {
    "standard scores, semantic .4": lambda lexical, semantic: standard(lexical, semantic, 0.4),
    "standard scores, semantic .5": standard,
    "standard scores, semantic .6": lambda lexical, semantic: standard(lexical, semantic, 0.6),
    "scores over their maximum": over_maximum,
    "min-max": min_max,
    "reciprocal ranks, k = 60": reciprocal_rank,
}


def fused(retriever: Retriever, query: str, names: dict[int, str]) -> dict[str, list[tuple[str, float]]]:
    """For each fusion the documents of one query, best first."""
    vector = retriever.encoder.encode([query], kind="query")
    candidates = Query(retriever.snapshot(), query, lambda: vector).candidates(200)
    lexical, semantic = np.nan_to_num(candidates.lexical), candidates.semantic
    runs = {}
    for name in (NEIGHBOURS, *FUSIONS):
        best: dict[str, float] = {}
        scores = FUSIONS[name](lexical, semantic) if name in FUSIONS else candidates.score
        for position in np.argsort(-scores, kind="stable"):
            best.setdefault(names[int(candidates.ids[position])], float(scores[position]))
        runs[name] = list(best.items())[:100]
    return runs


def measure(folder: Path, index: Path) -> dict[str, Any]:
    """nDCG@10 of each fusion, and all measures of each mode as the engine serves it."""
    modes = {mode: evaluation.evaluate(folder, mode=mode, index=index) for mode in ("semantic", "lexical", "hybrid")}
    retriever = Retriever.open(index)
    table = retriever.snapshot().chunk_ids
    paths = {row["id"]: row["path"] for row in retriever.documents()}
    names = {
        chunk: paths[document]
        for chunk, document in zip(table["id"].to_pylist(), table["document"].to_pylist(), strict=True)
    }
    queries, qrels = beir.queries(folder), beir.qrels(folder, "test")
    runs: dict[str, dict[str, list[tuple[str, float]]]] = {name: {} for name in (NEIGHBOURS, *FUSIONS)}
    for number in qrels:
        for name, ranking in fused(retriever, queries[number], names).items():
            runs[name][number] = ranking
    return {
        "documents": modes["hybrid"].documents,
        "chunks": modes["hybrid"].chunks,
        "queries": len(qrels),
        "modes": {mode: result.measures for mode, result in modes.items()},
        "fusions_ndcg_at_10": {name: round(ndcg_at_10(qrels, run), 4) for name, run in runs.items()},
        "gains_of_neighbours": gains(qrels, runs[NEIGHBOURS], runs[BEFORE]),
    }


def gains(qrels: Qrels, run: Run, before: Run) -> dict[str, dict[str, float]]:
    """For each measure the gain, its interval, and p."""
    ours, theirs = values(qrels, run), values(qrels, before)
    gains = {name: difference(*align(ours[name], theirs[name])) for name in ours}
    return {name: {key: round(value, 5) for key, value in asdict(gain).items()} for name, gain in gains.items()}


def collect(options: argparse.Namespace, work: Path) -> dict[str, Path]:
    """The folder of each collection that is there, in BEIR's layout."""
    if options.unseen:
        return collections.unseen(options.unseen, work)
    data = options.data
    folders = {name: data / name for name in ("scifact", "cranfield") if (data / name).is_dir()}
    for name, file, make in (
        ("squad", data / "squad11" / "squad11_dev.jsonl.gz", collections.squad),
        ("debian", data / "debian_descriptions" / "debian12_descriptions.jsonl.gz", collections.debian),
    ):
        if file.is_file():
            folders[name] = make(file, work / name)
    return folders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path)
    source.add_argument("--unseen", type=Path)
    parser.add_argument("--indexes", type=Path, help="keep the indexes here, to measure them again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        results: dict[str, Any] = {
            name: measure(folder, (options.indexes or Path(temporary)) / f"{name}-index")
            for name, folder in collect(options, Path(temporary)).items()
        }
    means = {
        name: round(float(np.mean([result["fusions_ndcg_at_10"][name] for result in results.values()])), 4)
        for name in (NEIGHBOURS, *FUSIONS)
    }
    save("quality-unseen" if options.unseen else "quality", {**results, "fusions_mean_ndcg_at_10": means}, seed=0)


if __name__ == "__main__":
    main()
