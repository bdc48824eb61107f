"""What every committed result says about where, when and how it was measured."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
_PACKAGES = (
    *("chromadb", "faiss-cpu", "faiss-gpu-cuvs", "hnswlib", "lancedb", "numpy", "openvino", "pylance"),
    *("sentence-transformers", "tokenizers", "torch", "txtai", "usearch"),
)


def describe() -> dict[str, Any]:
    """The machine, and the versions of the measured programs."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def save(name: str, results: Any, *, seed: int | None = None) -> None:
    """Write `results/NAME.json` and print it."""
    RESULTS.mkdir(exist_ok=True)
    run = {"commit": COMMIT, "date": datetime.now(UTC).isoformat(timespec="seconds"), "arguments": arguments()}
    text = json.dumps({**run, "machine": describe(), "seed": seed, "results": results}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n", "utf-8")
    print(json.dumps(results, indent=1))


def arguments() -> list[str]:
    """The arguments of the command; of files only their names."""
    return [re.sub(r"[^=,]*/", "", argument.rstrip("/")) for argument in sys.argv[1:]]


def commit(folder: Path) -> str | None:
    """Of the code there, `-dirty` where it differs from it; results do not count.

    BENCHMARK_COMMIT names it on a machine that has a copy of the files; without it and without git it is None.
    """
    if named := os.environ.get("BENCHMARK_COMMIT"):
        return named
    within = ["git", "-C", str(folder)]
    changed = [*within, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results"]
    try:
        name, changes = (
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            for command in ([*within, "rev-parse", "--short", "HEAD"], changed)
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{name}-dirty" if changes else name


COMMIT = commit(Path(__file__).parents[1])  # when it began: the code may change while it runs


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """Its name, and its instructions for bf16 and int8, since they decide the speed of encoding."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    fields = dict(line.split("\t", 1) for line in lines if "\t" in line)
    name = fields.get("model name", ": ?").lstrip(": \t")
    flags = set(fields.get("flags", "").split())
    return f"{name} ({', '.join(sorted(flags & {'avx512_bf16', 'amx_bf16', 'avx512_vnni', 'avx2'}))})"
