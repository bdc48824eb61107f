"""Benchmark `binocle serve` under load, beside threads that search in their own process.

    python -m benchmarks.speed.server --index DIR [--clients 64] [--seconds 120] [--threads 3]

Clients in a process of their own ask for the ten best passages, one request after another. Meanwhile another process
edits a file and syncs the index with its folder, and five seconds later adds a document, and so on. The titles of
documents are the queries; an answer is wrong if it begins with another passage than the library's. Then twice as many
clients as the queue holds ask a server with a short queue, and after them one client alone. Rates are per second of the
clock and of the processor time of the searching process: the second does not depend on what else the machine does.
Clients cost processor time too, on the same processors.

The bars are quotients:
- the server's rate during writes by the threads' rate during the same writes and for as long (at least .9), and the
  same without writes
- the 99th percentile by the median (at most 4)
- the memory of the server at the end by its memory after a fifth of the time
- the seconds of a sync beside the clients by the seconds of a sync alone (at most 2): medians, and of the first sync,
  for which the writing process opens the index and reads all files
- the same of an added document, which waits for a processor for most of its time: it is much less work than a sync
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import numpy as np

from binocle.retriever.retriever import Retriever

from ..machine import save

SEED, K, QUERIES = 0, 10, 200
EVERY = 5.0  # seconds between two writes
SHORT_QUEUE = 16
SHORTER = 30.0  # seconds at most of the loads beside the main one
Writes = dict[str, list[list[float]]]  # kind of write -> its seconds by the clock, of processor time, and of waiting

WRITER = """
import sys, time, json
from pathlib import Path
from binocle.retriever.retriever import Retriever
index, folder, every = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
retriever, own = Retriever.open(index, trust=True), Path("/proc/thread-self/schedstat")
files = sorted(file for file in folder.rglob("*.md") if file.is_file())
def sync(number):
    with files[number % len(files)].open("a") as stream:
        stream.write(f"\\nZyx{number} qwv{number}.\\n")
    return retriever.sync
def add(number):
    return lambda: retriever.add([{"id": f"new-{number}", "text": f"Zyx{number} qwv{number}."}])
for number in range(10**6):
    for write in (sync, add):
        call = write(number)
        start, cpu, queued = time.perf_counter(), time.process_time(), int(own.read_text().split()[1])
        call()
        queued = (int(own.read_text().split()[1]) - queued) / 1e9
        print(json.dumps([write.__name__, time.perf_counter() - start, time.process_time() - cpu, queued]), flush=True)
        time.sleep(every)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--index", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--threads", type=int, default=(os.cpu_count() or 1) + 1)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(asyncio.run(ask(**json.loads(options.ask)))))
        return
    with tempfile.TemporaryDirectory() as folder:
        index, files = Path(folder) / "index", Path(folder) / "files"
        copy_with_files(options.index, index, files)
        expected = known_items(index)
        results = {"queries": len(expected), "clients": options.clients, "threads": options.threads}
        shorter = min(options.seconds / 4, SHORTER)
        results["in_process"] = in_process(index, expected, options.threads, shorter)
        with writing(index, files):
            results["in_process_while_writing"] = in_process(index, expected, options.threads, options.seconds)
        with Served(index, options.threads, options.clients * 2) as server:
            results["quiet"] = server.load(expected, options.clients, shorter)
            with writing(index, files) as writes:
                results["while_writing"] = server.load(expected, options.clients, options.seconds)
            under_load = write_times(writes)
            results["while_writing"] |= summaries(under_load)
        with Served(index, options.threads, SHORT_QUEUE) as server:
            clients = 2 * (options.threads + SHORT_QUEUE)
            results["overload"] = server.load(expected, clients, shorter)
            results["after_overload"] = server.load(expected, 1, 3)
        alone = writing_alone(index, files)
        results["alone"] = summaries(alone)
        results["bars"] = bars(results, under_load, alone)
    save("server", results, seed=SEED)


def copy_with_files(source: Path, index: Path, files: Path) -> None:
    """Copy an index and its folder; the copy is that of the folder's copy."""
    shutil.copytree(source, index)
    settings = json.loads((index / "settings.json").read_text("utf-8"))
    shutil.copytree(settings["folder"], files, ignore=shutil.ignore_patterns(".binocle"))
    (index / "settings.json").write_text(json.dumps(settings | {"folder": str(files.resolve())}), "utf-8")


def bars(results: dict[str, Any], beside: Writes, alone: Writes) -> dict[str, float]:
    """The cost of the load, as shares."""
    load, threads = results["while_writing"], results["in_process_while_writing"]
    _, begin, *_, end = load["memory_mib"]
    shares = {
        "rate": load["rate"] / threads["rate"],
        "rate_of_cpu": load["rate_of_cpu"] / threads["rate_of_cpu"],
        "rate_without_writes": results["quiet"]["rate"] / results["in_process"]["rate"],
        "p99_by_p50": load["milliseconds"]["p99"] / load["milliseconds"]["p50"],
        "memory": end / begin,
        "sync": median(beside, "sync") / median(alone, "sync"),
        "first_sync": beside["sync"][0][0] / alone["sync"][0][0],
        "add": median(beside, "add") / median(alone, "add"),
    }
    return {name: round(share, 2) for name, share in shares.items()}


def median(writes: Writes, kind: str) -> float:
    """The median seconds of all but the first one."""
    return float(np.median([seconds for seconds, *_ in writes[kind][1:]]))


def summaries(writes: Writes) -> dict[str, Any]:
    """Of each kind of write: the seconds by the clock, of processor time, and of the thread's wait for a processor."""
    names = ("seconds", "cpu_seconds", "queued_seconds")
    columns = {kind: zip(names, zip(*rows, strict=True), strict=True) for kind, rows in writes.items()}
    return {f"{kind}_{name}": summary(list(times)) for kind, rows in columns.items() for name, times in rows}


def known_items(index: Path) -> dict[str, str]:
    """Titles that find their own document first: query -> path."""
    retriever = Retriever.open(index, trust=True)
    rows = [row for row in retriever.documents() if row["title"] and row["chunks"]]
    random.Random(SEED).shuffle(rows)
    titles = [row["title"][:200] for row in rows[:QUERIES]]
    first = {title: hits[0] for title in titles if (hits := retriever.search(title, K))}
    return {title: hit.path for title, hit in first.items() if hit.title[:200] == title}


def in_process(index: Path, expected: dict[str, str], threads: int, seconds: float) -> dict[str, Any]:
    """Searches of this process, in as many threads as the server has."""
    retriever, until = Retriever.open(index, trust=True), 0.0
    retriever.warm_up()
    times: list[float] = []

    def search(number: int) -> None:
        choice = random.Random(number)
        while (start := time.perf_counter()) < until:
            query = choice.choice(list(expected))
            retriever.search(query, K)
            times.append(time.perf_counter() - start)

    workers = [threading.Thread(target=search, args=[number]) for number in range(threads)]
    start, cpu = time.perf_counter(), time.process_time()
    until = start + seconds
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    spent = time.process_time() - cpu
    return {"rate": len(times) / seconds, "rate_of_cpu": len(times) / spent, "milliseconds": summary(times, 1e3)}


class Served:
    """A server in a process of its own."""

    def __init__(self, index: Path, threads: int, queue: int) -> None:
        arguments = ["serve", "--index", index, "--port", "0", "--threads", threads, "--queue", queue]
        command = [sys.executable, "-m", "binocle.cli", *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "BINOCLE_TRUST": "all"}
        )
        assert self._process.stderr
        self._port = int(self._process.stderr.readline().rsplit(":", 1)[1].split("/")[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        code = self._process.wait(60)
        assert code == 0, code

    def load(self, expected: dict[str, str], clients: int, seconds: float) -> dict[str, Any]:
        """Ask from another process; the memory is that of the server before, and after each fifth."""
        arguments = {"port": self._port, "expected": expected, "clients": clients, "seconds": seconds}
        cpu, memory = self._cpu(), [round(self._memory())]
        command = [sys.executable, "-m", "benchmarks.speed.server", "--ask", json.dumps(arguments)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            for _ in range(5):
                time.sleep(seconds / 5)
                memory.append(round(self._memory()))
            assert client.stdout
            result = json.loads(client.stdout.read())
        result["rate_of_cpu"] = result["statuses"].get("200", 0) / (self._cpu() - cpu)
        result["memory_mib"] = memory
        return result

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _memory(self) -> float:
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * 4096 / 2**20


class writing:  # noqa: N801 - a context manager
    """Sync and add in another process meanwhile; the lines are the seconds of each write."""

    def __init__(self, index: Path, files: Path) -> None:
        self._arguments = [str(index), str(files), str(EVERY)]

    def __enter__(self) -> list[str]:
        self._lines: list[str] = []
        command = [sys.executable, "-c", WRITER, *self._arguments]
        env = {**os.environ, "BINOCLE_TRUST": "all"}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        assert self._process.stdout
        self._reader = threading.Thread(target=lambda: self._lines.extend(self._process.stdout or ()))
        self._reader.start()
        return self._lines

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()


def writing_alone(index: Path, files: Path) -> Writes:
    """The times of writes while nobody searches."""
    with writing(index, files) as lines:
        time.sleep(12 * EVERY)
    return write_times(lines)


def write_times(lines: list[str]) -> Writes:
    """The times of each write, by its kind."""
    rows = [json.loads(line) for line in lines]
    return {kind: [times for name, *times in rows if name == kind] for kind in ("sync", "add")}


async def ask(port: int, expected: dict[str, str], clients: int, seconds: float) -> dict[str, Any]:
    """Ask in many connections at once, each one request after another."""
    statuses: Counter[str] = Counter()
    times: list[float] = []
    faults = Counter(errors=0, wrong=0)
    until = time.perf_counter() + seconds

    async def client(number: int) -> None:
        choice, queries = random.Random(number), list(expected)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (start := time.perf_counter()) < until:
            query = choice.choice(queries)
            writer.write(f"GET /search?k={K}&q={quote(query)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            body = await reader.readexactly(int(head.split("content-length: ")[1].split("\r")[0]))
            status = head.split(" ")[1]
            statuses[status] += 1
            if status == "200":
                times.append(time.perf_counter() - start)
                faults["wrong"] += f'"path":{json.dumps(expected[query])}' not in body[:2_000].decode()
            elif status == "429":
                assert "retry-after" in head
                await asyncio.sleep(0.05)  # an impatient client
            else:
                faults["errors"] += 1
        writer.close()

    done = await asyncio.gather(*map(client, range(clients)), return_exceptions=True)
    faults["errors"] += sum(isinstance(result, BaseException) for result in done)
    return {"rate": len(times) / seconds, "statuses": statuses, **faults, "milliseconds": summary(times, 1e3)}


def summary(times: list[float], factor: float = 1.0) -> dict[str, float]:
    """Number, median, 99th percentile and maximum."""
    if not times:
        return {"count": 0}
    values = np.array(times) * factor
    low, high = np.percentile(values, [50, 99])
    return {"count": len(times), "p50": round(low, 3), "p99": round(high, 3), "max": round(values.max(), 3)}


if __name__ == "__main__":
    main()
