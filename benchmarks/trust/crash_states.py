"""Stop each operation of an index at every moment, fail each of its calls, check the index, and repeat the operation.

    python -m benchmarks.trust.crash_states [--operations sync forget] [--regimes kill power fail] [--every 1]
        [--every-rest 12]

One traced run of an operation gives every call that changes a file of the index, with the bytes written. From these
the states are made in memory: `kill` has every distinct state before a call and after half of a write; `power` has
the states after a power cut, which loses unsynced changes in several ways. `fail` runs the operation again
for each call, which fails once, or it and all later ones, with each of several errors.

Each state is opened, verified, and searched against brute force over its rows. Its content must be the old or the new
one, of several commits a mix by document. Then the operation runs again, must end with the new content, and is
verified and searched once more. After `forget` and `switch_erase` no erased byte may be left.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from binocle import Retriever
from binocle.core.errors import BinocleError, StoreError
from binocle.indexes.manifest import IndexMetadata
from binocle.retriever.indexing import indexer
from binocle.retriever.models import load
from binocle.retriever.readers.pool import pool
from binocle.retriever.store import writer as writers
from binocle.retriever.store.store import Store
from binocle.retriever.store.writer import open_writer

from ..machine import COMMIT, RESULTS, save
from .replay import Call, State, cut, killed, read_folder, read_log

os.environ.setdefault("BINOCLE_TRUST", "all")  # it writes to copies of indexes

SOURCE = Path(__file__).with_name("file_calls.c")
ERRORS = ("ENOSPC", "EIO", "EACCES", "EDQUOT", "EROFS")
WORDS = (
    "cat dog mat house tax income year file task cancel retry queue worker server client network request response "
    "search index vector text document folder function class model train water sea ship moon river mountain bread"
)
MTIME = 1_700_000_000


def text(name: str, words: int = 30) -> str:
    """A text with a word of its own."""
    chance = random.Random(name)
    return f"Secret{name}xyzzy. " + " ".join(chance.choice(WORDS.split()) for _ in range(words)) + "\n"


def write_documents(folder: Path, operation: str) -> None:
    """Nine files; for `edit` one is edited; for the others one is also removed, one moved, and two added."""
    files = {f"f{number}.txt": text(f"f{number}n") for number in range(9)}
    if operation != "index":
        files["f1.txt"] = text("f1m", 60)
    if operation not in ("index", "edit"):
        del files["f2.txt"]
        files["moved.txt"] = files.pop("f4.txt")
        files |= {f"new{number}.txt": text(f"new{number}n") for number in range(2)}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(content)
        os.utime(folder / name, (MTIME, MTIME))


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on the index that another one left."""

    after: str | None
    run: Callable[[Retriever, Regime], Any]
    batches: bool = False  # several commits: a mix of old and new documents may be left
    erased: tuple[str, ...] = ()  # words that it erases
    again: str = ""  # the start of the message with which a second run is refused, if it is


def added(names: Iterable[str], words: int = 30) -> list[dict[str, str]]:
    return [{"id": name, "text": text(f"{name}w{words}", words)} for name in names]


def amend(retriever: Retriever, _: Regime) -> None:
    """Publish the index again with other search parameters, as the tuning of an index does."""
    with open_writer(Store.open(retriever.location), lambda _: retriever.encoder) as writer:
        writer.index.amend(IndexMetadata({"nprobe": 2}, {"recall": 0.9}))


def publish(retriever: Retriever, regime: Regime) -> None:
    """Write an encoder into the index and switch to it, as `tune` does."""
    folder = retriever.path / "encoders" / "tuned-1" / "model"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        shutil.copytree(regime.second_model, folder)
    except OSError as error:  # of this copy, which no command makes
        raise StoreError(f"{folder} cannot be written") from error
    retriever.switch(folder)


OPERATIONS = {
    "index": Operation(None, lambda r, regime: r.sync(regime.documents), batches=True),
    "edit": Operation("index", lambda r, regime: r.sync(regime.documents), batches=True),
    "sync": Operation("index", lambda r, regime: r.sync(regime.documents), batches=True),
    "add": Operation("sync", lambda r, _: r.add(added(f"a{n}" for n in range(6))), batches=True),
    "replace": Operation("add", lambda r, _: r.add(added((f"a{n}" for n in range(3)), 50)), batches=True),
    "forget": Operation(
        "replace",
        lambda r, _: r.delete("f3.txt", "a1", erase=True),
        erased=("Secretf3n", "Secreta1w"),
        again="no document",
    ),
    "delete": Operation("replace", lambda r, _: r.delete("f5.txt", erase=False)),
    "optimize": Operation("replace", lambda r, _: r.optimize(0.5, kinds=("flat",))),
    "build_index": Operation("replace", lambda r, _: r.build_index("ivf_int8", nlist=2)),
    "amend": Operation("build_index", amend),
    "switch": Operation("replace", lambda r, regime: r.switch(regime.second_model)),
    "rollback": Operation("switch", lambda r, _: r.rollback(), again="there is nothing to roll back"),
    "switch_erase": Operation("replace", lambda r, regime: r.switch(regime.second_model, keep=False)),
    "publish": Operation("replace", publish),
    "repair": Operation("replace", lambda r, _: r.repair()),
}

Content = dict[str, Any]


@dataclass(slots=True)
class Result:
    """The findings of a regime in one operation."""

    states: int = 0
    checked: int = 0
    bad: list[tuple[str, list[str]]] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        values = {"states": self.states, "checked": self.checked, "bad": len(self.bad), "examples": self.bad[:5]}
        return values | ({"outcomes": dict(self.outcomes.most_common())} if self.outcomes else {})


class Calls:
    """The functions of `file_calls.c`, which is loaded into this process already."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.crash_fail.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_int]

    def trace(self, folder: Path, log: Path | None) -> None:
        self._library.crash_trace(os.fsencode(folder), os.fsencode(log) if log else None)

    def stop(self) -> None:
        self._library.crash_trace(None, None)

    def fail(self, at: int, error: int, *, rest: bool) -> None:
        self._library.crash_fail(at, error, rest)

    @property
    def fired(self) -> int:
        return self._library.crash_fired()


class Regime:
    """A folder of documents, two encoders, and the indexes that the operations leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.documents: Path = folder / "documents"
        self.first: Path = folder / "first"
        self.second_model: Path = folder / "other"
        self.calls = Calls()
        self._bases: dict[str, dict[str, bytes | None]] = {}
        self._number = 0

    def index_path(self) -> Path:
        """A new folder for an index."""
        shutil.rmtree(self.folder / "states", ignore_errors=True)
        self._number += 1
        return self.folder / "states" / str(self._number) / ".binocle"

    def open(self, index: Path) -> Retriever:
        model = None if (index / "HEAD.json").exists() else self.first
        return Retriever.open(index, model=model)

    def base(self, name: str | None) -> dict[str, bytes | None]:
        """The index before the operations that follow `name`."""
        if name is None:
            return {}
        if name not in self._bases:
            operation, index = OPERATIONS[name], self.index_path()
            before = self.base(operation.after)
            write_documents(self.documents, name)
            index = self.index_path()
            if before:
                State("", before).write(index)
            operation.run(self.open(index), self)
            self._bases[name] = read_folder(index)
        return self._bases[name]


class Check:
    """One operation: its base, its traced calls, its old and new content."""

    def __init__(self, regime: Regime, name: str) -> None:
        self.regime, self.name, self.operation = regime, name, OPERATIONS[name]
        self.base = regime.base(self.operation.after)
        write_documents(regime.documents, name)
        self.old = self._content_of(self.base)
        self.trace: list[Call] = self._trace()
        self.new = self._content_of(self.end)
        self.exhausted = False  # an attempt failed no call

    def _content_of(self, files: dict[str, bytes | None]) -> Content:
        if "HEAD.json" not in files:
            return {}
        index = self.regime.index_path()
        State("", files).write(index)
        return content(self.regime.open(index))

    def _trace(self) -> list[Call]:
        """Run the operation once.

        :raises SystemExit: when a replay of the calls differs from the folder: the tracer missed a call.
        """
        index, log = self.regime.index_path(), self.regime.folder / "log"
        if self.base:
            State("", self.base).write(index)
        retriever = self.regime.open(index)
        self.regime.calls.trace(index, log)
        self.operation.run(retriever, self.regime)
        self.regime.calls.stop()
        calls = read_log(log, index)
        self.end = read_folder(index)
        *_, last = killed(self.base, calls)
        if last.files != self.end:
            wrong = [path for path in {*last.files, *self.end} if last.files.get(path) != self.end.get(path)]
            raise SystemExit(f"{self.name}: the traced calls miss changes of {sorted(wrong)[:5]}")
        return calls

    def states(self, regime: str) -> Iterator[State]:
        return (killed if regime == "kill" else cut)(self.base, self.trace)

    def state(self, state: State, *, whole: bool) -> tuple[str, list[str]]:
        """The faults of one state.

        :param whole: also verify it and go on from it.
        """
        index, done = self.regime.index_path(), state.label.startswith("end")
        state.write(index)
        return "", self.problems(index, done=done) if whole else self.brief(index, done=done)

    def brief(self, index: Path, *, done: bool) -> list[str]:
        if not (index / "HEAD.json").exists():
            return ["HEAD.json is gone"] if self.base else []
        retriever = self.regime.open(index)
        try:
            now = content(retriever)
            return [*self._wrong_content(now, done=done), *wrong_answers(retriever, now, lexical=1)]
        except Exception as error:  # noqa: BLE001 - any is a fault
            return [f"{type(error).__name__}: {error}"[:400]]

    def problems(self, index: Path, *, done: bool) -> list[str]:
        """The faults of an index, of the operation's next run, and of the index after it."""
        problems = []
        try:
            if (index / "HEAD.json").exists():
                problems += self._faults(self.regime.open(index), done=done)
            elif self.base:
                return ["HEAD.json is gone"]
            retriever = self.regime.open(index)
            try:
                self.operation.run(retriever, self.regime)
            except BinocleError as error:
                if not self.operation.again or not str(error).startswith(self.operation.again):
                    raise
            problems += [f"after the next run: {fault}" for fault in self._faults(self.regime.open(index), done=True)]
            problems += [f"erased but left: {word}" for word in self._left(index)]
        except BaseException as error:  # a panic of Lance is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            problems.append(f"{type(error).__name__}: {error}"[:400])
        return problems

    def _faults(self, retriever: Retriever, *, done: bool) -> Iterator[str]:
        now = content(retriever)
        yield from self._wrong_content(now, done=done)
        for fault in retriever.verify().faults:
            if done or fault.kind != "document":  # a file that is not indexed yet differs
                yield f"verify: {fault}"
        yield from wrong_answers(retriever, now)

    def _wrong_content(self, now: Content, *, done: bool) -> Iterator[str]:
        if done and now != self.new:
            yield f"it is not the new content: {difference(now, self.new)}"
        elif not self._is_mix(now) if self.operation.batches else now not in (self.old, self.new):
            yield f"neither old nor new: {difference(now, self.old)}, {difference(now, self.new)}"

    def _is_mix(self, now: Content) -> bool:
        return all(now.get(path) in (self.old.get(path), self.new.get(path)) for path in {*now, *self.old, *self.new})

    def _left(self, index: Path) -> list[str]:
        words = [word.encode() for word in self.operation.erased]
        files = [(file, file.read_bytes()) for file in index.rglob("*") if words and file.is_file()]
        return [f"{word.decode()} in {file.name}" for file, data in files for word in words if word in data]

    def fail(self, at: int, error: str, *, rest: bool) -> tuple[str, list[str]] | None:
        """Run the operation with a failing call; None if it makes fewer calls."""
        index = self.regime.index_path()
        if self.base:
            State("", self.base).write(index)
        retriever, problems, outcome = self.regime.open(index), [], "done"
        self.regime.calls.trace(index, None)
        self.regime.calls.fail(at, getattr(errno, error), rest=rest)
        try:
            self.operation.run(retriever, self.regime)
        except BinocleError as refusal:
            outcome = type(refusal).__name__
            if "\n" in str(refusal):
                problems.append(f"more than one line: {refusal}")
        except BaseException as crash:  # noqa: BLE001 - a panic of Lance is no Exception
            outcome = type(crash).__name__
            problems.append(f"{outcome}: {crash}"[:400])
        fired = self.regime.calls.fired
        self.regime.calls.stop()
        if not fired:
            self.exhausted = True
            return None
        return outcome, [*problems, *self.problems(index, done=outcome == "done")]


def content(retriever: Retriever) -> Content:
    """The text of each document, or the reason why there is none; and the encoder."""
    table = retriever.snapshot().read("documents", ["path", "state", "reason", "text"])
    rows = {r["path"]: r["text"] if r["state"] == "indexed" else f"<{r['reason']}>" for r in table.to_pylist()}
    return {**rows, "": retriever.snapshot().head.encoder.fingerprint} if rows else {}


def difference(first: Content, second: Content) -> list[str]:
    return sorted(path for path in {*first, *second} if first.get(path) != second.get(path))[:4]


def wrong_answers(retriever: Retriever, now: Content, *, lexical: int = 4) -> Iterator[str]:
    """Searches that differ from brute force over the rows.

    :param lexical: the number of documents that full text must find.
    """
    table = retriever.snapshot().chunks.to_table(columns=["text", "vector"])
    if not len(table):
        return
    query = "the cat and the bread of the house"
    vectors = np.stack(table["vector"].to_numpy(zero_copy_only=False))
    best = np.argsort(-(vectors @ retriever.encoder.encode([query], kind="query")[0]), kind="stable")[:3]
    texts = table["text"].to_pylist()
    if {hit.text for hit in retriever.search(query, k=3, mode="semantic")} != {texts[position] for position in best}:
        yield "semantic search differs from brute force"
    for path, words in sorted(now.items())[:: max(1, len(now) // lexical)]:
        if words.startswith("Secret"):
            token = words.split(".")[0]
            if path not in {hit.path for hit in retriever.search(token, k=3, mode="lexical")}:
                yield f"full text does not find {token} in {path}"


def shortcuts(batch: int) -> ExitStack:
    """Load each encoder once, read files in one pool of workers, and commit this number of passages at a time."""
    stack = ExitStack()
    encoders: dict[str, Any] = {}
    original = load.load_encoder

    def cached(name: Any) -> Any:
        return (
            encoders.setdefault(str(name), None) or encoders.update({str(name): original(name)}) or encoders[str(name)]
        )

    shared = stack.enter_context(pool.ReaderPool(workers=1))
    for module in ("models.cache", "upkeep", "indexing.switch"):
        stack.enter_context(mock.patch(f"binocle.retriever.{module}.load_encoder", cached))
    stack.enter_context(mock.patch.object(pool, "ReaderPool", return_value=nullcontext(shared)))
    stack.enter_context(mock.patch.object(indexer, "_BATCH_CHUNKS", batch))
    stack.enter_context(mock.patch.object(writers, "_TIDY_COMMITS", 3))
    return stack


# One operation, in a process with the library


def run_child(arguments: argparse.Namespace, folder: Path) -> None:
    """Check one operation, and write a line for each attempt, so that a crash of this process names its own."""
    [name] = arguments.operations
    journal = folder / f"{name}.jsonl"
    done = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    with journal.open("a", buffering=1) as lines, shortcuts(arguments.batch):
        regime = Regime(folder)
        check = Check(regime, name)
        for kind, number, label, attempt in attempts(check, arguments):
            key = [kind, number, label]
            if ["begin", *key] in done:
                continue
            lines.write(json.dumps(["begin", *key]) + "\n")
            lines.write(json.dumps(["end", *key, attempt()]) + "\n")


Attempt = tuple[str, int, str, Callable[[], tuple[str, list[str]] | None]]


def attempts(check: Check, arguments: argparse.Namespace) -> Iterator[Attempt]:
    for kind in ("kill", "power"):
        if kind in arguments.regimes:
            states = list(check.states(kind))
            for number, state in enumerate(states):
                whole = number % arguments.every == 0 or state.label == "end"
                yield kind, number, state.label, functools.partial(check.state, state, whole=whole)
    if "fail" in arguments.regimes:
        yield from _failures(check, arguments.every, rest=False)
        yield from _failures(check, arguments.every_rest or arguments.every, rest=True)


def _failures(check: Check, every: int, *, rest: bool) -> Iterator[Attempt]:
    """Each call fails with one error after the other, once or for good, until a run has no more calls."""
    at = 1
    check.exhausted = False
    while not check.exhausted:
        error = ERRORS[at // every % len(ERRORS)]
        label = f"{error} {'from' if rest else 'at'} call {at}"
        yield "fail", at, label, functools.partial(check.fail, at, error, rest=rest)
        at += every


# All operations


def make_models(folder: Path) -> None:
    from tests.conftest import build_model

    for seed, name in enumerate(("first", "other")):
        build_model(folder / name, seed=seed)


def supervise(arguments: argparse.Namespace, folder: Path, library: Path, name: str) -> dict[str, Any]:
    """Run a child for one operation, again where it dies, and add its lines up."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.trust.crash_states",
        "--operations",
        name,
        "--every",
        str(arguments.every),
        "--every-rest",
        str(arguments.every_rest or arguments.every),
    ]
    command += ["--batch", str(arguments.batch)]
    command += ["--regimes", *arguments.regimes, "--child", str(folder)]
    environment = {**os.environ, "LD_PRELOAD": str(library), "LANCE_LOG": "error", "HF_HUB_OFFLINE": "1"}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    start, deaths = time.perf_counter(), []
    while True:
        child = subprocess.run(command, env=environment, check=False)
        lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        if child.returncode >= 0:
            break
        deaths.append(lines[-1][3])
    results = {kind: Result() for kind in arguments.regimes}
    for _, kind, _, label, answer in (line for line in lines if line[0] == "end"):
        if answer is not None:
            outcome, problems = answer
            results[kind].checked += 1
            results[kind].outcomes.update([outcome] if outcome else [])
            if problems:
                results[kind].bad.append((label, problems))
    for kind, result in results.items():
        result.states = sum(line[:2] == ["begin", kind] for line in lines)
    print(f"{name}: {time.perf_counter() - start:.0f} s", {k: (r.checked, len(r.bad)) for k, r in results.items()})
    return {
        "commit": COMMIT,
        "every": [arguments.every, arguments.every_rest or arguments.every],
        "exit": child.returncode,
        "process_ended_by": deaths,
        **{kind: result.as_dict() for kind, result in results.items()},
    }


def compile_library(folder: Path) -> Path:
    """Compile the library with the C compiler of the system.

    :raises SystemExit: when there is none.
    """
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        raise SystemExit("the calls of a process are traced on Linux with a C compiler: install gcc")
    library = folder / "file_calls.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
    return library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", nargs="+", default=list(OPERATIONS), choices=list(OPERATIONS))
    parser.add_argument("--regimes", nargs="+", default=["kill", "power", "fail"], choices=["kill", "power", "fail"])
    parser.add_argument(
        "--every",
        type=int,
        default=1,
        help="verify and go on from one of so many states, only search the others; fail one of so many calls",
    )
    parser.add_argument(
        "--every-rest", type=int, help="where one call fails and all later ones too; as --every if not given"
    )
    parser.add_argument("--batch", type=int, default=4, help="passages that are committed together")
    parser.add_argument("--print", action="store_true", help="print the results and do not save them")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        run_child(arguments, arguments.child)
        return
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of small folders
    with tempfile.TemporaryDirectory(dir=memory) as temporary:
        folder = Path(temporary).resolve()
        library = compile_library(folder)
        make_models(folder)
        with redirect_stdout(sys.stderr):
            results = {name: supervise(arguments, folder, library, name) for name in arguments.operations}
    if arguments.print:
        print(json.dumps(results))
    else:
        name = "-".join(["crash_states", *arguments.regimes])
        file = RESULTS / f"{name}.json"
        earlier = json.loads(file.read_text("utf-8"))["results"] if file.exists() else {}
        save(name, {**earlier, **results})  # of earlier runs


if __name__ == "__main__":
    main()
