"""`binocle audit` of a labelled collection: what leaks, what defences cost, time and memory.

    python -m benchmarks.inversion.audit --collection scifact/ [--work DIR | --index DIR] [OPTIONS OF binocle audit]

The collection is in BEIR's layout; its documents are added to an index under their ids, unless an index is given. No
text is in the result. With --quick the result is audit-quick.json.
Memory is the most that the process had resident, mapped files included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

from binocle.retriever.retriever import Retriever
from binocle.training.data import beir

from ..machine import save
from ..speed.folder import binocle


def indexed(collection: Path, work: Path) -> Path:
    retriever = Retriever.open(work / "index")
    retriever.add(beir.documents(collection))
    return retriever.path


def shown(setting: dict[str, Any]) -> dict[str, Any]:
    """Of a setting the leak, the quality kept, and token F1 by length."""
    attacks = {name: f1(attack["lengths"]) for name, attack in setting["attacks"].items()}
    names = ("bytes", "ndcg", "keep", "leak", "leak_high", "share", "highest_content_f1", "facts", "unmeasured")
    return {**{name: setting[name] for name in names}, "token F1": attacks, "nearest": f1(setting["nearest"])}


def f1(by_length: dict[str, Any]) -> dict[str, float]:
    return {length: measures["f1"]["value"] for length, measures in by_length.items()}


def children_seconds() -> float:
    """The CPU time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collection", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="a folder for the index; a new one unless given")
    parser.add_argument("--index", type=Path, help="an index of the collection, instead of a new one")
    arguments, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        index = arguments.index or indexed(arguments.collection, arguments.work or Path(temporary))
        options = ("--index", str(index), "--queries", str(arguments.collection), "--examples", "0", "--json", *rest)
        before = children_seconds()
        seconds, memory, report = binocle("audit", *options)
        cpu_seconds = children_seconds() - before
    result = json.loads(report)
    results = {
        "minutes": round(seconds / 60, 1),
        "cpu_minutes": round(cpu_seconds / 60, 1),
        "memory_mb": round(memory),
        "cores": len(os.sched_getaffinity(0)),
        **{
            name: result[name]
            for name in ("documents", "passages", "learned", "queries", "steps_each", "verdict", "statements")
        },
        "settings": {setting["name"]: shown(setting) for setting in result["settings"]},
        "stored_length": result["stored_length"],
        "most frequent tokens": f1(result["frequent"]),
    }
    save("audit-quick" if "--quick" in rest else "audit", results, seed=0)


if __name__ == "__main__":
    main()
