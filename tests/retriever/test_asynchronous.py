"""Async calls, threads and several queries at once give the answers of single calls."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import numpy as np
import pytest

from binocle import Hit, InputError, Retriever
from binocle.retriever import asynchronous
from binocle.retriever.search import request
from binocle.retriever.store.snapshot import Snapshot

QUERIES = ("cat", "cancel a task", "income tax", "bread in the oven")


def places(hits):
    return [(hit.path, hit.char_start) for hit in hits]


def test_async_calls_are_those_without_an_a(retriever):
    async def calls():
        hits = await retriever.asearch("cat", 3, mode="lexical")
        context = await retriever.acontext("cat", max_tokens=50)
        added = await retriever.aadd([{"id": "new", "text": "a walrus"}])
        removed = await retriever.adelete("new")
        return hits, context, added.indexed, removed.removed

    hits, context, *counts = asyncio.run(calls())
    assert places(hits) == places(retriever.search("cat", 3, mode="lexical"))
    assert context == retriever.context("cat", max_tokens=50)
    assert counts == [1, 1]


FORKS = """
import asyncio, os, sys
from binocle.retriever.asynchronous import CallPool

pool = CallPool()
asyncio.run(pool.run(os.getpid))
child = os.fork()
is_mine = asyncio.run(asyncio.wait_for(pool.run(os.getpid), 30)) == os.getpid()
if not child:
    os._exit(not is_mine)
print(is_mine, os.waitpid(child, 0)[1])
"""


def test_a_forked_process_has_threads_of_its_own():
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True 0\n"


def test_a_call_that_has_not_begun_can_be_cancelled():
    pool, begun = asynchronous.CallPool(1), []

    async def calls():
        release = threading.Event()
        first = asyncio.create_task(pool.run(release.wait, 60))
        second = asyncio.create_task(pool.run(begun.append, 2))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.sleep(0.05)
        release.set()
        assert await first
        with pytest.raises(asyncio.CancelledError):
            await second
        await pool.run(begun.append, 3)

    asyncio.run(calls())
    assert begun == [3]
    pool.close()


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_many_queries_have_the_hits_of_each(mode, retriever):
    texts = [*QUERIES, 'cat "mat"', "+dog cat", "cat"]
    together = retriever.search_many(texts, k=4, mode=mode)
    assert [places(hits) for hits in together] == [places(retriever.search(text, k=4, mode=mode)) for text in texts]
    assert retriever.search_many([]) == []
    for invalid in ("cat", 7):
        with pytest.raises(InputError, match="list of queries"):
            retriever.search_many(invalid)


def is_near(value, other):
    """Equal, but for the rounding of numbers: a processor may multiply one query otherwise than several together."""
    if isinstance(value, float):
        return value == pytest.approx(other, rel=1e-5, abs=1e-5)
    if isinstance(value, np.ndarray):
        return np.allclose(value, other, atol=1e-5)
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(is_near(value[key], other[key]) for key in value)
    if isinstance(value, (list, tuple)):
        return len(value) == len(other) and all(map(is_near, value, other))
    if isinstance(value, Hit):
        return all(is_near(getattr(value, one.name), getattr(other, one.name)) for one in fields(value) if one.compare)
    return value == other


MANY = [
    *QUERIES,
    'cat "mat"',
    "+dog cat",
    "cat",
    "cat",
    "the cat -dog",
    "bred in the oven",
    "Cat",
]


@pytest.mark.parametrize(
    "options",
    [
        {"k": 30},
        {"mode": "semantic", "with_vectors": True},
        {"group_by": "document", "offset": 1},
        {"collapse": False},
        {"mmr": 0.5, "min_relevance": 0.01},
        {"where": {"format": "text"}, "join": True},
    ],
)
def test_search_many_returns_the_same_hits_as_search(options, retriever):
    fresh = Retriever.open(retriever.path)  # it has read no row yet
    together = fresh.search_many(MANY, **options)
    alone = [retriever.search(query, **options) for query in MANY]
    for hits, own in zip(together, alone, strict=True):
        assert is_near(hits, own)
        assert is_near(vars(hits) | {"seconds": 0.0}, vars(own) | {"seconds": 0.0})
        for hit, other in zip(hits, own, strict=True):
            assert is_near(hit.explanation | {"milliseconds": 0}, other.explanation | {"milliseconds": 0})


def test_search_many_takes_the_ids_of_a_generator_for_every_query(retriever):
    paths = [row["path"] for row in retriever.documents()][:2]
    together = retriever.search_many(MANY, ids=(path for path in paths))
    assert is_near(together, [retriever.search(query, ids=paths) for query in MANY])
    assert any(together[1:])


@pytest.fixture
def reads(monkeypatch):
    """The names of the tables that searches read rows of, in order."""
    reads = []
    for name, method in [("passages", "_read_passages"), ("documents", "documents_by_id")]:
        monkeypatch.setattr(Snapshot, method, counted(reads, name, getattr(Snapshot, method)))
    return reads


def counted(reads, name, read):
    return lambda *arguments: (reads.append(name), read(*arguments))[1]


def test_many_queries_read_the_rows_of_their_hits_at_once(retriever, reads):
    fresh = Retriever.open(retriever.path)
    assert all(fresh.search_many(QUERIES[1:] * 5, k=3))
    assert reads == ["passages", "documents"]


def test_many_queries_with_exact_parts_read_their_rows_in_two_steps(retriever, reads):
    fresh = Retriever.open(retriever.path)
    assert all(fresh.search_many(['cat "mat"', '"dog"', "+bread oven", '"cancel" a task'], k=3))
    assert reads == ["passages", "passages", "documents"]


def test_many_queries_are_encoded_in_groups_after_their_corrections(retriever, monkeypatch):
    monkeypatch.setattr(request, "_ENCODED", 3)
    monkeypatch.setattr(request, "_TOGETHER", 2)
    encoded, encode = [], request.encode_finite

    def counted(encoder, texts, *, kind):
        encoded.append(texts)
        return encode(encoder, texts, kind=kind)

    monkeypatch.setattr(request, "encode_finite", counted)
    together = retriever.search_many(MANY)
    assert [len(texts) for texts in encoded] == [3, 4, 4]
    assert "bread in the oven" in encoded[-1]
    assert is_near(together, [retriever.search(query) for query in MANY])


def test_the_error_of_one_of_many_queries_ends_the_search(retriever, monkeypatch):
    monkeypatch.setattr(request, "_ENCODED", 1)
    with pytest.raises(InputError, match="no document has 'colour'"):
        retriever.search_many(QUERIES, where={"colour": "red"})


def test_a_hook_and_a_logger_observe_each_search(retriever, caplog):
    events = []
    retriever.on_search = events.append
    with caplog.at_level(logging.DEBUG, "binocle"):
        hits = retriever.search("cat", k=2)
        many = retriever.search_many(["cat", "the dog"], k=1, offset=1)
        retriever.context("a river")
    retriever.on_search = None
    assert [event.query for event in events] == ["cat", "cat", "the dog", "a river"]
    assert events[0].hits == hits
    assert [event.hits for event in events[1:3]] == many
    assert all(event.seconds > 0 for event in events)
    assert "search of 3 characters: 2 hits" in caplog.text


@pytest.mark.thorough
def test_threads_and_async_callers_find_what_is_there_while_a_writer_adds(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    words = [f"{first}{second}" for first in ("cat", "dog", "sea") for second in ("house", "mat", "king", "sun")]
    retriever.add([{"id": word, "text": f"the {word} sat"} for word in words])
    done, wrong = threading.Event(), []

    def check(word, hits):
        if word not in [hit.path for hit in hits]:
            wrong.append((word, places(hits)))

    def read(number):
        while not done.is_set():
            word = words[number % len(words)]
            check(word, retriever.search(word, k=20, mode=("hybrid", "lexical")[number % 2]))
            number += 5

    async def read_async():
        while not done.is_set():
            found = await asyncio.gather(*(retriever.asearch(word, 20) for word in words))
            for word, hits in zip(words, found, strict=True):
                check(word, hits)

    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read, number) for number in range(4)]
        readers.append(pool.submit(asyncio.run, read_async()))
        try:
            for number in range(6):
                retriever.add([{"id": f"new{number}", "text": f"number {number}"}])
                retriever.delete(f"new{number - 1}")
                time.sleep(0.01)
        finally:
            done.set()
        for reader in readers:
            reader.result()
    assert wrong == []
