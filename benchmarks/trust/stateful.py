"""Random writes against a plain dict: two writers that are killed, and a reader meanwhile.

    python -m benchmarks.trust.stateful [--runs 100] [--steps 50] [--minutes 5] [--seed 0]

A run begins with an index of four files. In each step one writer or both add, replace, delete, sync, build an index,
switch the encoder, roll back or repair. One of four writers ends by SIGKILL before one of its calls that change a file,
or in the middle of a write; the call is drawn by chance. While they work, the reader compares the index with its
possible contents: the values of documents in flight may be old or new, of one commit all old or all new; others are
exact. After the step it must hold every acknowledged value. After each kill, and every few steps, the index is
verified, and searched against brute force. No file may hold an erased text.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any
from unittest import mock

from binocle import Retriever
from binocle.core.errors import BinocleError, LockedError, StoreError
from binocle.retriever.readers.pool import pool

from ..machine import save
from .crash_states import Calls, compile_library, content, make_models, text, wrong_answers

os.environ.setdefault("BINOCLE_TRUST", "all")  # it writes to copies of indexes

WRITERS = 2
WEIGHTS = {
    "add": 6,
    "add_many": 3,
    "delete": 3,
    "delete_later": 1,
    "sync": 4,
    "build_index": 1,
    "switch": 1,
    "rollback": 1,
    "repair": 1,
}
ATOMIC = ("add", "add_many", "delete", "delete_later")
SYNCS = ("sync", "repair")
REFUSALS = ("there is nothing to roll back", "no document")
MAX_CALLS = 150  # a writer is killed at one of its first calls, at most this one
MODELS = ("first", "other")


# The processes


def act(retriever: Retriever, name: str, values: dict[str, str | None], models: list[str], choice: int) -> None:
    if name in ("add", "add_many"):
        retriever.add([{"id": key, "text": value} for key, value in values.items()])
    elif name in ("delete", "delete_later"):
        retriever.delete(*values, erase=name == "delete")
    elif name == "build_index":
        retriever.build_index(*(("ivf_int8",) if choice else ("flat",)), **({"nlist": 2} if choice else {}))
    elif name == "switch":
        retriever.switch(models[choice])
    else:
        getattr(retriever, name)()


def write(retriever: Retriever, command: tuple[Any, ...]) -> tuple[str, str]:
    """Act, and wait for the other writer as long as it takes."""
    while True:
        try:
            act(retriever, *command)
        except LockedError:
            time.sleep(random.uniform(0.005, 0.03))
        except BinocleError as error:
            return ("refused" if str(error).startswith(REFUSALS) else "error"), f"{type(error).__name__}: {error}"
        except BaseException as error:  # noqa: BLE001 - a panic of Lance is no Exception
            return "crash", f"{type(error).__name__}: {error}"
        else:
            return "done", ""


def read(retriever: Retriever, *, whole: bool) -> tuple[dict[str, Any], list[str]]:
    """The content, and the faults of verification and of searches."""
    while True:
        try:
            now = content(retriever)
            break
        except StoreError as error:
            if "run it again" not in str(error):  # rows of one snapshot, which an erasure removes
                raise
    if not whole:
        return now, []
    faults = [str(fault) for fault in retriever.verify().faults if fault.kind != "document"]
    return now, [*faults, *wrong_answers(retriever, now)]


def serve(connection: Connection, index: str) -> None:
    """Take commands until an empty one."""
    retriever, calls = Retriever.open(index), Calls()
    with pool.ReaderPool(workers=1) as shared, mock.patch.object(pool, "ReaderPool", return_value=nullcontext(shared)):
        while True:
            command = connection.recv()
            if not command:
                return
            if command[0] == "read":
                try:
                    connection.send(read(retriever, whole=command[1]))
                except BaseException as error:  # noqa: BLE001 - to be reported
                    connection.send(({}, [f"{type(error).__name__}: {error}"]))
                continue
            kill_at, *action = command
            if kill_at:
                calls.trace(Path(index), None)
                calls.fail(kill_at, -1, rest=False)
            connection.send(write(retriever, tuple(action)))
            calls.stop()


class Process:
    """A reader or a writer."""

    def __init__(self, index: Path) -> None:
        context = multiprocessing.get_context("fork")  # this process has not touched Lance
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, str(index)), daemon=False)
        self._process.start()
        theirs.close()

    def ask(self, *command: Any) -> Any:
        self.connection.send(command)
        return self.connection.recv()

    def answer(self) -> tuple[str, str]:
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            return "killed", ""

    def stop(self) -> None:
        self.connection.send(())
        self._process.join()


# The model


@dataclass(slots=True)
class Write:
    """A write in flight."""

    writer: int
    name: str
    values: dict[str, str | None]  # document -> new text, None if it goes
    target: str = ""  # the fingerprint after a switch
    outcome: str = ""


@dataclass(slots=True)
class Tally:
    runs: int = 0
    steps: int = 0
    reads: int = 0
    checks: int = 0
    divergences: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)


class Run:
    """One index with its model."""

    def __init__(self, folder: Path, base: Path, fingerprints: list[str], seed: str, tally: Tally) -> None:
        shutil.rmtree(folder / "run", ignore_errors=True)
        shutil.copytree(base, folder / "run")
        self.folder, self.index = folder / "run", folder / "run" / ".binocle"
        self.models = [str(folder / name) for name in MODELS]
        self.fingerprints, self.seed, self.tally = fingerprints, seed, tally
        self.chance = random.Random(seed)
        self.documents: dict[str, str] = {file.name: file.read_text() for file in self.folder.glob("*.txt")}
        self.disk = dict(self.documents)  # the contents of the folder, and of the index after the next sync
        self.encoders = {fingerprints[0]}  # the possible ones
        self.erased: set[str] = set()
        self.version = 0
        self.doing = ""
        self.reader = Process(self.index)
        self.writers = [Process(self.index) for _ in range(WRITERS)]

    def close(self) -> None:
        for process in (self.reader, *self.writers):
            process.stop()

    def _text(self, key: str) -> str:
        self.version += 1
        return text(f"{key.replace('-', '').replace('.', '')}v{self.version}n", self.chance.choice((10, 30, 90)))

    def draw(self, writer: int) -> Write:
        """A write of a writer, to documents of its own."""
        name = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        keys = [f"w{writer}-a{number}" for number in range(6)]
        if name in ("add", "add_many"):
            names = self.chance.sample(keys, 3 if name == "add_many" else 1)
            return Write(writer, name, {key: self._text(key) for key in names})
        if name in ("delete", "delete_later"):
            present = [key for key in keys if key in self.documents]
            if not present:
                return self.draw(writer)
            return Write(writer, name, dict.fromkeys(self.chance.sample(present, min(len(present), 2))))
        if name == "sync":
            file = f"w{writer}-f{self.chance.randrange(3)}.txt"
            if file in self.disk and self.chance.random() < 0.3:
                del self.disk[file]
                (self.folder / file).unlink()
            else:
                self.disk[file] = self._text(file)
                (self.folder / file).write_text(self.disk[file])
        return Write(writer, name, {})

    def step(self, number: int) -> None:
        """Let one or both writers write, read meanwhile, and compare."""
        writes = [self.draw(writer) for writer in self.chance.sample(range(WRITERS), self.chance.choice((1, 1, 2)))]
        self.doing = " and ".join(write.name for write in writes)
        old = dict(self.documents)
        flight = {key: {old.get(key), value} for write in writes for key, value in write.values.items()}
        if any(write.name in SYNCS for write in writes):
            files = {key for key in {*self.disk, *old} if key.endswith(".txt")}
            flight |= {key: {old.get(key), self.disk.get(key)} for key in files}
        if any(write.name in ("switch", "rollback") for write in writes):
            self.encoders = set(self.fingerprints)
        for write in writes:
            choice = self.chance.randrange(2)
            write.target = self.fingerprints[choice] if write.name == "switch" else ""
            kill_at = self.chance.randint(1, MAX_CALLS) if self.chance.random() < 0.25 else 0
            self.writers[write.writer].connection.send((kill_at, write.name, write.values, self.models, choice))
        waiting = {self.writers[write.writer].connection: write for write in writes}
        while waiting:
            for connection in wait(list(waiting), timeout=0.02):
                write = waiting.pop(connection)  # type: ignore[call-overload]
                self._take(write)
            if waiting:
                self._read(flight, writes, whole=False)
        self._settle(writes, flight, number)

    def _take(self, write: Write) -> None:
        write.outcome, message = self.writers[write.writer].answer()
        self.tally.outcomes[f"{write.name} {write.outcome}"] += 1
        if write.outcome in ("error", "crash"):
            self._diverge(f"{write.name}: {message}")
        if write.outcome == "killed":
            self.writers[write.writer].connection.close()
            self.writers[write.writer] = Process(self.index)

    def _read(self, flight: dict[str, set[str | None]], writes: list[Write], *, whole: bool) -> dict[str, Any]:
        """Compare the index with its possible contents now."""
        now, faults = self.reader.ask("read", whole)
        self.tally.reads += 1
        self.tally.checks += whole
        for fault in faults:
            self._diverge(fault)
        fingerprint = now.pop("", None)
        now = {key: value for key, value in now.items() if not value.startswith("<")}
        if fingerprint not in self.encoders:
            self._diverge(f"encoder {fingerprint}")
        for key in {*now, *self.documents, *flight}:
            if now.get(key) not in flight.get(key, {self.documents.get(key)}):
                self._diverge(
                    f"{key} has {now.get(key, 'nothing')[:40]}, not {self.documents.get(key, 'nothing')[:40]}"
                )
        for write in writes:
            is_new = {now.get(key) == value for key, value in write.values.items()}
            if write.name in ATOMIC and len(is_new) > 1:
                self._diverge(f"{write.name} of {list(write.values)} is there in part")
        return {"": fingerprint, **now}

    def _settle(self, writes: list[Write], flight: dict[str, set[str | None]], number: int) -> None:
        """After all writers ended: acknowledged documents are there, erased ones are not."""
        for write in writes:
            if write.outcome == "done":
                flight |= {key: {value} for key, value in write.values.items()}
                if write.name in SYNCS:
                    files = {key for key in {*self.disk, *self.documents} if key.endswith(".txt")}
                    flight |= {key: {self.disk.get(key)} for key in files}
                if write.target and len(writes) == 1:
                    self.encoders = {write.target}
        now = self._read(flight, writes, whole=number % 5 == 4 or any(write.outcome == "killed" for write in writes))
        self.encoders = {now.pop("")}
        for write in writes:
            if write.name == "delete" and write.outcome == "done":
                self.erased |= {self.documents[key].split(".")[0] for key in write.values}
        self.documents = now
        if any(write.outcome == "done" and write.name == "delete" for write in writes):
            self._check_erased()
        self.tally.steps += 1

    def _check_erased(self) -> None:
        for file in self.index.rglob("*"):
            data = file.read_bytes() if file.is_file() else b""
            for token in self.erased:
                if token.encode() in data:
                    self._diverge(f"{token} was erased but is in {file.relative_to(self.index)}")

    def _diverge(self, message: str) -> None:
        self.tally.divergences.append(f"run {self.seed}, step {self.tally.steps}, {self.doing}: {message}"[:400])


def make_base(folder: Path) -> list[str]:
    """Write four files and their index, in a process of its own; return the fingerprints of the models."""
    base = folder / "base"
    base.mkdir()
    for number in range(4):
        (base / f"f{number}.txt").write_text(text(f"f{number}n"))
    code = (
        "import sys; from binocle import Retriever; from binocle.retriever.models.load import load_encoder\n"
        "Retriever.open(sys.argv[1], model=sys.argv[2]).sync()\n"
        "print(*(load_encoder(name).fingerprint for name in sys.argv[2:]))"
    )
    models = [str(folder / name) for name in MODELS]
    ran = subprocess.run([sys.executable, "-c", code, str(base), *models], capture_output=True, text=True, check=True)
    return ran.stdout.split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--print", action="store_true", help="print the results and do not save them")
    arguments = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    if "BINOCLE_TRACED" not in os.environ:
        with tempfile.TemporaryDirectory(dir=memory) as temporary:
            environment = {**os.environ, "LD_PRELOAD": str(compile_library(Path(temporary)))}
            environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BINOCLE_TRACED"), "1")
            environment |= {"LANCE_LOG": "error", "HF_HUB_OFFLINE": "1"}
            command = [sys.executable, "-m", "benchmarks.trust.stateful", *sys.argv[1:]]
            sys.exit(subprocess.run(command, env=environment, check=False).returncode)
    start, tally = time.monotonic(), Tally()
    with tempfile.TemporaryDirectory(dir=memory) as temporary:
        folder = Path(temporary).resolve()
        make_models(folder)
        fingerprints = make_base(folder)
        while tally.runs < arguments.runs and time.monotonic() - start < 60 * arguments.minutes:
            run = Run(folder, folder / "base", fingerprints, f"{arguments.seed}-{tally.runs}", tally)
            for number in range(arguments.steps):
                run.step(number)
            run.close()
            tally.runs += 1
    results = {
        "runs": tally.runs,
        "steps": tally.steps,
        "reads": tally.reads,
        "verified_and_searched": tally.checks,
        "killed": sum(count for name, count in tally.outcomes.items() if name.endswith("killed")),
        "divergences": len(tally.divergences),
        "examples": tally.divergences[:10],
        "writes": dict(sorted(tally.outcomes.items())),
        "minutes": round((time.monotonic() - start) / 60, 1),
    }
    if arguments.print:
        print(json.dumps(results, indent=1))
    else:
        save("stateful", results, seed=arguments.seed)


if __name__ == "__main__":
    main()
