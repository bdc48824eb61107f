"""Queries made from the documents beside people's: do both order the modes of search alike?

    python -m benchmarks.search.without_judgements --data DIR --work DIR [--collections cranfield squad]

`binocle evaluate FOLDER` makes such queries for a folder without judgements. Here the collections have judgements, so
each mode is measured by both. DIR has the folders of the data sets, as `benchmarks.collections` reads them.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from binocle.retriever.retriever import Retriever
from binocle.training.evaluation.retrieval import evaluate
from binocle.training.evaluation.significance import align, difference
from binocle.training.tuning import generated_collection

from .. import collections
from ..machine import save

MODES = ("hybrid", "semantic", "lexical")


def collection(name: str, data: Path, work: Path) -> Path:
    """The folder of a test collection, made if need be."""
    folder = work / name
    if folder.exists() or name in ("cranfield", "scifact"):
        return folder if folder.exists() else data / name
    if name == "squad":
        return collections.squad(data / "squad11" / "squad11_dev.jsonl.gz", folder)
    return collections.tldr(data / "docs_tldr.tar.gz", folder)


def measure(folder: Path, index: Path) -> dict[str, Any]:
    """nDCG@10 of each mode, and the difference of the others to hybrid search."""
    results = {mode: evaluate(folder, mode=mode, index=index) for mode in MODES}
    first = results[MODES[0]].per_query["nDCG@10"]
    rows: dict[str, Any] = {"queries": results[MODES[0]].queries, "documents": results[MODES[0]].documents}
    for mode, result in results.items():
        rows[mode] = {"nDCG@10": result.measures["nDCG@10"], "interval": result.intervals["nDCG@10"]}
        if mode != MODES[0]:
            rows[mode]["to hybrid"] = difference(*align(result.per_query["nDCG@10"], first)).as_dict()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="for the indexes")
    parser.add_argument("--collections", nargs="+", default=["cranfield", "squad"])
    options = parser.parse_args()
    results = {}
    for name in options.collections:
        folder, index = collection(name, options.data, options.work), options.work / f"{name}-index"
        own = measure(folder, index)
        generated = options.work / f"{name}-generated"
        shutil.rmtree(generated, ignore_errors=True)
        generated_collection.write(Retriever.open(index).snapshot(), generated)
        results[name] = {"judged": own, "generated": measure(generated, options.work / f"{name}-generated-index")}
        print(name, results[name], flush=True)
    save("without_judgements", results)


if __name__ == "__main__":
    main()
