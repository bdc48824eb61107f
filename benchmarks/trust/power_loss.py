"""Cut the power of a disk at every flush of each operation, and check the index on the disk that is left.

    python -m benchmarks.trust.power_loss [--file-systems ext4 xfs btrfs] [--every 1] [--samples 1]

Linux, as root. The index lies on a real file system, on a loop device on `LoggedDisk`, which logs writes and flushes.
Its disk is made anew for each of these moments, mounted, and the index on it is checked as in `crash_states`:

- flush: the power goes at a flush, with all writes before it done
- reordered: between two flushes, with any of the writes since the first one done, drawn at random
- returned: right after the operation returned; all writes since the last flush are lost
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from binocle import Retriever

from ..machine import save
from .crash_states import OPERATIONS, Check, Content, content, make_models, shortcuts, write_documents
from .disk_log import Event, LoggedDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAIN = ("index", "edit", "sync", "add", "replace", "forget", "optimize", "build_index", "switch", "rollback", "repair")
FILE_SYSTEMS = {  # the command that makes one, and the size of its disk in MiB
    "ext4": (["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "nodiscard"], 64),
    "xfs": (["mkfs.xfs", "-q", "-f", "-K"], 320),
    "btrfs": (["mkfs.btrfs", "-q", "-f", "-K"], 256),
}
_FORMATTED = "the file system is made"


class Moment(NamedTuple):
    """The disk as a power cut leaves it."""

    kind: str
    operation: str
    label: str
    writes: list[Event]  # since the moment before, in place of `pending` of that one
    pending: list[Event]  # the part of the writes since the last flush that is done


class Regime:
    """A folder of documents and two encoders, as the operations expect them."""

    def __init__(self, folder: Path) -> None:
        self.documents, self.first, self.second_model = folder / "documents", folder / "first", folder / "other"

    def open(self, index: Path) -> Retriever:
        return Retriever.open(index, model=None if (index / "HEAD.json").exists() else self.first)


class DiskCheck(Check):
    """The check of one operation against its old and its new content."""

    def __init__(self, regime: Regime, name: str, old: Content, new: Content) -> None:
        self.regime, self.name, self.operation = regime, name, OPERATIONS[name]
        self.old, self.new, self.base = old, new, {"HEAD.json": b""} if old else {}


@contextmanager
def mounted(file: Path, folder: Path, *options: str) -> Iterator[Path]:
    """Mount a disk by a loop device."""
    folder.mkdir(exist_ok=True)
    device = _run("losetup", *options, "--find", "--show", file)
    try:
        _run("mount", "-o", "noatime", device, folder)
        try:
            yield folder
        finally:
            gc.collect()  # files that are still mapped
            _run("umount", "--lazy", folder)
    finally:
        _run("losetup", "--detach", device)


def _run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{command}: {done.stderr.strip()}")
    return done.stdout.strip()


def record(folder: Path, file_system: str) -> tuple[list[Event], list[Content]]:
    """Run the operations one after the other on a new disk; return its log, and the content after each."""
    command, size = FILE_SYSTEMS[file_system]
    disk = LoggedDisk(folder / "logged", size * 2**20)
    contents: list[Content] = []
    try:
        device = _run("losetup", "--direct-io=on", "--find", "--show", disk.file)
        _run(*command, device)
        _run("losetup", "--detach", device)
        disk.mark(_FORMATTED)
        with mounted(disk.file, folder / "recorded", "--direct-io=on") as mount:
            child = [sys.executable, "-m", "benchmarks.trust.power_loss", "--child", str(folder), str(mount)]
            with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdin
                assert process.stdout
                for name in CHAIN:
                    print(name, file=process.stdin, flush=True)
                    if process.stdout.readline() != "returned\n":
                        raise SystemExit(f"{name} failed")
                    disk.mark(name)
                    contents.append(json.loads(process.stdout.readline()))
                process.stdin.close()
    finally:
        disk.close()
    return disk.events, contents


def run_child(folder: Path, mount: Path) -> None:
    """Run the operations that the parent names."""
    regime, index = Regime(folder), mount / "index" / ".binocle"
    index.parent.mkdir()
    with shortcuts(4):
        for line in sys.stdin:
            name = line.strip()
            write_documents(regime.documents, name)
            retriever = regime.open(index)
            with redirect_stdout(sys.stderr):
                OPERATIONS[name].run(retriever, regime)  # type: ignore[arg-type]
            print("returned", flush=True)
            print(json.dumps(content(retriever)), flush=True)


def moments(events: list[Event], samples: int, chance: random.Random) -> Iterator[Moment]:
    """Every moment of the log; those before and after all operations have none."""
    waiting, operations = list[Event](), iter(CHAIN)
    operation, number = "", 0
    for event in events:
        if event.mark == _FORMATTED:
            operation = next(operations)
        elif event.mark:
            yield Moment("returned", event.mark, f"after {event.mark}", [], [])
            operation = next(operations, "")
        elif event.data is not None:
            waiting.append(event)
        elif waiting:
            number += 1
            for _ in range(samples if operation and len(waiting) > 1 else 0):
                applied = [write for write in waiting if chance.random() < 0.5]
                yield Moment("reordered", operation, f"before flush {number}", [], applied)
            yield Moment("flush", operation, f"flush {number}", waiting, [])
            waiting = []


class Replay:
    """The disk of each moment, made from the one before."""

    def __init__(self, folder: Path, size: int) -> None:
        self._images = (folder / f"image{number}" for number in itertools.count())
        self._durable = folder / "durable"
        with self._durable.open("wb") as stream:
            stream.truncate(size)

    def make(self, moment: Moment) -> Path:
        _write(self._durable, moment.writes)
        image = next(self._images)
        _run("cp", "--sparse=always", self._durable, image)
        _write(image, moment.pending)
        return image


def _write(file: Path, events: list[Event]) -> None:
    with file.open("r+b") as stream:
        for event in events:
            stream.seek(event.offset)
            stream.write(event.data or b"")


def check(folder: Path, file_system: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Record the operations on a file system, and check all moments."""
    start, regime = time.perf_counter(), Regime(folder)
    events, contents = record(folder, file_system)
    checks = {
        name: DiskCheck(regime, name, old, new)
        for name, old, new in zip(CHAIN, [{}, *contents], contents, strict=False)
    }
    replay = Replay(folder, FILE_SYSTEMS[file_system][1] * 2**20)
    states: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    by_operation: Counter[str] = Counter()
    bad, current = [], ""
    with shortcuts(4):
        for number, moment in enumerate(moments(events, arguments.samples, random.Random(0))):
            image = replay.make(moment)
            if not moment.operation:
                image.unlink()
                continue
            if moment.operation != current:
                current = moment.operation
                write_documents(regime.documents, current)
            thorough = moment.kind == "returned" or number % arguments.every == 0
            problems = _problems(image, folder / "mount", checks[current], moment, whole=thorough)
            states[moment.kind] += 1
            whole[moment.kind] += thorough
            by_operation[current] += 1
            image.unlink()
            bad += [(moment.label, current, problems)] if problems else []
            if problems:
                print(file_system, moment.label, current, problems, file=sys.stderr, flush=True)
    flushes = sum(event.data is None and not event.mark for event in events)
    return {
        "flushes": flushes,
        "states": dict(states),
        "verified_and_gone_on_from": dict(whole),
        "states_by_operation": dict(by_operation),
        "bad": len(bad),
        "examples": bad[:5],
        "seconds": round(time.perf_counter() - start),
    }


def _problems(image: Path, folder: Path, check: DiskCheck, moment: Moment, *, whole: bool) -> list[str]:
    index, done = folder / "index" / ".binocle", moment.kind == "returned"
    try:
        with mounted(image, folder):
            if not index.parent.exists():
                if check.old or done:
                    return ["the folder of the index is gone"]
                index.parent.mkdir()
            if not whole:
                return check.brief(index, done=done)
            return check.problems(index, done=done)
    except OSError as error:
        return [str(error)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file-systems", nargs="+", default=list(FILE_SYSTEMS), choices=list(FILE_SYSTEMS))
    parser.add_argument("--every", type=int, default=1, help="verify and go on from one of so many states")
    parser.add_argument("--samples", type=int, default=1, help="reordered states between two flushes")
    parser.add_argument("--print", action="store_true", help="print the results and do not save them")
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        run_child(*arguments.child)
        return
    results: dict[str, Any] = {}
    for name in arguments.file_systems:
        if not shutil.which(FILE_SYSTEMS[name][0][0]):
            results[name] = f"{FILE_SYSTEMS[name][0][0]} is not installed"
            continue
        with tempfile.TemporaryDirectory(dir="/dev/shm") as temporary:
            folder = Path(temporary).resolve()
            make_models(folder)
            os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
            with redirect_stdout(sys.stderr):
                results[name] = check(folder, name, arguments)
    if arguments.print:
        print(json.dumps(results, indent=1))
    else:
        save("power_loss", results)


if __name__ == "__main__":
    main()
