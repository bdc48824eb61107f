"""`binocle mine` against `sentence_transformers.util.mine_hard_negatives`: same pairs, same model, same rules.

    python -m benchmarks.models.mining --squad squad11_train.jsonl.gz [--limit 500]

The file has a paragraph a line with `context` and `qas`; every question is a query and its paragraph the positive.
Each miner runs in a process of its own, from its start to a file of rows on disk. Memory is the highest that the
process had resident, and the highest of its own memory (anonymous: without files mapped into memory). Processor time
stands for the wall time of an idle machine. "Without encoding" is our time less the encoding time that our miner
reports. For theirs it is the time of a second run, with its cache of embeddings.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ..machine import save

NEGATIVES, DEPTH, RELATIVE_MARGIN = 5, 100, 0.05


def pairs(file: Path, limit: int | None, out: Path) -> dict[str, int]:
    """Write the pairs; gives how many there are."""
    paragraphs, rows = set(), []
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        for number, line in enumerate(stream):
            if number == limit:
                break
            row = json.loads(line)
            paragraphs.add(row["context"])
            rows += [{"query": question["question"], "positive": row["context"]} for question in row["qas"]]
    out.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    answers = Counter(query for query, _ in {(row["query"], row["positive"]) for row in rows})
    return {
        "rows": len(rows),
        "different_paragraphs": len(paragraphs),
        "different_questions": len(answers),
        "most_positives": max(answers.values()),
    }


def theirs(rows: Path, out: Path, most_positives: int, cache: Path, *, use_faiss: bool) -> None:
    """Mine as a user of sentence-transformers would."""
    from datasets import load_dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import mine_hard_negatives

    from binocle.retriever.models import model_files

    model = SentenceTransformer(str(model_files.find(model_files.DEFAULT_MODEL)), device="cpu")
    dataset = load_dataset("json", data_files=str(rows), split="train", cache_dir=str(out.parent / "datasets"))
    began = time.perf_counter()
    mined = mine_hard_negatives(
        dataset,
        model,
        num_negatives=NEGATIVES,
        range_max=DEPTH - most_positives,  # it looks at this many and the positives
        relative_margin=RELATIVE_MARGIN,
        output_format="n-tuple",
        use_faiss=use_faiss,
        cache_folder=str(cache),
        verbose=False,
    )
    print(json.dumps({"mining_seconds": time.perf_counter() - began}))
    mined.to_json(out, force_ascii=False)


def measured(command: list[str]) -> dict[str, Any]:
    """Run a command; gives its time, its memory and the JSON of its last line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.DEVNULL)
        resident = own = 0
        while process.poll() is None:
            resident, own = (
                max(resident, _kilobytes(process.pid, "VmHWM")),
                max(own, _kilobytes(process.pid, "RssAnon")),
            )
            time.sleep(0.1)
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            raise SystemExit(f"{command} ended with {process.returncode}")
        said.seek(0)
        lines = said.read().splitlines()
    return {
        "seconds": round(seconds, 1),
        "processor_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "peak_resident_mb": round(resident / 1024),
        "peak_anonymous_mb": round(own / 1024),
        "said": json.loads(lines[-1]),
    }


def _kilobytes(process: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text("utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name + ":")), 0)


def agreement(ours: Path, theirs: Path) -> dict[str, Any]:
    """How alike the two files of rows are."""

    def read(file: Path) -> dict[tuple[str, str], list[str]]:
        with file.open(encoding="utf-8") as stream:
            rows = map(json.loads, stream)
            return {
                (row["query"], row["positive"]): [row[f"negative_{number + 1}"] for number in range(NEGATIVES)]
                for row in rows
            }

    our_rows, their_rows = read(ours), read(theirs)
    both = our_rows.keys() & their_rows.keys()
    shared = [len(set(our_rows[pair]) & set(their_rows[pair])) for pair in both]
    return {
        "rows": [len(our_rows), len(their_rows)],
        "pairs_in_both": len(both),
        "pairs_in_one": len(our_rows.keys() ^ their_rows.keys()),
        "negatives_shared": round(sum(shared) / (NEGATIVES * len(both)), 4),
        "rows_with_the_same_negatives": round(sum(count == NEGATIVES for count in shared) / len(both), 4),
        "rows_with_the_same_first": round(sum(our_rows[p][0] == their_rows[p][0] for p in both) / len(both), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", type=Path)
    parser.add_argument("--limit", type=int, help="paragraphs")
    parser.add_argument("--theirs", nargs=5, help=argparse.SUPPRESS)  # the process that runs their miner
    arguments = parser.parse_args()
    if arguments.theirs:
        rows, out, limit, cache, use_faiss = arguments.theirs
        theirs(Path(rows), Path(out), int(limit), Path(cache), use_faiss=use_faiss == "faiss")
        return
    with tempfile.TemporaryDirectory(prefix="binocle-") as temporary:
        folder = Path(temporary)
        counts = pairs(arguments.squad, arguments.limit, folder / "pairs.jsonl")
        print(counts, time.strftime("%H:%M:%S"), flush=True)
        options = ["--negatives", NEGATIVES, "--depth", DEPTH, "--relative-margin", RELATIVE_MARGIN, "--json"]
        command = ["-m", "binocle.cli", "mine", folder / "pairs.jsonl", "--out", folder / "ours.jsonl", *options]
        ours = measured([sys.executable, *map(str, command)])
        print(ours, time.strftime("%H:%M:%S"), flush=True)
        results: dict[str, Any] = {"pairs": counts, "binocle": ours}
        for name, kind in (("", "faiss"), ("_from_cache", "faiss"), ("_from_cache_torch", "torch")):
            values = [folder / "pairs.jsonl", folder / "theirs.jsonl", counts["most_positives"], folder / "cache", kind]
            measures = measured([sys.executable, "-m", __spec__.name, "--theirs", *map(str, values)])
            print(measures, time.strftime("%H:%M:%S"), flush=True)
            results["sentence_transformers" + name] = measures
            if not name:
                results["agreement"] = agreement(folder / "ours.jsonl", folder / "theirs.jsonl")
    report = ours["said"]
    encoding = report["seconds"]["encoding texts"] + report["seconds"]["encoding queries"]
    best = min(results[f"sentence_transformers_from_cache{kind}"]["said"]["mining_seconds"] for kind in ("", "_torch"))
    results["times_faster"] = round(results["sentence_transformers"]["seconds"] / ours["seconds"], 2)
    results["seconds_without_encoding"] = {
        "binocle": round(sum(report["seconds"].values()) - encoding, 1),
        "sentence_transformers": round(best, 1),
    }
    save("mining" if arguments.limit is None else f"mining-{arguments.limit}", results)


if __name__ == "__main__":
    main()
