"""A retriever of another process: the same methods, the same results and the same errors."""

from __future__ import annotations

import dataclasses
import hashlib
import socket
import threading
from datetime import date

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from binocle import F, InputError, NotFoundError, RemoteRetriever, Retriever, StoreError
from binocle.core.errors import DeadlineError, UntrustedError
from binocle.retriever.servers.http import access
from binocle.retriever.servers.http.work_queue import WorkQueue

QUERY = "cancel a task"


@pytest.fixture
def remote(retriever, serving):
    with serving(retriever) as address, RemoteRetriever(address) as remote:
        yield remote


def known(hits):
    """The hits without the times, and without the ids of rows."""

    def of_server(hit):
        copies = tuple(dataclasses.replace(copy, passage=-1) for copy in hit.copies)
        return dataclasses.replace(hit, document_row=-1, passage=-1, copies=copies)

    return [of_server(hit) for hit in hits], hits.answerable, hits.corrections, hits.total, hits.version


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
    ],
)
def test_search_is_that_of_the_index(remote, retriever, options):
    assert known(remote.search("bread", **options)) == known(retriever.search("bread", **options))
    for ours, theirs in zip(
        remote.search_many([QUERY, "bread"], **options), retriever.search_many([QUERY, "bread"], **options), strict=True
    ):
        assert known(ours) == known(theirs)


def test_similar_context_documents_and_facets_are_those_of_the_index(remote, retriever):
    path = "notes/guide/tasks.md"
    assert known(remote.similar(path, 5, 2)) == known(retriever.similar(path, 5, 2))
    ours, theirs = remote.context(QUERY, max_tokens=200), retriever.context(QUERY, max_tokens=200)
    assert (ours.text, ours.tokens, ours.messages) == (theirs.text, theirs.tokens, theirs.messages)
    assert [passage.citation for passage in ours.passages] == [passage.citation for passage in theirs.passages]
    assert ours.answerable == theirs.answerable
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
        assert remote.add([{"id": "a/b c?", "text": "The moon is full.", "metadata": {"x": 1}}]).indexed == 1
        assert remote.get("a/b c?").metadata == {"x": 1}
        remote.update(["a/b c?"], metadata={"x": 2})
        assert [record.id for record in remote.iterate(F.x == 2)] == ["a/b c?"]
        assert remote.delete(where="x=2").removed == 1
        assert [record.id for record in remote.iterate()] == ["first"]


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
        remote.search("bread", 0)
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
            RemoteRetriever(address)._ask("GET", "/metrics")
        with pytest.raises(InputError, match=r"open it by RemoteRetriever\('http"):
            Retriever.open(address)
    with pytest.raises(StoreError, match="no server answers at http://127"):
        remote.search("bread")


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
    for connection in remote._idle:
        connection.sock.shutdown(socket.SHUT_RDWR)  # as a server does after some idle seconds
    assert [hit.path for hit in remote.search("bread")] == expected
