"""Lines by a regular expression: the stored texts of an index beside grep in the files.

    python -m benchmarks.passages.lines FOLDER

FOLDER holds text files and their index. Seconds of processor time, the least of five runs, since other work may share
the machine: warm in one process, and cold as a command. The index must give the lines that grep finds in its files.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binocle.retriever.retriever import Retriever

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable

_RUNS = 5
_PATTERNS = {
    "rare word": "pathological",
    "common word": "return",
    "alternatives": "(class|def|fn|struct) [A-Za-z_]+",
    "every line with a digit": "[0-9]",
    "nested repetition": "(a+)+b$",
    "nothing": "zqxjkv[0-9]+",
}


def ours(retriever: Retriever, pattern: str) -> set[tuple[str, int]]:
    """Path and line of each match."""
    documents = retriever.grep(pattern)
    return {(document.path, line.number) for document in documents for group in document.groups for line in group}


def by_grep(folder: Path, pattern: str, paths: list[str]) -> set[tuple[str, int]]:
    """The same by grep, in the files that the index has."""
    command = ["grep", "-nHE", "--", pattern, *paths]
    output = subprocess.run(command, cwd=folder, capture_output=True, env={"LC_ALL": "C.UTF-8"}, check=False).stdout
    rows = (row.split(":", 2) for row in output.decode("utf-8", "replace").splitlines())
    return {(row[0], int(row[1])) for row in rows}


def least_seconds(work: Callable[[], object]) -> float:
    """Processor time of the fastest run, with that of the processes that it starts."""
    durations = []
    for _ in range(_RUNS):
        before = os.times()
        start = time.process_time()
        work()
        after = os.times()
        children = after.children_user + after.children_system - before.children_user - before.children_system
        durations.append(time.process_time() - start + children)
    return round(min(durations), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    folder = parser.parse_args().folder.resolve()
    retriever = Retriever.open(folder)
    paths = [row["path"] for row in retriever.documents() if row["chunks"]]
    texts = {path: retriever.text(path) for path in paths}
    plain = {path for path in paths if (folder / path).read_bytes() == texts[path].encode()}  # not HTML and the like
    results: dict[str, Any] = {
        "documents": len(paths),
        "characters": sum(map(len, texts.values())),
        "documents that are as their files": len(plain),
    }
    for name, pattern in _PATTERNS.items():
        lines, expected = ours(retriever, pattern), by_grep(folder, pattern, paths)
        results[name] = {
            "pattern": pattern,
            "lines": len(lines),
            "not as grep, where the text is that of the file": sum(path in plain for path, _ in lines ^ expected),
            "seconds in one process": least_seconds(lambda: ours(retriever, pattern)),  # noqa: B023
            "seconds as a command": least_seconds(lambda: command(folder, pattern)),  # noqa: B023
            "seconds of grep": least_seconds(lambda: by_grep(folder, pattern, paths)),  # noqa: B023
        }
    save("lines", results)


def command(folder: Path, pattern: str) -> None:
    """Run `binocle search --regex` in a new process."""
    words = [sys.executable, "-m", "binocle.cli", "search", "--regex", "-c", "--", pattern, str(folder)]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    main()
