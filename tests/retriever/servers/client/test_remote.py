"""A retriever of another process: the same methods, the same results and the same errors."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import pickle
import socket
import subprocess
import sys
import threading
import time
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from binocle import F, InputError, NotFoundError, RemoteRetriever, Retriever, StoreError, load_reranker
from binocle.core.errors import DeadlineError, UntrustedError
from binocle.retriever.servers.client import requests
from binocle.retriever.servers.http import access
from binocle.retriever.servers.http.work_queue import WorkQueue

QUERY = "cancel a task"


@pytest.fixture
def remote(retriever, serving):
    with serving(retriever) as address, RemoteRetriever(address) as remote:
        yield remote


def known(hits):
    """The hits without the times, and without the ids of rows; the vectors as lists, which compare."""

    def of_server(hit):
        copies = tuple(dataclasses.replace(copy, passage=-1) for copy in hit.copies)
        parts = tuple(map(of_server, hit.parts))
        return dataclasses.replace(hit, document_row=-1, passage=-1, copies=copies, parts=parts, vector=None)

    vectors = [None if hit.vector is None else (hit.vector.dtype, hit.vector.tolist()) for hit in hits]
    return [of_server(hit) for hit in hits], vectors, hits.answerable, hits.corrections, hits.total, hits.version


def test_symbols_copies_and_counts_are_those_of_the_index(tmp_path, tiny_model, serving):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "box.py").write_text("class Box:\n    def open(self):\n        return 'bread'\n")
    (folder / "bread.txt").write_text("the bread is in the house")
    retriever = Retriever.open(folder, model=tiny_model)
    retriever.sync()
    retriever.add([{"id": "copy", "text": "the bread is in the house"}])
    expected = retriever.search("bread")
    assert any(hit.symbols for hit in expected)
    assert any(copy.source != hit.source for hit in expected for copy in hit.copies)
    token = access.Token(hashlib.sha256(b"a-token-for-text-files").digest(), F.type == "txt")
    with serving(retriever) as address, RemoteRetriever(address) as remote:
        assert known(remote.search("bread")) == known(expected)
    with serving(retriever, access=access.Access((token,))) as address:
        hits = RemoteRetriever(address, token="a-token-for-text-files").search("bread")
        assert (hits.total, hits.version) == (retriever.search("bread", where="type=txt").total, 0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 2, "offset": 1, "mode": "lexical"},
        {"where": "type=csv"},
        {"where": F.type.is_in(["md", "txt"]) & ~(F.path == "README.md")},
        {"where": ["size>1", F.type == "csv"], "per_document": 1, "min_relevance": 0.0},
        {"k": 0},
        {"k": np.int64(3), "ids": (path for path in (Path("data/prices.csv"), "README.md"))},
        {"ids": [], "where": "type=csv"},
        {"group_by": "document"},
        {"mmr": 0.3, "k": 4},
        {"mmr": np.float32(0.5), "mode": "semantic", "offset": 1},
        {"collapse": False},
        {"with_vectors": True},
        {"deadline": 30},
    ],
)
def test_search_is_that_of_the_index(remote, retriever, options):
    options["ids"] = ids if (ids := options.get("ids")) is None else list(ids)
    assert known(remote.search("bread", **options)) == known(retriever.search("bread", **options))
    for ours, theirs in zip(
        remote.search_many([QUERY, "bread"], **options), retriever.search_many([QUERY, "bread"], **options), strict=True
    ):
        assert known(ours) == known(theirs)


def test_neighbours_are_joined_as_in_the_index(tmp_path, tiny_model, serving):
    retriever = Retriever.open(tmp_path / "added", model=tiny_model)
    words = "cat dog mat river moon tree house red blue".split()
    texts = ["\n\n".join(" ".join(words[(i * n) % 9] for i in range(150)) for n in range(9)) for _ in range(2)]
    retriever.add([{"id": f"{number}", "text": text} for number, text in enumerate(texts)])
    expected = retriever.search("river moon", join=True, offset=1)
    assert any(len(hit.parts) > 1 for hit in expected)
    with serving(retriever) as address, RemoteRetriever(address) as remote:
        assert known(remote.search("river moon", join=True, offset=1)) == known(expected)


def test_vectors_are_searched_as_by_the_index(remote, retriever):
    vector = retriever.encoder.encode(["bread"], kind="query")[0] * 3
    for query in (None, "tax"):
        assert known(remote.search(query, 3, vector=vector)) == known(retriever.search(query, 3, vector=vector))
    vectors = np.stack([vector, -vector])
    for texts in (None, ["tax", QUERY]):
        ours = remote.search_many(texts, 3, vectors=vectors)
        assert [*map(known, ours)] == [*map(known, retriever.search_many(texts, 3, vectors=vectors))]
    assert remote.search_many([]) == retriever.search_many([]) == []


@pytest.mark.parametrize("options", [{}, {"rerank_depth": 2, "rerank_seconds": 20.0}])
def test_reranker_of_the_server_answers_as_the_same_one_here(retriever, serving, make_reranker, tmp_path, options):
    reranker = load_reranker(make_reranker(tmp_path / "reranker"))
    with serving(retriever, reranker) as address, RemoteRetriever(address) as remote:
        ours = remote.search("bread", rerank=True, **options)
        theirs = retriever.search("bread", rerank=reranker, **options)
        assert known(ours) == known(theirs)
        assert ours[0].explanation["reranked"] == theirs[0].explanation["reranked"]
        packed = retriever.context("bread", rerank=reranker, **options)
        assert remote.context("bread", rerank=True, **options).text == packed.text


@pytest.mark.parametrize(
    "options",
    [
        {"mmr": 1.5},
        {"mmr": "0.5"},
        {"group_by": "folder"},
        {"group_by": "document", "per_document": 2},
        {"group_by": "document", "join": True},
        {"join": True, "collapse": False},
        {"join": "no"},
        {"rerank_depth": 9},
        {"deadline": 0},
        {"ids": "README.md"},
        {"ids": [5]},
        {"vector": [1.0, 2.0]},
        {"vector": [float("nan")] * 8},
        {"vector": "abc"},
        {"mode": "lexical", "vector": [1.0]},
        {"k": -1},
        {"offset": 0.5},
        {"query": None},
    ],
)
def test_wrong_options_are_refused_as_by_the_index(remote, retriever, options):
    options = {"query": "bread"} | options
    with pytest.raises(InputError):
        retriever.search(**options)
    with pytest.raises(InputError):
        remote.search(**options)


def test_own_deadline_of_a_request_is_kept(remote):
    with pytest.raises(DeadlineError, match=r"was not done after 1e-09 seconds, before the stage 'search'"):
        remote.search("bread", deadline=1e-9)
    with pytest.raises(DeadlineError):
        remote.context("bread", deadline=1e-9)
    with pytest.raises(DeadlineError):
        remote.search_many(["bread"], deadline=1e-9)


def test_similar_context_documents_and_facets_are_those_of_the_index(remote, retriever):
    path = "notes/guide/tasks.md"
    assert known(remote.similar(path, 5, 2)) == known(retriever.similar(path, 5, 2))
    ours, theirs = remote.context(QUERY, max_tokens=200), retriever.context(QUERY, max_tokens=200)
    assert (ours.text, ours.tokens, ours.messages) == (theirs.text, theirs.tokens, theirs.messages)
    assert ours.passages == tuple(dataclasses.replace(passage, hits=()) for passage in theirs.passages)
    assert ours.answerable == theirs.answerable
    options = {"k": 2, "siblings": 0, "deadline": 30.0, "order": "best_last", "mode": "lexical"}
    assert remote.context(QUERY, **options).text == retriever.context(QUERY, **options).text
    assert remote.get(path) == retriever.get(path)
    assert remote.text(path, lines=(1, 2)) == retriever.text(path, lines=(1, 2))
    assert list(remote.iterate("type=md")) == list(retriever.iterate("type=md"))
    assert list(remote.iterate(limit=2)) == list(retriever.iterate(limit=2))
    assert remote.facets(["type"], F.size > 1) == retriever.facets(["type"], F.size > 1)
    assert remote.status()["documents"]["indexed"] == retriever.status().documents["indexed"]


def test_documents_are_added_changed_and_removed(tmp_path, tiny_model, serving):
    retriever = Retriever.open(tmp_path / "added", model=tiny_model)
    retriever.add([{"id": "first", "text": "The ship sails."}])
    with serving(retriever, writable=True) as address:
        remote = RemoteRetriever(address, index="notes")
        assert remote.add([]).ids == retriever.add([]).ids == []
        assert remote.add([{"id": "a/b c?", "text": "The moon is full.", "metadata": {"x": 1}}]).indexed == 1
        assert remote.get("a/b c?").metadata == {"x": 1}
        remote.update(["a/b c?"], metadata={"x": 2})
        assert [record.id for record in remote.iterate(F.x == 2)] == ["a/b c?"]
        assert remote.delete(where="x=2").removed == 1
        assert [record.id for record in remote.iterate()] == ["first"]


@pytest.mark.parametrize("limit", [("MAX_DOCUMENTS", 2), ("MAX_BODY_OF_DOCUMENTS", 1_090)])
def test_many_documents_are_added_by_several_requests(limit, tmp_path, tiny_model, serving, monkeypatch):
    monkeypatch.setattr(requests, *limit)
    texts = ["The cat.", "The dog.", "", "The moon.", "The sea.", 7, "The sun."]
    documents = [{"id": str(number), "text": text} for number, text in enumerate(texts) if text != 7]
    there = Retriever.open(tmp_path / "there", model=tiny_model)
    here = Retriever.open(tmp_path / "here", model=tiny_model)
    there.add([{"id": "first", "text": "A ship."}])
    here.add([{"id": "first", "text": "A ship."}])
    with serving(there, writable=True) as address:
        remote = RemoteRetriever(address)
        calls = []
        monkeypatch.setattr(remote, "_write", lambda *args: calls.append(args) or RemoteRetriever._write(remote, *args))
        report, expected = remote.add(documents), here.add(documents)
        assert len(calls) == 3
        assert (report.indexed, report.skipped, report.ids) == (expected.indexed, expected.skipped, expected.ids)
        documents_again = [*documents, {"id": "first", "text": "x"}]
        report = remote.add(documents_again, if_exists="fail", on_error="skip")
        assert [failure.number for failure in report.failures] == list(range(len(documents) + 1))
        assert report.failures == here.add(documents_again, if_exists="fail", on_error="skip").failures
        new = [{"id": f"new {number}", "text": "A cat."} for number in range(2)]
        with pytest.raises(InputError, match=r"^of the documents after the first 2, which were sent before: .*exists"):
            remote.add([*new, *documents], if_exists="fail")
        assert "new 1" in remote


@pytest.mark.parametrize("where", [None, F.tenant == "t1"])
def test_documents_with_a_field_of_a_wrong_type_are_skipped(where, tmp_path, tiny_model, serving):
    retriever = Retriever.open(tmp_path / "added", model=tiny_model)
    retriever.add([{"id": "first", "text": "A ship."}])
    token = access.Token(hashlib.sha256(b"a-token-of-tenant-1").digest(), where, write=True)
    documents = [
        {"id": "number", "text": 5},
        {"id": "good", "text": "The moon."},
        {"id": 7, "text": "The sea."},
        {"id": "more", "text": "The sea.", "author": "me"},
        {"id": "last", "text": "The sun."},
    ]
    with serving(retriever, access=access.Access(tokens=(token,)), writable=True) as address:
        remote = RemoteRetriever(address, token="a-token-of-tenant-1")
        with pytest.raises(InputError, match=r"^documents\.0\.text: expected a text, but 5 came"):
            remote.add(documents)
        report = remote.add(documents, on_error="skip")
        assert (report.indexed, report.ids) == (2, ["good", "last"])
        assert [(failure.number, failure.id) for failure in report.failures] == [(0, "number"), (2, None), (3, "more")]
        assert [failure.reason for failure in report.failures] == [
            "document 0: text: expected a text, but 5 came",
            "document 2: id: expected a text, but 7 came",
            "document 3: author is unknown: leave it out",
        ]


def test_deleted_documents_are_erased_from_the_disk_of_the_server(tmp_path, tiny_model, serving):
    retriever = Retriever.open(tmp_path / "added", model=tiny_model)
    retriever.add([{"id": name, "text": f"The {name} sails.", "metadata": {"x": 1}} for name in ("zebra", "walrus")])

    def is_on_disk(word):
        return any(word.encode() in path.read_bytes() for path in (tmp_path / "added").rglob("*") if path.is_file())

    with serving(retriever, writable=True) as address, RemoteRetriever(address) as remote:
        assert is_on_disk("zebra") and is_on_disk("walrus")
        assert remote.delete("zebra", erase=True).removed == 1
        assert (is_on_disk("zebra"), is_on_disk("walrus")) == (False, True)
        assert remote.delete(where={"x": 1}, erase="later").removed == 1
        assert retriever.status().erase_by is not None
        with pytest.raises(InputError, match="erase"):
            remote.delete("walrus", erase="soon")


def test_documents_are_added_with_all_their_fields(tmp_path, tiny_model, serving):
    here, there = (Retriever.open(tmp_path / name, model=tiny_model) for name in ("here", "there"))
    vector = here.encoder.encode(["moon"])[0]
    documents = [
        {"id": "note", "text": "# Bread\n\nBake it.", "format": "markdown"},
        {"id": "picture", "embedding": vector},
        {"id": "fact", "metadata": {"x": None, "y": [1, 2.5]}},
        {"id": "titled", "text": "A ship.", "title": "Sea", "metadata": {"day": date(2020, 1, 2)}},
    ]
    there.add([{"id": "first", "text": "A ship."}])  # a server has an index
    here.add([{"id": "first", "text": "A ship."}])
    here.add(documents)
    with serving(there, writable=True) as address, RemoteRetriever(address) as remote:
        assert remote.add(documents).ids == ["note", "picture", "fact", "titled"]
        assert list(remote.iterate()) == list(here.iterate())
        assert known(remote.search("bread")) == known(here.search("bread"))
        with pytest.raises(InputError, match="has no text"):
            remote.add([{"id": "none"}])


def test_halves_of_characters_become_what_they_become_in_an_index(tmp_path, tiny_model, serving):
    here, there = (Retriever.open(tmp_path / name, model=tiny_model) for name in ("here", "there"))
    documents = [
        {"id": "a", "text": "The \ud83d\ude00 ship \ud800.", "title": "\udc80", "metadata": {"\udc80": ["\udc80"]}}
    ]
    for retriever in (here, there):
        retriever.add([{"id": "b\ufffd", "text": "The moon."}])
    here.add(documents)
    with serving(there, writable=True) as address, RemoteRetriever(address) as remote:
        remote.add(documents)
        assert list(remote.iterate()) == list(here.iterate())
        assert known(remote.search("ship \ud800")) == known(here.search("ship \ud800"))
        for wrong in (
            lambda: remote.add([{"id": "b\udc80", "text": "A cat."}]),
            lambda: remote.delete("b\udc80"),
            lambda: remote.add([{"text": "A cat.", "metadata": {0: "x"}}]),
        ):
            with pytest.raises(InputError, match="half of a character|the key 0: expected texts"):
                wrong()
        with pytest.raises(NotFoundError):
            remote.get("b\udc80")
        assert remote.delete(Path("b\ufffd")).removed == 1


def test_arguments_of_another_type_are_refused_and_change_nothing(tmp_path, tiny_model, serving):
    retriever = Retriever.open(tmp_path / "added", model=tiny_model)
    retriever.add([{"id": name, "text": "The ship sails."} for name in ("a", "b", "ab")])
    with serving(retriever, writable=True) as address:
        remote = RemoteRetriever(address)
        for call in (
            lambda index: index.update("ab", metadata={"flag": 1}),
            lambda index: index.update(["a"], metadata=5),
            lambda index: index.search_many("ab"),
            lambda index: index.get(5),
            lambda index: index.add(["abc"]),
            lambda index: index.add("abc"),
            lambda index: list(index.iterate(limit=-1)),
            lambda index: list(index.iterate(after=5)),
        ):
            for index in (remote, retriever):
                with pytest.raises(InputError):
                    call(index)
        assert all(not record.metadata for record in retriever.iterate())
        day = date(2020, 1, 2)
        report = remote.add([{"id": "d", "text": "The moon.", "metadata": {"day": day}}, {"id": "e", "text": ""}])
        assert (report.indexed, report.skipped) == (1, 1)
        assert remote.get("d").metadata == {"day": "2020-01-02"}
        assert remote.update(["d"], metadata={"day": day.replace(year=2021)}).indexed == 1
        assert retriever.get("d").metadata == {"day": "2021-01-02"}
    with pytest.raises(InputError, match="expected one such as"):
        RemoteRetriever("http://127.0.0.1:99999")


def test_an_answer_that_takes_the_server_too_long_is_late(retriever, serving, monkeypatch):
    release = threading.Event()
    with serving(retriever, queue=WorkQueue(2, 4, 0.3)) as address:
        monkeypatch.setattr(retriever, "search", lambda *_, **__: release.wait(20))
        with pytest.raises(DeadlineError, match="takes longer than 0.3 s"):
            RemoteRetriever(address).search("bread")
        release.set()


def test_errors_are_those_of_the_index(remote, retriever):
    for call in (
        lambda index: index.get("none"),
        lambda index: index.text("none"),
        lambda index: index.similar("none", 1),
    ):
        with pytest.raises(NotFoundError) as ours:
            call(remote)
        with pytest.raises(NotFoundError) as theirs:
            call(retriever)
        assert str(theirs.value).startswith(str(ours.value))
    with pytest.raises(InputError, match="k: "):
        remote.search("bread", -1)
    with pytest.raises(InputError):
        remote.search("bread", where="size>")
    with pytest.raises(UntrustedError, match="--write"):
        remote.delete("README.md")


def test_token_gives_its_part_and_none_is_refused(retriever, serving):
    token = access.Token(hashlib.sha256(b"a-token-for-csv-files").digest(), F.type == "csv")
    with serving(retriever, access=access.Access((token,))) as address:
        remote = RemoteRetriever(address, token="a-token-for-csv-files")
        assert {hit.path for hit in remote.search("bread")} == {"data/prices.csv"}
        with pytest.raises(UntrustedError, match="no token came"):
            RemoteRetriever(address).search("bread")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"token": "secret\nX: y"}, "token is a text of ASCII letters"),
        ({"token": "geheimnis-é"}, "token is a text of ASCII letters"),
        ({"token": b"secret"}, "token is a text of ASCII letters"),
        ({"index": 5}, "index is the name of an index of the server, not 5"),
        ({"seconds": 0}, "seconds is the time to wait for an answer, a number above 0, not 0"),
        ({"seconds": "1"}, "seconds is the time to wait for an answer, a number above 0, not '1'"),
        ({"url": "http://me:secret@127.0.0.1:1"}, "has no user, password"),
        ({"url": "http://127.0.0.1:1?secret=1"}, "has no user, password"),
    ],
)
def test_arguments_that_no_request_could_send_are_refused(options, says):
    with pytest.raises(InputError, match=says) as error:
        RemoteRetriever(**{"url": "http://127.0.0.1:1", **options})
    assert "secret" not in str(error.value) and "geheim" not in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda index: index.text("README.md", lines=(1, 2, 3)),
        lambda index: index.text("README.md", lines=5),
        lambda index: index.facets(5),
        lambda index: index.facets([""]),
    ],
)
def test_wrong_lines_and_keys_are_refused_as_by_the_index(call, remote, retriever):
    with pytest.raises(InputError) as ours:
        call(remote)
    with pytest.raises(InputError) as theirs:
        call(retriever)
    assert str(ours.value) == str(theirs.value)


def test_server_that_is_slow_gone_or_another_one_is_an_error_of_one_line(retriever, serving, monkeypatch):
    for url in ("", "localhost:8420", "ftp://localhost", 5):
        with pytest.raises(InputError, match="expected one such as http://127"):
            RemoteRetriever(url)
    release = threading.Event()
    with serving(retriever) as address:
        assert RemoteRetriever(address).search("bread")
        remote = RemoteRetriever(address, seconds=0.2)
        monkeypatch.setattr(retriever, "search", lambda *_, **__: release.wait(20))
        with pytest.raises(DeadlineError, match="no answer within 0.2 seconds"):
            remote.search("bread")
        release.set()
        with pytest.raises(StoreError, match="without JSON: expected the address of"):
            RemoteRetriever(address)._connections.ask(dict, "GET", "/metrics")
        with pytest.raises(InputError, match=r"open it by RemoteRetriever\('http"):
            Retriever.open(address)
    with pytest.raises(StoreError, match="no server answers at http://127"):
        remote.search("bread")


class OtherFields(BaseHTTPRequestHandler):
    """Another server, or one of another version."""

    fields = b"{}"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.fields)))
        self.end_headers()
        self.wfile.write(self.fields)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the names of the library

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize(
    "fields", [b"{}", b'{"hits": [{"rank": 1, "of_a_later_version": 2}], "documents": 5, "text": []}']
)
def test_an_answer_with_other_fields_is_an_error_of_one_line(fields, monkeypatch):
    monkeypatch.setattr(OtherFields, "fields", fields)
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherFields) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with RemoteRetriever(f"http://127.0.0.1:{server.server_port}") as remote:
            for call in (
                lambda: remote.search("bread"),
                lambda: remote.search_many(["bread"]),
                lambda: remote.similar("a.md", 1),
                lambda: remote.context("bread"),
                lambda: remote.get("a.md"),
                lambda: list(remote.iterate()),
                lambda: remote.facets("type"),
                lambda: remote.add([{"text": "bread"}]),
                lambda: remote.update(["a"], metadata={"b": 1}),
                lambda: remote.delete("a"),
            ):
                with pytest.raises(
                    StoreError, match="with other fields: expected the address of 'binocle serve', of ver"
                ):
                    call()
        server.shutdown()


class Stream(BaseHTTPRequestHandler):
    """An address that is no server of an index: it answers without end, or breaks off."""

    pause, parts, length, headers_sent = 0.0, 10_000, "", 0

    def do_GET(self) -> None:
        self.send_response(200)
        with contextlib.suppress(OSError):
            for number in range(self.headers_sent):
                self.send_header(f"X-{number}", "a")
                self.flush_headers()
                time.sleep(self.pause)
        if self.length:
            self.send_header("Content-Length", self.length)
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(self.parts):
                self.wfile.write(b" " * 1_000)
                time.sleep(self.pause)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize(
    ("stream", "seconds", "error", "says"),
    [
        ({"pause": 0.05}, 0.3, DeadlineError, "no answer within 0.3 seconds"),
        ({"pause": 0.05, "headers_sent": 40, "parts": 0}, 0.3, DeadlineError, "no answer within 0.3 seconds"),
        ({}, 20, StoreError, "answers with over 100,000 bytes: expected 'binocle serve' there"),
        ({"parts": 3, "length": "5000"}, 20, StoreError, "3000 bytes read, 2000 more expected"),
    ],
)
def test_an_answer_without_end_or_one_that_breaks_off_is_an_error_of_one_line(
    stream, seconds, error, says, monkeypatch
):
    monkeypatch.setattr("binocle.retriever.servers.client.connections.MAX_ANSWER", 100_000)
    for name, value in stream.items():
        monkeypatch.setattr(Stream, name, value)
    with ThreadingHTTPServer(("127.0.0.1", 0), Stream) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with RemoteRetriever(address, seconds=seconds) as remote, pytest.raises(error, match=says):
            remote.status()
        server.shutdown()


FORKS = """
import os, sys
from binocle import RemoteRetriever

remote = RemoteRetriever(sys.argv[1])
remote.status()
(connection,) = remote._connections.idle
child = os.fork()
remote.status()
is_mine = remote._connections.idle[0] is connection
if not child:
    os._exit(is_mine)
print(is_mine, os.waitpid(child, 0)[1])
"""


def test_a_forked_process_opens_connections_of_its_own(retriever, serving):
    with serving(retriever) as address:
        command = [sys.executable, "-W", "ignore", "-c", FORKS, address]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True 0\n"


def test_many_queries_are_several_requests(remote, retriever):
    def expected(texts, size, k=2, vectors=None, **options):
        """Batches as the requests have them: a cosine's last digit may depend on the queries beside it."""
        for start in range(0, len(vectors if texts is None else texts), size):
            batch = slice(start, start + size)
            some = [None if rows is None else rows[batch] for rows in (texts, vectors)]
            yield from map(known, retriever.search_many(some[0], k, vectors=some[1], **options))

    texts = [f"{('cat', 'cancel a task', 'bread', 'tax')[number % 4]} {number}" for number in range(101)]
    assert [*map(known, remote.search_many(texts, 2))] == [*expected(texts, 100)]
    assert [*map(known, remote.search_many(texts[:11], 900, offset=100))] == [
        *expected(texts[:11], 10, 900, offset=100)
    ]
    long = [f"{word} {chr(0x1F600) * 9_000}" for word in ["cat", "bread"] * 5]  # 1.1 MB of JSON
    assert [*map(known, remote.search_many(long, 2, mode="lexical"))] == [*expected(long, 9, mode="lexical")]
    vectors = retriever.encoder.encode(texts, kind="query")
    for given in (None, texts):
        assert [*map(known, remote.search_many(given, 2, vectors=vectors))] == [*expected(given, 100, vectors=vectors)]
    with pytest.raises(InputError, match="101 queries and 100 vectors"):
        remote.search_many(texts, vectors=vectors[:-1])
    with pytest.raises(DeadlineError, match="before the stage 'request'"):
        remote.search_many(texts, deadline=1e-9)


def test_several_documents_are_read_and_counted_as_in_the_index(remote, retriever):
    names = [record.id for record in retriever.iterate()]
    for index in (remote, retriever):
        assert index.get(names[::-1]) == [retriever.get(name) for name in names[::-1]]
        assert index.get(iter(names[:1])) == [retriever.get(names[0])]
        assert index.get([]) == []
        with pytest.raises(NotFoundError, match="'none' is not in the index"):
            index.get([names[0], "none"])
        with pytest.raises(InputError):
            index.get([5])
        assert (index.count(), len(index)) == (len(names), len(names))
        assert index.count("type=md") == len(list(retriever.iterate("type=md"))) > 0
        assert names[0] in index and Path(names[0]) in index and "none" not in index and 5 not in index
        with pytest.raises(InputError):
            index.count("size>")
        assert index
    for index in (remote, retriever):
        assert index.count(F.path == "none") == 0


def test_async_calls_are_those_without_an_a(tmp_path, tiny_model, serving):
    retriever = Retriever.open(tmp_path / "added", model=tiny_model)
    retriever.add([{"id": "first", "text": "The ship sails."}])
    with serving(retriever, writable=True) as address, RemoteRetriever(address) as remote:
        expected = [known(remote.search(word, 3)) for word in ("ship", "moon") * 8]

        async def calls():
            hits = await asyncio.gather(*(remote.asearch(word, 3, deadline=30) for word in ("ship", "moon") * 8))
            context = await remote.acontext("ship", max_tokens=50, min_relevance=0.0)
            added = await remote.aadd([{"id": "new", "text": "The moon.", "metadata": {"x": 1}}])
            updated = await remote.aupdate(["new"], metadata={"x": 2})
            removed = await remote.adelete("new")
            with pytest.raises(DeadlineError, match="before the stage 'request'"):
                await remote.asearch("ship", deadline=1e-9)
            with pytest.raises(DeadlineError, match="before the stage 'request'"):
                await remote.acontext("ship", deadline=1e-9)
            return hits, context.text, (added.indexed, updated.indexed, removed.removed)

        hits, text, counts = asyncio.run(calls())
        assert [*map(known, hits)] == expected
        assert text == remote.context("ship", max_tokens=50, min_relevance=0.0).text
        assert counts == (1, 1, 1)


def test_retrievers_of_langchain_and_llama_index_ask_a_server(tmp_path, tiny_model, serving):
    pytest.importorskip("langchain_core")
    pytest.importorskip("llama_index.core")
    from binocle.retriever.adapters import langchain, llama_index

    (tmp_path / "notes.md").write_text("# Sea\n\nThe ship sails.")
    here = Retriever.open(tmp_path, model=tiny_model)
    here.sync()
    here.add([{"id": name, "text": f"The {name} sails on the sea.", "metadata": {"x": 1}} for name in ("cat", "dog")])
    with serving(here) as address, RemoteRetriever(address) as there:
        for where in (None, {"x": 1}):
            ours, theirs = (langchain.BinocleRetriever(index=index, k=3, filter=where) for index in (there, here))
            assert ours.invoke("the sea") == theirs.invoke("the sea") != []
        assert asyncio.run(ours.ainvoke("the sea")) == theirs.invoke("the sea")
        nodes, expected = (
            llama_index.BinocleRetriever(index, similarity_top_k=3).retrieve("the sea") for index in (there, here)
        )
        assert [node.to_dict() for node in nodes] == [node.to_dict() for node in expected] != []
        with pytest.raises(InputError, match="rerank"):
            langchain.BinocleRetriever(index=there, rerank=True).invoke("the sea")


def test_a_write_is_sent_once():
    """A server that breaks the connection after a write: a second request would write again."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections

        def do_GET(self):
            received.append(self.command)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def do_POST(self):
            received.append(self.command)
            self.close_connection = True

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with RemoteRetriever(f"http://127.0.0.1:{server.server_address[1]}") as remote:
            remote.status()
            with pytest.raises(StoreError, match="no server answers"):
                remote.add([{"id": "a", "text": "A cat."}], if_exists="fail")
        server.shutdown()
        thread.join()
    assert received == ["GET", "POST"]


def test_it_travels_to_another_process(remote):
    remote.search("bread")
    copy = pickle.loads(pickle.dumps(remote))
    connections = copy._connections
    assert (copy.url, connections.headers) == (remote.url, remote._connections.headers)
    assert len(connections.idle) == 0
    assert known(copy.search("bread")) == known(remote.search("bread"))


def test_threads_share_it_and_a_closed_connection_is_opened_anew(remote, retriever):
    expected = [hit.path for hit in retriever.search("bread")]
    results = []
    threads = [
        threading.Thread(target=lambda: results.append([hit.path for hit in remote.search("bread")])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4
    remote.search("bread")
    for connection in remote._connections.idle:
        connection.sock.shutdown(socket.SHUT_RDWR)  # as a server does after some idle seconds
    assert [hit.path for hit in remote.search("bread")] == expected
