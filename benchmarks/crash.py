"""Kill an index run at random moments, go on each time, and compare the end with an uninterrupted run.

    python -m benchmarks.crash --folder DIR [--kills 50] [--seed 0]

After every kill: `verify` must be clean, and the next run must embed nothing that was committed (its `embedded` plus
what is there must add up). At the end: 200 queries, all modes, must have exactly the answers of an index that was
made in one go: the same passages, in the same order, with the same scores.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from binocle.retriever.retriever import Retriever

from .machine import save

_QUERIES = 200


def start(folder: Path, index: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "binocle.cli", "index", str(folder), "--index", str(index), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def committed(index: Path) -> int:
    """Chunks that a reader sees."""
    return Retriever.open(index).snapshot().chunks.count_rows() if (index / "HEAD.json").exists() else 0


def queries(retriever: Retriever, seed: int) -> list[str]:
    """A few words from the middle of random passages."""
    texts = retriever.snapshot().chunks.to_table(columns=["text"])["text"].to_pylist()
    made = []
    for text in random.Random(seed).sample(texts, _QUERIES):
        words = text.split()
        middle = max(0, len(words) // 2 - 4)
        made.append(" ".join(words[middle : middle + 8]) or text)
    return made


def answers(retriever: Retriever, query: str, mode: str) -> list[tuple[Any, ...]]:
    return [(hit.path, hit.char_start, hit.text, hit.score) for hit in retriever.search(query, mode=mode)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder, whole, killed = (Path(temporary) / name for name in ("folder", "whole", "killed"))
        shutil.copytree(arguments.folder, folder, ignore=shutil.ignore_patterns(".binocle"))
        began = time.perf_counter()
        process = start(folder, whole)
        output, _ = process.communicate()
        uninterrupted = time.perf_counter() - began
        expected = json.loads(output)
        # Kills fall all over the run: each run lasts a random while, short enough that most are needed.
        results: dict[str, Any] = {"kills": 0, "unclean": 0, "embedded_again": 0, "final_report": None}
        while results["kills"] < arguments.kills:
            before = committed(killed)
            process = start(folder, killed)
            time.sleep(chance.uniform(0.1, max(1.0, 2.2 * uninterrupted / arguments.kills)))
            if process.poll() is not None:  # the whole folder is in: start over
                output, _ = process.communicate()
                results["embedded_again"] += int(before + json.loads(output)["chunks"]["embedded"] > _total(killed))
                shutil.rmtree(killed)
                continue
            process.send_signal(signal.SIGKILL)
            process.communicate()
            results["kills"] += 1
            if (killed / "HEAD.json").exists():
                results["embedded_again"] += int(committed(killed) < before)
                results["unclean"] += bool(Retriever.open(killed).verify())
        before = committed(killed)
        process = start(folder, killed)
        output, _ = process.communicate()
        report = json.loads(output)
        results["committed_before_last_run"] = before
        results["final_report"] = report
        results["embedded_again"] += int(
            before + report["chunks"]["embedded"] + report["chunks"]["reused"] != report["chunks"]["total"]
        )
        results["same_total"] = report["chunks"]["total"] == expected["chunks"]["total"]
        one, other = Retriever.open(whole), Retriever.open(killed)
        asked = queries(one, arguments.seed)
        for mode in ("hybrid", "semantic", "lexical"):
            same = sum(answers(one, query, mode) == answers(other, query, mode) for query in asked)
            results[f"{mode}_queries_answered_the_same"] = f"{same} of {len(asked)}"
        results["final_verify_faults"] = len(other.verify())
    save("crash", results, seed=arguments.seed)


def _total(index: Path) -> int:
    return Retriever.open(index).snapshot().chunks.count_rows()


if __name__ == "__main__":
    main()
