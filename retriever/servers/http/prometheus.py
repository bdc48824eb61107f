"""Counts of requests in the text format of Prometheus, version 0.0.4."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Sample = tuple[str, dict[str, str], float]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


class Metrics:
    """Requests since the start, by path and status, and how long they took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._start = time.time()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._buckets: dict[str, list[int]] = {}

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count a finished request.

        :param path: as `openapi` has it, with the names of parameters in the place of their values.
        """
        with self._lock:
            self._requests[path, status] += 1
            self._seconds[path] += seconds  # type: ignore[assignment]
            self._buckets.setdefault(path, [0] * (len(_BUCKETS) + 1))[bisect_left(_BUCKETS, seconds)] += 1

    def write(self, gauges: Iterable[tuple[str, str, list[tuple[dict[str, str], float]]]]) -> str:
        """All metrics, and these gauges: name, help and samples."""
        with self._lock:
            requests = [({"path": path, "status": str(status)}, n) for (path, status), n in self._requests.items()]
            histogram = [sample for path in self._buckets for sample in self._histogram(path)]
        lines = _family("binocle_requests_total", "Requests that were answered.", "counter", requests)
        lines += ["# HELP binocle_request_seconds From arrival to answer.", "# TYPE binocle_request_seconds histogram"]
        lines += [_line(*sample) for sample in histogram]
        for name, text, samples in [*gauges, *self._process()]:
            lines += _family(name, text, "counter" if name.endswith("_total") else "gauge", samples)
        return "\n".join(lines) + "\n"

    def _histogram(self, path: str) -> Iterator[Sample]:
        total = 0
        for bound, count in zip((*map(str, _BUCKETS), "+Inf"), self._buckets[path], strict=True):
            total += count
            yield "binocle_request_seconds_bucket", {"path": path, "le": bound}, total
        yield "binocle_request_seconds_sum", {"path": path}, self._seconds[path]
        yield "binocle_request_seconds_count", {"path": path}, total

    def _process(self) -> Iterator[tuple[str, str, list[tuple[dict[str, str], float]]]]:
        yield "process_start_time_seconds", "Start of the server, since 1970.", [({}, self._start)]
        yield "process_cpu_seconds_total", "Processor time of the server.", [({}, time.process_time())]
        if memory := _resident_memory():
            yield "process_resident_memory_bytes", "Memory of the server.", [({}, memory)]


def _family(name: str, text: str, kind: str, samples: Iterable[tuple[dict[str, str], float]]) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *(_line(name, *sample) for sample in samples)]


def _line(name: str, labels: dict[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value:.12g}" if labels else f"{name} {value:.12g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _resident_memory() -> int:
    """The memory of this process in bytes; 0 where the system has no /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
