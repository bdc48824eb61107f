"""The time from the last key to the first result of the search page of `binocle serve`.

    python -m benchmarks.speed.page --index DIR [--queries 60]

Titles of documents are typed word by word, as a person does who pauses after each word. The page waits 110 ms after a
key, then sends one request, over a connection that stays open; this is that wait and the time of the whole answer. The
drawing of the results in a browser is not in it. The processor's seconds are those of the server for one request.
"""

from __future__ import annotations

import argparse
import http.client
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import numpy as np

from binocle.retriever.retriever import Retriever

from ..machine import save
from .background import used_by

SEED = 0
PAGE = Path(__file__).parents[2] / "retriever" / "servers" / "http" / "page.html"
SEARCH = "/search?q={}&k={}&mode=hybrid&highlights=true&explain=true"


def typed(index: Path, count: int) -> list[str]:
    """Beginnings of titles, one more word each."""
    retriever = Retriever.open(index, trust=True)
    titles = sorted({row["title"] for row in retriever.documents() if len(row["title"].split()) > 1})
    random.Random(SEED).shuffle(titles)
    words = [title.split()[:8] for title in titles[:count]]
    return [" ".join(row[:end]) for row in words for end in range(1, len(row) + 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=60)
    arguments = parser.parse_args()
    queries = typed(arguments.index, arguments.queries)
    page = PAGE.read_text("utf-8")
    wait, limit = (int(re.search(pattern, page)[1]) for pattern in (r"setTimeout\(search, (\d+)\)", r"LIMIT = (\d+)"))  # type: ignore[index]
    words = ["serve", "--index", str(arguments.index.resolve()), "--port", "0"]
    with subprocess.Popen([sys.executable, "-m", "binocle.cli", *words], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        address = re.search(r"http://([\w.]+):(\d+)/", server.stderr.readline())
        assert address
        connection = http.client.HTTPConnection(address[1], int(address[2]))
        seconds, used = [], used_by(server.pid)
        for query in queries:
            start = time.perf_counter()
            connection.request("GET", SEARCH.format(quote(query), limit))
            response = connection.getresponse()
            assert response.read()
            assert response.status == 200
            seconds.append(time.perf_counter() - start)
        used = used_by(server.pid) - used
        server.terminate()
    milliseconds = wait + 1_000 * np.array(seconds)
    p50, p95, p99 = (round(float(np.percentile(milliseconds, part)), 1) for part in (50, 95, 99))
    results = {"requests": len(queries), "wait_ms": wait, "p50_ms": p50, "p95_ms": p95, "p99_ms": p99}
    save("page", results | {"processor_ms": round(1_000 * used / len(queries), 1)}, seed=SEED)


if __name__ == "__main__":
    main()
