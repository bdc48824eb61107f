"""The time from the last key to the first result of the search page of `binocle serve`.

    python -m benchmarks.speed.page --index DIR [--queries 60] [--browser]

Titles of documents are typed word by word, as a person does who pauses after each word. The page waits after a key,
then sends one request, over a connection that stays open; this is that wait and the time of the whole answer. The
processor's seconds are the server's, for one request. With --browser the same words are typed into Chromium
(it needs selenium and chromedriver): from the last key until the results were drawn.
"""

from __future__ import annotations

import argparse
import http.client
import random
import re
import shutil
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
OBSERVE = """
const first = arguments[0];
addEventListener("input", () => { window.key = performance.now(); }, true);
new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => window.drawn?.(), 0)))
  .observe(document.querySelector("#hits"), {childList: true});
first();
"""
TYPE = """
const [query, done] = arguments, input = document.querySelector("#query");
window.drawn = () => { window.drawn = null; setTimeout(done, 300, performance.now() - window.key); };
input.value = query;
input.dispatchEvent(new InputEvent("input", {bubbles: true}));
"""
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
    parser.add_argument("--browser", action="store_true")
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
        try:
            drawn = in_browser(address[0], queries) if arguments.browser else []
        finally:
            server.terminate()
    results: dict[str, object] = {"requests": len(queries), "wait_ms": wait}
    results |= summary(wait + 1_000 * np.array(seconds))
    results["processor_ms"] = round(1_000 * used / len(queries), 1)
    if drawn:
        results["in_browser"] = {"queries": len(drawn)} | summary(np.array(drawn))
    save("page", results, seed=SEED)


def summary(milliseconds: np.ndarray) -> dict[str, float]:
    """Median, 95th and 99th percentile."""
    return {f"p{part}_ms": round(float(np.percentile(milliseconds, part)), 1) for part in (50, 95, 99)}


def in_browser(address: str, queries: list[str]) -> list[float]:
    """Type queries, and return the milliseconds from the last key of each until its results were drawn."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        browser.get(address)
        browser.set_script_timeout(30)
        browser.execute_async_script(OBSERVE)
        return [browser.execute_async_script(TYPE, query) for query in queries]
    finally:
        browser.quit()


if __name__ == "__main__":
    main()
