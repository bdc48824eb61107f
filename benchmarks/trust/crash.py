"""Kill an index run at random moments, go on each time, and compare the end with an uninterrupted run.

    python -m benchmarks.trust.crash --folder DIR [--kills 50] [--seed 0]

After every kill `verify` must be clean and nothing committed lost. When an index is finished in spite of the kills, the
passages of its last run and those before must add up to the whole. Then 200 queries in each mode
must have exactly the answers of an index that was made in one go: the same passages, order and scores.
"""

from __future__ import annotations

import argparse
import json
import os
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

from ..machine import save

os.environ.setdefault("BINOCLE_TRUST", "all")  # it writes to copies of indexes

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
    query_texts = []
    for text in random.Random(seed).sample(texts, _QUERIES):
        words = text.split()
        middle = max(0, len(words) // 2 - 4)
        query_texts.append(" ".join(words[middle : middle + 8]) or text)
    return query_texts


def answers(retriever: Retriever, query: str, mode: str) -> list[tuple[Any, ...]]:
    return [(hit.path, hit.char_start, hit.text, hit.score) for hit in retriever.search(query, mode=mode)]


def compared(whole: Path, killed: Path, report: dict[str, Any], before: int, seed: int) -> dict[str, Any]:
    """The last run of a killed index in figures, and whether the two indexes answer alike."""
    expected, actual = Retriever.open(whole), Retriever.open(killed)
    query_texts = queries(expected, seed)
    passages = report["passages"]
    results: dict[str, Any] = {
        "committed_before_the_last_run": before,
        "embedded_or_reused_by_it": passages["embedded"] + passages["reused"],
        "total": passages["total"],
        "total_of_the_uninterrupted": committed(whole),
        "verify_faults": len(actual.verify().faults),
    }
    for mode in ("hybrid", "semantic", "lexical"):
        same = sum(answers(expected, query, mode) == answers(actual, query, mode) for query in query_texts)
        results[f"{mode}_answers_the_same"] = f"{same} of {len(query_texts)}"
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    kills = unclean = shrunk = 0
    finished: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder, whole, killed = (Path(temporary) / name for name in ("folder", "whole", "killed"))
        shutil.copytree(arguments.folder, folder, ignore=shutil.ignore_patterns(".binocle"))
        began = time.perf_counter()
        start(folder, whole).communicate()
        longest = max(4.0, 8 * (time.perf_counter() - began) / arguments.kills)
        while kills < arguments.kills or killed.exists():
            before = committed(killed)
            process = start(folder, killed)
            if kills < arguments.kills:
                time.sleep(chance.uniform(0.1, longest))
            if kills == arguments.kills or process.poll() is not None:  # the whole folder is in
                output, _ = process.communicate()
                report = json.loads(output)
                finished.append({"kills": kills, **compared(whole, killed, report, before, arguments.seed)})
                shutil.rmtree(killed)
                continue
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            if (killed / "HEAD.json").exists():
                shrunk += committed(killed) < before
                unclean += bool(Retriever.open(killed).verify().faults)
    results = {
        "kills": kills,
        "verify_unclean_after_a_kill": unclean,
        "committed_rows_lost_by_a_kill": shrunk,
        "indexes_finished": finished,
    }
    save("crash", results, seed=arguments.seed)


if __name__ == "__main__":
    main()
