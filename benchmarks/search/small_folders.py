"""How often a search of a small folder says that nothing answers, where something does and where nothing does.

    python -m benchmarks.search.small_folders --data DIR [--sizes 15 40] [--seeds 1]

DIR holds scifact/ and cranfield/ in BEIR's layout, squad11/squad11_dev.jsonl.gz and debian_descriptions/*.jsonl.gz.
A folder of each size is drawn from each collection, and one from all of them. It is asked questions that its documents
answer, questions of the other collections, everyday questions and nonsense.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from binocle.retriever.retriever import Retriever
from binocle.training.data import beir

from .. import collections
from ..machine import save
from .relevance import EVERYDAY, auc, calibration_error, nonsense

if TYPE_CHECKING:
    from .relevance import Floats

OWN, OTHERS = 30, 10  # questions of a folder, and of each other collection
Pairs = dict[str, list[tuple[str, str]]]  # collection -> a question and the name of its document
Texts = dict[str, dict[str, str]]  # collection -> name -> text


def read(data: Path, made: Path) -> tuple[Texts, Pairs]:
    packages = next((data / "debian_descriptions").glob("*.jsonl.gz"))
    folders = {
        "scifact": data / "scifact",
        "cranfield": data / "cranfield",
        "squad": collections.squad(data / "squad11" / "squad11_dev.jsonl.gz", made / "squad", count=2_000),
        "debian": collections.debian(packages, made / "debian", count=2_000),
    }
    texts: Texts = {}
    pairs: Pairs = {}
    for name, folder in folders.items():
        texts[name] = {row["id"]: beir.passage(row) for row in beir.documents(folder)}
        queries = beir.queries(folder)
        best = {query: max(grades, key=grades.__getitem__) for query, grades in beir.qrels(folder, "test").items()}
        pairs[name] = [(queries[query], document) for query, document in sorted(best.items())]
    return texts, pairs


def draw_folder(sources: list[str], pairs: Pairs, size: int, draw: random.Random) -> dict[tuple[str, str], str]:
    """Map the documents of a small folder, each by its collection and name, to a question that it answers."""
    drawn = [(source, *pair) for source in sources for pair in draw.sample(pairs[source], min(3 * size, 150))]
    chosen: dict[tuple[str, str], str] = {}
    for source, question, document in draw.sample(drawn, len(drawn)):
        if len(chosen) < size:
            chosen.setdefault((source, document), question)
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[15, 40])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    arguments = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        texts, pairs = read(arguments.data, Path(temporary))
        for size in arguments.sizes:
            best: dict[str, list[float]] = defaultdict(list)
            for seed in arguments.seeds:
                for name in [*texts, "all"]:
                    draw = random.Random(f"{seed} {size} {name}")
                    sources = list(texts) if name == "all" else [name]
                    chosen = draw_folder(sources, pairs, size, draw)
                    retriever = Retriever.open(Path(temporary) / f"{seed}-{size}-{name}")
                    retriever.add([{"id": "/".join(place), "text": texts[place[0]][place[1]]} for place in chosen])
                    unrelated = [source for source in texts if source not in sources]
                    others = [question for source in unrelated for question, _ in draw.sample(pairs[source], OTHERS)]
                    asked = {"own": list(chosen.values())[:OWN], "others": others, "everyday": EVERYDAY}
                    for kind, questions in (asked | {"nonsense": nonsense(20)}).items():
                        for hits in (retriever.search(question) for question in questions):
                            best[kind].append(hits[0].relevance if hits else 0.0)
                    print(size, seed, name, retriever.status().chunks, flush=True)
            results[f"{size} documents"] = summary({kind: np.array(values) for kind, values in best.items()})
    save("small_folders", results, seed=min(arguments.seeds))


def summary(best: dict[str, Floats]) -> dict[str, float | int]:
    own = best.pop("own")
    shares = {f"answered: {kind}": round(float(np.mean(values >= 0.5)), 3) for kind, values in best.items()}
    return {
        "questions": len(own),
        "refused": round(float(np.mean(own < 0.5)), 3),
        **shares,
        "AUC": round(auc(own, np.concatenate(list(best.values()))), 4),
        "calibration error": round(calibration_error(own, list(best.values())), 4),
    }


if __name__ == "__main__":
    main()
