"""Does a mixture of teachers of `tune` rank better than its parts?

    python -m benchmarks.models.teachers --model FOLDER --collection FOLDER [--collection FOLDER] --work FOLDER

The index has all-MiniLM-L6-v2. Each teacher ranks all passages for the test queries; a document has the score of its
best passage. FOLDER after --model is a larger encoder such as all-mpnet-base-v2, or a cross-encoder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle import Retriever
from binocle.training.data import beir
from binocle.training.evaluation.measures import values
from binocle.training.evaluation.retrieval import evaluate
from binocle.training.evaluation.significance import align, difference
from binocle.training.tuning import teachers
from binocle.training.tuning.passages import Passages
from binocle.training.tuning.tuning_config import HYBRID

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from binocle.core.arrays import Floats

_DEPTH = 100  # documents of a ranking


def measure(collection: Path, model: str, work: Path) -> dict[str, Any]:
    """Rank by the encoder of the index, by each teacher, and by their mixture."""
    index = work / f"{collection.name}-index"
    evaluate(collection, mode="semantic", index=index)  # makes the index
    retriever = Retriever.open(index)
    snapshot, encoder = retriever.snapshot(), retriever.encoder
    documents = [row["path"] for row in snapshot.read("documents", ["path"]).to_pylist()]
    passages = Passages.read(snapshot, documents)
    judged, texts = beir.qrels(collection, "test"), beir.queries(collection)
    queries = [texts[query] for query in judged]
    hybrid = teachers.SearchTeacher(snapshot, encoder, passages)
    rankings = {"the encoder": encoder.encode(queries, kind="query") @ passages.vectors.T}
    for names in ((HYBRID,), (model,), (HYBRID, model)):
        teacher = teachers.teacher(names, passages.texts, lambda: hybrid, _say)
        rankings[" + ".join(Path(name).name for name in names)] = teacher.scores(queries)
    ndcg = {name: values(judged, _run(list(judged), scores, passages))["nDCG@10"] for name, scores in rankings.items()}
    *parts, mixture = ndcg
    return {
        "documents": len(documents),
        "queries": len(judged),
        "nDCG@10": {name: round(float(np.mean(list(own.values()))), 4) for name, own in ndcg.items()},
        "mixture minus": {name: difference(*align(ndcg[mixture], ndcg[name])).as_dict() for name in parts},
    }


def _run(queries: Sequence[str], scores: Floats, passages: Passages) -> dict[str, list[tuple[str, float]]]:
    """Return the best documents of each query."""
    names = {number: path for path, number in passages.numbers.items()}
    different, columns = np.unique(passages.documents, return_inverse=True)
    run = {}
    for query, row in zip(queries, scores, strict=True):
        best = np.full(len(different), -np.inf, np.float32)
        np.maximum.at(best, columns, row)
        order = np.argsort(-best, kind="stable")[:_DEPTH]
        run[query] = [(names[int(different[number])], float(best[number])) for number in order]
    return run


def _say(event: Any) -> None:
    print(event.message or event.stage, file=sys.stderr, flush=True)


def main() -> None:
    """Measure each collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--collection", type=Path, action="append", required=True)
    parser.add_argument("--work", type=Path, required=True, help="keeps the indexes")
    options = parser.parse_args()
    save("teachers", {path.name: measure(path, options.model, options.work) for path in options.collection}, seed=0)


if __name__ == "__main__":
    main()
