"""Growth: processor time to index, sync, verify and search ten times as many small files.

    python -m benchmarks.speed.growth --debian debian12_descriptions.jsonl.gz [--counts 600,6000,60000] [--work DIR]

Each description of a Debian package is one file. The encoder is tiny and random, so that its time hides nothing. Every
command is a process of its own. Processor time includes its children, which read the files.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from tests.conftest import build_model

from ..machine import save

_FILES_IN_FOLDER = 200


def binocle(*arguments: str) -> float:
    """Run the command; return the processor seconds of it and its children."""
    process = subprocess.Popen([sys.executable, "-m", "binocle.cli", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"binocle {' '.join(arguments)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def write_files(descriptions: Path, folder: Path, count: int) -> None:
    """Write one file for each of the first `count` descriptions."""
    with gzip.open(descriptions, "rt") as lines:
        for number, line in enumerate(islice(lines, count)):
            row = json.loads(line)
            file = folder / f"{number // _FILES_IN_FOLDER}" / f"{number}.md"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n\n".join(str(value) for value in row.values() if value))


def measure(folder: Path, model: str) -> dict[str, float]:
    """Return the processor seconds of each command on a folder that has no index yet."""
    steps = {"index": ["index", str(folder), "--model", model], "sync": ["index", str(folder)]}
    steps |= {"verify": ["verify", str(folder)], "search": ["search", "mail server with a web interface", str(folder)]}
    return {step: round(binocle(*arguments), 2) for step, arguments in steps.items()}


def main() -> None:
    """Measure each count in a folder of its own, and the growth from one to the next."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--debian", type=Path, required=True)
    parser.add_argument("--counts", default="600,6000,60000")
    parser.add_argument("--work", type=Path)
    options = parser.parse_args()
    counts = [int(count) for count in options.counts.split(",")]
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        model = build_model(Path(work) / "model")
        rows: list[dict[str, Any]] = []
        for count in counts:
            folder = Path(work) / str(count)
            write_files(options.debian, folder, count)
            rows.append({"files": count, **measure(folder, str(model))})
            print(rows[-1], flush=True)
    growth = [
        {step: round(after[step] / before[step], 2) for step in before if step != "files"}
        for before, after in pairwise(rows)
    ]
    save("growth", {"seconds_of_cpu": rows, "growth": growth})


if __name__ == "__main__":
    main()
