"""A folder of many small files: the first index, an unchanged sync, one edit, memory, and a cold search.

    python -m benchmarks.speed.folder --folder DIR [--times 10] [--cold DIR]

Every command is a process of its own, as a user runs it. With --times N the folder is also indexed in N copies, to see
whether memory grows with the corpus. The texts of the copies differ, so that each is embedded.
A cold search, in the folder given by --cold, is paired with `python -c "import sentence_transformers"`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ..machine import save

_PAIRS = 9


def binocle(*arguments: str) -> tuple[float, float, str]:
    """Run the command; gives seconds, peak resident MB of the process itself, and its output."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, "-m", "binocle.cli", *arguments], stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode()
    if process.returncode not in (0, 1):
        raise SystemExit(f"binocle {' '.join(arguments)} ended with {process.returncode}")
    return seconds, usage.ru_maxrss / 1024, text


def edit(folder: Path) -> dict[str, Any]:
    """Change one file; index; find the change with a new process."""
    file = next(path for path in sorted(folder.rglob("*.md")) if path.stat().st_size > 500)
    file.write_text(file.read_text("utf-8") + "\n\nThe zebra quartz lantern hums at midnight.\n", "utf-8")
    began = time.perf_counter()
    _, _, report = binocle("index", str(folder), "--json")
    _, _, hit = binocle("search", "zebra quartz lantern", str(folder), "--json", "-k", "1")
    seconds = time.perf_counter() - began
    fields = json.loads(hit)
    assert fields["path"] == file.relative_to(folder).as_posix(), fields["path"]
    return {"seconds_index_and_search": round(seconds, 3), "passages": json.loads(report)["passages"]}


def copies(folder: Path, target: Path, times: int) -> None:
    """The folder so many times over, every text file made different by a first line of its own."""
    for number in range(times):
        shutil.copytree(folder, target / f"copy{number}", ignore=shutil.ignore_patterns(".binocle"))
        for file in (target / f"copy{number}").rglob("*.md"):
            text = file.read_text("utf-8", "replace")
            file.write_text(f"Copy number {number} of these pages.\n\n{text}", "utf-8")


def cold(folder: Path) -> dict[str, Any]:
    """A search in a new process against the import of sentence_transformers, in turn."""
    ours, theirs = [], []
    for _ in range(_PAIRS):
        seconds, _, _ = binocle("search", "how does ownership work", str(folder))
        ours.append(seconds)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import sentence_transformers"], check=True)
        theirs.append(time.perf_counter() - began)
    return {
        "search_seconds": [round(seconds, 3) for seconds in ours],
        "import_sentence_transformers_seconds": [round(seconds, 3) for seconds in theirs],
        "median_ratio": round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--times", type=int, default=0)
    parser.add_argument("--cold", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "folder"
        shutil.copytree(arguments.folder, folder, ignore=shutil.ignore_patterns(".binocle"))
        seconds, peak, report = binocle("index", str(folder), "--json")
        results["first_index"] = {"seconds": round(seconds, 2), "peak_mb": round(peak), **json.loads(report)}
        seconds, peak, report = binocle("index", str(folder), "--json")
        results["unchanged"] = {"seconds": round(seconds, 3), "peak_mb": round(peak), **json.loads(report)}
        results["one_file_edited"] = edit(folder)
        if arguments.cold:
            searched = Path(temporary) / "searched"
            shutil.copytree(arguments.cold, searched, ignore=shutil.ignore_patterns(".binocle"))
            binocle("index", str(searched))
            results["cold_search"] = cold(searched)
        save("folder", results)  # the rest takes a while
        if arguments.times:
            files_folder = Path(temporary) / "many"
            copies(arguments.folder, files_folder, arguments.times)
            seconds, peak, report = binocle("index", str(files_folder), "--json")
            results[f"{arguments.times}_times"] = {
                "seconds": round(seconds, 2),
                "peak_mb": round(peak),
                **json.loads(report),
            }
    save("folder", results)


if __name__ == "__main__":
    main()
