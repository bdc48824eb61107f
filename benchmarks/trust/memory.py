"""Memory: the curve of `binocle index` over a folder ten times as large as a real one.

    python -m benchmarks.trust.memory --folder DIR [--times 10] [--model NAME] [--seconds 1] [--most 1500]

Each copy of a file is varied: one word in ten is drawn from all words of the folder. Every second the resident memory
of the command and of the processes that it started is read, mapped files included. `model` is the tests' random encoder
unless given: then the memory of the encoder is not in the figures. After `--most` seconds the command is interrupted.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from binocle import Retriever
from binocle.commands.background.client import INTERRUPTED
from tests.conftest import build_model

from ..machine import save

_POINTS = 40  # of the curve


def write_copies(source: Path, target: Path, times: int) -> int:
    """Write varied copies of all files; return the number of files."""
    files = [file for file in sorted(source.rglob("*")) if file.is_file() and ".binocle" not in file.parts]
    texts = [file.read_text("utf-8", errors="replace") for file in files]
    words = sorted({word for text in texts for word in text.split()})
    chance = random.Random(0)
    for copy, (file, text) in itertools.product(range(times), zip(files, texts, strict=True)):
        place = target / str(copy) / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        lines = (line.split(" ") for line in text.split("\n"))
        varied = ([chance.choice(words) if chance.random() < 0.1 else word for word in line] for line in lines)
        place.write_text("\n".join(map(" ".join, varied)), "utf-8")
    return times * len(files)


def resident(process: int) -> list[float]:
    """The resident MB of a process and of all below it."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except FileNotFoundError:
        return []
    own = [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS")]
    return [*own, *(size for child in children for size in resident(int(child)))]


def watch(command: list[str], seconds: float, most: float) -> list[tuple[float, float]]:
    """Run a command; return its memory and that of all its processes together, in MB, at each moment.

    :param most: seconds until it is interrupted.
    """
    process, curve, end = subprocess.Popen(command, stdout=subprocess.DEVNULL), [], time.monotonic() + most
    while process.poll() is None:
        if time.monotonic() > end:
            process.send_signal(signal.SIGINT)
        if sizes := resident(process.pid):
            curve.append((sizes[0], sum(sizes)))
        time.sleep(seconds)
    if process.returncode not in (0, 1, INTERRUPTED):
        raise SystemExit(f"{command} ended with {process.returncode}")
    return curve


def summary(curve: list[tuple[float, float]]) -> dict[str, Any]:
    """The peaks, and the largest values of each of some equal parts of the run."""
    step = max(1, len(curve) // _POINTS)
    parts = [curve[start : start + step] for start in range(0, len(curve), step)]
    command, everything = (round(max(sizes)) for sizes in zip(*curve, strict=True))
    return {
        "peak_mb": {"command": command, "with_its_processes": everything},
        "peak_mb_of_each_part": [round(max(whole for _, whole in part)) for part in parts],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--model", help="an encoder's name or folder")
    parser.add_argument("--seconds", type=float, default=1.0, help="between two readings of the memory")
    parser.add_argument("--most", type=float, default=float("inf"), help="seconds until the command is interrupted")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        model = arguments.model or str(build_model(work / "model"))
        files = write_copies(arguments.folder, work / "documents", arguments.times)
        start = time.perf_counter()
        command = [sys.executable, "-m", "binocle.cli", "index", str(work / "documents"), "--model", model]
        result = summary(watch(command, arguments.seconds, arguments.most))
        seconds, status = round(time.perf_counter() - start), Retriever.open(work / "documents").status()
        counts = {"files": files, "indexed": status.documents["indexed"], "passages": status.chunks}
        save("memory", {**counts, "seconds": seconds, **result}, seed=0)


if __name__ == "__main__":
    main()
