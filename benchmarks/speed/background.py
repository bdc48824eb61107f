"""A search that the process in the background answers, against one in a process of its own, in turn.

    python -m benchmarks.speed.background --index DIR [--query TEXT]

Each is the whole process `binocle`, from its start to its end: seconds on the clock, and seconds of the processor.
For a warm search the latter count the client and the process in the background together.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ..machine import save

_TIMES, _WARM = 15, 5  # pairs of searches, and warm ones before them


def search(words: list[str], environment: dict[str, str]) -> tuple[float, float, bytes]:
    """Run the program; returns the seconds on the clock, the seconds of its processor, and its output."""
    before, start = os.times(), time.perf_counter()
    output = subprocess.run(
        [sys.executable, "-P", "-m", "binocle", *words], env=environment, stdout=subprocess.PIPE, check=True
    ).stdout
    seconds, after = time.perf_counter() - start, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, used, output


def used_by(process: int) -> float:
    """Return the seconds of the processor that another process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--query", default="list all files by size")
    arguments = parser.parse_args()
    words = ["search", arguments.query, "--index", str(arguments.index.resolve())]
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:
        environment = os.environ | {"XDG_RUNTIME_DIR": runtime}
        cold_environment = os.environ | {"XDG_RUNTIME_DIR": f"{runtime}/none"}
        expected = search([*words, "--stay", "10m"], environment)[2]
        while not (sockets := [file for file in Path(runtime).rglob("stay-*") if file.is_socket()]):
            time.sleep(0.1)
        process = next(int(file.parent.name) for file in Path("/proc").glob("[0-9]*/cmdline") if _stays(file, runtime))
        for _ in range(_WARM):
            assert search(words, environment)[2] == expected
        rows: list[dict[str, float]] = []
        for _ in range(_TIMES):
            cold, cold_used, output = search(words, cold_environment)
            before = used_by(process)
            warm, warm_used, same = search(words, environment)
            assert output == same == expected
            rows.append(
                {"cold": cold, "cold_cpu": cold_used, "warm": warm, "warm_cpu": warm_used + used_by(process) - before}
            )
        search([*words, "--stay", "0"], environment)
        while sockets[0].exists():
            time.sleep(0.1)
    medians = {name: round(statistics.median(row[name] for row in rows), 4) for name in rows[0]}
    fastest = {name: round(min(row[name] for row in rows), 4) for name in rows[0]}
    results: dict[str, Any] = {"searches": _TIMES, "median_seconds": medians, "least_seconds": fastest}
    save("background", results)


def _stays(file: Path, runtime: str) -> bool:
    """Whether a process is the one in the background that has its socket in this folder."""
    try:
        is_it = b"--stay-in-background" in file.read_bytes()
        return is_it and runtime.encode() in file.with_name("environ").read_bytes()
    except OSError:
        return False


if __name__ == "__main__":
    main()
