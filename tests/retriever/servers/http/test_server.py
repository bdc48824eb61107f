"""The HTTP server: its answers, its refusals, who may ask, and how it holds under load."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
jsonschema = pytest.importorskip("jsonschema")
httpx2 = pytest.importorskip("httpx2")

from starlette.testclient import TestClient

from binocle import DeadlineError, F, InputError
from binocle.retriever.search.deadline import Deadline
from binocle.retriever.servers import listening
from binocle.retriever.servers.http import access, caller, server
from binocle.retriever.servers.http.access import Access, read_tokens
from binocle.retriever.servers.http.api import openai, operations, request_shapes
from binocle.retriever.servers.http.application import Server, application
from binocle.retriever.servers.http.caller import Served, ServedIndex
from binocle.retriever.servers.http.refusal import Refusal
from binocle.retriever.servers.http.work_queue import WorkQueue

QUERY = "cancel a task"
ROOT = Path(__file__).parents[4]


def client(retriever, *, indexes=(), reranker=None, writable=False, queue=None, **rules):
    """A client of a server without a socket; the first index is `notes`."""
    names = {"notes": retriever, **dict(indexes)}
    served = Served({name: ServedIndex(name, each) for name, each in names.items()}, reranker, writable)
    app = application(Server(served, Access(**rules), queue or WorkQueue(2)))
    return TestClient(app, base_url="http://localhost")


@pytest.fixture
def ask(retriever):
    with client(retriever) as session:
        yield session


def refused(answer, status):
    """The line of a refusal, which is problem details."""
    body = answer.json()
    assert answer.status_code == body["status"] == status, body
    assert answer.headers["content-type"] == "application/problem+json"
    assert "\n" not in body["detail"]
    return body["detail"]


# Answers


def test_a_search_answers_as_the_library_does(ask, retriever):
    hits = retriever.search(QUERY, k=3)
    expected = [(hit.rank, hit.path, hit.line_start, hit.text, hit.sha256, hit.relevance) for hit in hits]
    by_url = ask.get("/search", params={"q": QUERY, "k": 3})
    by_body = ask.post("/search", json={"query": QUERY, "k": 3})
    for answer in (by_url, by_body):
        body = answer.json()
        assert [
            (hit["rank"], hit["path"], hit["line_start"], hit["text"], hit["sha256"], hit["relevance"])
            for hit in body["hits"]
        ] == expected
        assert (body["query"], body["answerable"]) == (QUERY, hits.answerable)


def test_every_option_of_a_search_reaches_it(ask, retriever):
    asked = {"query": "bread", "k": 1, "offset": 1, "mode": "lexical", "per_document": 1, "min_relevance": 0.01}
    expected = retriever.search("bread", 1, offset=1, mode="lexical", per_document=1, min_relevance=0.01)
    (hit,) = ask.post("/search", json=asked | {"explain": True}).json()["hits"]
    assert (hit["path"], hit["rank"], hit["explanation"]["mode"]) == (expected[0].path, 2, "lexical")


@pytest.mark.parametrize(
    "where",
    [
        "type=csv",
        ["type=csv"],
        {"type": "eq", "key": "type", "value": "csv"},
        ["size>1", {"type": "eq", "key": "type", "value": "csv"}],
    ],
)
def test_a_filter_comes_in_any_of_its_forms(ask, where):
    paths = {hit["path"] for hit in ask.post("/search", json={"query": "bread", "where": where}).json()["hits"]}
    assert paths == {"data/prices.csv"}
    parts = where if isinstance(where, list) else [where]
    texts = [part if isinstance(part, str) else json.dumps(part) for part in parts]
    assert {hit["path"] for hit in ask.get("/search", params={"q": "bread", "where": texts}).json()["hits"]} == paths


def test_highlights_are_the_words_of_the_query_in_each_passage(ask):
    hits = ask.get("/search", params={"q": "bake the breads", "highlights": True}).json()["hits"]
    marked = {hit["text"][start:end] for hit in hits for start, end in hit["highlights"]}
    assert {"Bake", "bread"} <= marked
    assert "the" not in marked


def test_facets_count_documents_that_pass_the_filter(ask, retriever):
    facets = ask.get("/search", params={"q": "bread", "facets": ["type"]}).json()["facets"]
    expected = retriever.facets("type")["type"]
    assert [(row["value"], row["count"]) for row in facets["type"]["counts"]] == list(expected.counts)
    assert facets["type"]["distinct"] == expected.distinct


def test_several_queries_are_answered_at_once_and_alike(ask):
    queries = [QUERY, "bread", "income tax"]
    results = ask.post("/search/many", json={"queries": queries, "k": 2}).json()["results"]
    alone = [ask.post("/search", json={"query": query, "k": 2}).json() for query in queries]
    paths = [[(hit["path"], hit["line_start"]) for hit in result["hits"]] for result in results]
    assert paths == [[(hit["path"], hit["line_start"]) for hit in result["hits"]] for result in alone]


def test_similar_and_context_answer_as_the_library_does(ask, retriever):
    path = "notes/guide/tasks.md"
    similar = ask.get("/similar", params={"path": path, "line": 5, "k": 2}).json()["hits"]
    assert [hit["path"] for hit in similar] == [hit.path for hit in retriever.similar(path, 5, 2)]
    packed = retriever.context(QUERY, max_tokens=200)
    answer = ask.post("/context", json={"query": QUERY, "max_tokens": 200}).json()
    assert (answer["text"], answer["tokens"], answer["messages"]) == (packed.text, packed.tokens, packed.messages)
    assert [source["citation"] for source in answer["sources"]] == [passage.citation for passage in packed.passages]


def test_documents_come_in_pages_and_one_by_one(ask, retriever):
    ids, after = [], None
    while True:
        page = ask.get("/documents", params={"limit": 3, **({"after": after} if after else {})}).json()
        ids += [row["id"] for row in page["documents"]]
        after = page["next_after"]
        if after is None:
            break
    assert ids == [row["path"] for row in retriever.documents()]
    path = "notes/guide/tasks.md"
    assert ask.get(f"/documents/{path}").json()["text"] == retriever.text(path)
    assert ask.get(f"/documents/{path}", params={"lines": "3-5"}).json()["text"] == retriever.text(path, lines=(3, 5))


def test_a_page_of_documents_ends_after_texts_that_are_too_long_together(retriever, monkeypatch):
    monkeypatch.setattr(operations, "_PAGE_CHARACTERS", 100)
    retriever.add([{"id": f"zz-{number}", "text": "word " * 12} for number in range(3)])
    with client(retriever) as ask:
        page = ask.get("/documents", params={"after": "zz", "text": True}).json()
        assert ([row["id"] for row in page["documents"]], page["next_after"]) == (["zz-0", "zz-1"], "zz-1")
        rest = ask.get("/documents", params={"after": "zz-1", "text": True}).json()
        assert ([row["id"] for row in rest["documents"]], rest["next_after"]) == (["zz-2"], None)
        assert len(ask.get("/documents", params={"after": "zz"}).json()["documents"]) == 3


def test_status_says_what_the_index_holds(ask, retriever):
    status = ask.get("/status").json()
    measured = retriever.status()
    assert (status["passages"], status["folder"]) == (measured.chunks, str(retriever.folder))
    assert status["documents"]["indexed"] == measured.documents["indexed"]
    assert (status["index"], status["indexes"], status["writable"]) == ("notes", ["notes"], False)


def test_status_names_a_language_that_the_encoder_does_not_read_once_for_each_state(ask, monkeypatch):
    states = []
    monkeypatch.setattr(caller, "unread_language", lambda snapshot: states.append(snapshot) or "German")
    answers = [ask.get("/status").json()["unread_language"] for _ in range(3)]
    assert (answers, len(states)) == (["German"] * 3, 1)


def test_each_index_has_its_own_paths(retriever, tmp_path, tiny_model):
    from binocle import Retriever

    other = Retriever.open(tmp_path / "other", model=tiny_model)
    other.add([{"id": "ship", "text": "The ship sails the sea."}])
    with client(retriever, indexes={"other": other}) as ask:
        assert {hit["path"] for hit in ask.get("/indexes/other/search?q=ship").json()["hits"]} == {"ship"}
        assert "ship" not in {hit["path"] for hit in ask.get("/search?q=ship").json()["hits"]}
        assert "there is no index 'third' here: expected one of notes, other" in refused(
            ask.get("/indexes/third/status"), 404
        )


def test_options_in_the_url_of_a_body_are_refused(ask):
    for url, name in (("/search?k=1", "k"), ("/search?where=type%3Dcsv", "where"), ("/search?q=x", "query")):
        detail = refused(ask.post(url, json={"query": "bread"}), 400)
        assert detail == f"{name} stands in the URL: POST reads it from the body"
    detail = refused(ask.post("/search?mod=lexical", json={"query": "bread"}), 400)
    assert detail == "mod stands in the URL, and POST has no such field"
    assert ask.post("/v1/embeddings?api-version=1", json={"model": "tiny", "input": "bread"}).status_code == 200


def test_fields_that_a_write_does_not_read_are_refused(retriever):
    with client(retriever, writable=True) as ask:
        update = {"ids": ["README.md"], "metadata": {"x": 1}}
        for answer in (
            ask.patch("/documents?tenant=a", json=update),
            ask.request("DELETE", "/documents?tenant=a", json={"ids": ["README.md"]}),
            ask.delete("/documents/README.md?tenant=a"),
        ):
            assert "tenant" in refused(answer, 400)
        detail = refused(ask.request("DELETE", "/documents/README.md", json={"where": "type=csv"}), 400)
        assert detail == "DELETE /documents/{id} takes no body: the path names the document"
        assert ask.request("DELETE", "/documents/README.md", json={}).status_code == 200


def test_a_document_whose_id_has_two_lines_is_found_and_removed(retriever):
    with client(retriever, writable=True) as ask:
        retriever.add([{"id": "new\nline", "text": "A ship."}])
        assert ask.get("/documents/new%0Aline").json()["id"] == "new\nline"
        assert ask.delete("/documents/new%0Aline").json()["removed"] == 1
        assert "\n" not in refused(ask.get("/nowhere%0Aat/all"), 404)


# The version of an index


def test_an_answer_is_not_sent_again_while_the_index_is_the_same(retriever):
    with client(retriever, writable=True) as ask:
        first = ask.get("/search?q=ship")
        tag = {"If-None-Match": first.headers["etag"]}
        again = ask.get("/search?q=ship", headers=tag)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        retriever.add([{"id": "new", "text": "A ship of salt."}])  # also by another process
        changed = ask.get("/search?q=ship", headers=tag)
        assert changed.status_code == 200
        assert "new" in {hit["path"] for hit in changed.json()["hits"]}
        assert changed.headers["etag"] != first.headers["etag"]


def test_no_request_fails_while_the_index_changes(retriever):
    failures, stop = [], threading.Event()

    def search(ask):
        while not stop.is_set():
            answer = ask.get("/search", params={"q": "ship", "k": 50})
            if answer.status_code != 200 or not answer.json()["hits"]:
                failures.append(answer.text)

    with client(retriever) as ask:
        threads = [threading.Thread(target=search, args=[ask]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(5):
            retriever.add([{"id": f"new-{number}", "text": f"The ship number {number} sails."}])
        stop.set()
        for thread in threads:
            thread.join()
        found = {hit["path"] for hit in ask.get("/search?q=ship&k=50").json()["hits"]}
    assert failures == []
    assert {f"new-{number}" for number in range(5)} <= found


# Writing


def test_documents_are_added_changed_and_removed_if_the_server_writes(retriever):
    with client(retriever, writable=True) as ask:
        report = ask.post("/documents", json={"documents": [{"id": "a", "text": "A blue ship.", "metadata": {"n": 1}}]})
        assert report.json()["ids"] == ["a"]
        assert ask.patch("/documents", json={"ids": ["a"], "metadata": {"n": 2}}).json()["indexed"] == 1
        assert ask.get("/documents/a").json()["metadata"] == {"n": 2}
        assert ask.delete("/documents/a").json()["removed"] == 1
        assert "'a' is not in the index" in refused(ask.get("/documents/a"), 404)
        assert "'a' is not in the index" in refused(ask.delete("/documents/a"), 404)
        assert "nothing is chosen" in refused(ask.request("DELETE", "/documents", json={}), 400)
        ask.post("/documents", json={"documents": [{"id": name, "text": name, "metadata": {"n": 3}} for name in "bc"]})
        assert ask.request("DELETE", "/documents", json={"where": "n=3"}).json()["removed"] == 2


def test_a_server_only_reads_unless_it_was_asked_to_write(ask, retriever):
    before = retriever.count()
    for method, path in (
        ("POST", "/documents"),
        ("PATCH", "/documents"),
        ("DELETE", "/documents"),
        ("DELETE", "/documents/README.md"),
    ):
        assert "start it with --write" in refused(ask.request(method, path, json={}), 403)
    assert retriever.count() == before


# Refusals


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/search?q=", 400, "query: expected a text that is not empty, but '' came"),
        ("/search?q=%20", 400, "the query is empty"),
        ("/search?q=bread&k=-1", 400, "k: expected a number from 0, but '-1' came"),
        ("/search?q=bread&k=100000", 400, "k: expected a number up to 1,000, but '100000' came"),
        ("/search?q=bread&colour=red", 400, "colour is unknown: leave it out; /openapi.json lists the names"),
        ("/search?q=bread&ids[]=a.md", 400, "ids[] is unknown: leave it out; /openapi.json lists the names"),
        ("/search?q=bread&q=salt", 400, "query came twice"),
        (f"/search?q={'a' * 10_001}", 400, "query: expected a text of at most 10,000 characters, but 'aaa"),
        ("/search?q=bread&where=colour%3Dred", 400, "colour"),
        ("/search?q=bread&where=%7B", 400, "where begins with '{' but is not JSON"),
        ("/search?q=bread&rerank=true", 400, "this server has no reranker: start it with --rerank MODEL"),
        ("/search?q=bread&facets=nothing", 400, "nothing"),
        ("/documents/nope.md", 404, "'nope.md' is not in the index"),
        ("/documents/README.md?lines=5", 400, "lines: expected two numbers with a hyphen, such as 12-30, but '5' came"),
        ("/documents/README.md?lines=5-900", 400, "has lines 1 to"),
        ("/similar?path=README.md&line=900", 400, "has lines 1 to"),
        ("/nowhere", 404, "there is no /nowhere"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_line_that_names_it(ask, path, status, words):
    assert words in refused(ask.get(path), status)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "the body is not JSON: "),
        (b"\xff", 400, "the body is not JSON: "),
        (b"[" * 100_000, 400, "the body is not JSON: "),
        (b'{"query": "\\ud800"}', 400, "the body has a text with half of a character (a lone surrogate)"),
        (b'{"query": "bread", "k": "5"}', 400, "k: expected a whole number, but '5' came"),
        (b'{"query": 5}', 400, "query: expected a text, but 5 came"),
        (b'{"query": null}', 400, "there is no query: give a text, a vector, or both"),
        (b'{"query": "", "k": -1}', 400, "k: expected a number from 0, but -1 came (and 1 more)"),
        (b'{"k": 5}', 400, "there is no query: give a text, a vector, or both"),
        (b"[]", 400, "the body: expected an object, but [] came"),
        (b'{"query": "a", "mode": "x"}', 400, "mode: expected 'hybrid', 'semantic' or 'lexical', but 'x' came"),
        (b'{"query": "a", "rerank": 1}', 400, "rerank: expected true or false, but 1 came"),
        (b'{"query": "a", "facets": [""]}', 400, "facets.0: expected a text that is not empty, but '' came"),
        (b'{"query": "a", "where": 5}', 400, "where: expected a text, a list or an object, but 5 came"),
        (b'{"query": "a", "where": [5]}', 400, "where.0: expected a text or an object, but 5 came"),
        (b'{"query": "bread", "where": {"type": "never"}}', 400, "there is no filter of type 'never'"),
        (b'{"query": "' + b"a" * 2**20 + b'"}', 413, "the body is larger than 1,048,576 bytes"),
    ],
)  # fmt: skip
def test_a_body_that_cannot_be_used_gets_one_line(ask, body, status, words):
    assert words in refused(ask.post("/search", content=body), status)


def test_a_body_without_a_length_is_limited_too(ask):
    assert "larger than" in refused(ask.post("/search", content=(b" " * 2**16 for _ in range(20))), 413)


def test_another_method_is_told_which_ones_there_are(ask):
    answer = ask.put("/search")
    assert "/search does not take PUT: expected one of" in refused(answer, 405)
    assert {"GET", "POST"} <= set(answer.headers["allow"].split(", "))


def test_a_fault_of_the_server_shows_no_traceback(ask, retriever, monkeypatch, caplog):
    def fail(*_, **__):
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(type(retriever), "search", fail)
    answer = ask.get("/search?q=bread")
    assert refused(answer, 500) == "this request failed: the server's log says why"
    assert "/secret/path" in caplog.text


# Who may ask


def test_a_page_of_another_site_may_not_ask(ask):
    assert "pages of https://evil.example" in refused(
        ask.get("/status", headers={"Origin": "https://evil.example"}), 403
    ).replace("'", "")
    assert "may not ask" in refused(ask.get("/status", headers={"Origin": "null"}), 403)
    crossing = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    assert "pages of other sites" in refused(ask.get("/search?q=bread", headers=crossing), 403)
    assert ask.get("/status", headers={"Origin": "http://localhost"}).status_code == 200
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert ask.get("/status", headers=visit).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:80", 200), ("127.0.0.1:8420", 200), ("[::1]:8420", 200), ("192.168.1.5", 200), ("docs.example", 200)]
    + [(host, 421) for host in ("evil.example", "localhost.evil.example", "localhost@evil.example", "", "a:b:c", "localhost/x")],
)  # fmt: skip
def test_a_name_that_points_here_is_not_enough(retriever, host, status):
    with client(retriever, hosts=frozenset({"docs.example"})) as ask:
        assert ask.get("/status", headers={"Host": host}).status_code == status


def test_a_site_that_is_allowed_may_ask(retriever):
    site = "https://intranet.example"
    with client(retriever, origins=frozenset({site})) as ask:
        answer = ask.get("/search?q=bread", headers={"Origin": site})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, site)
        asked = {"Origin": site, "Access-Control-Request-Method": "POST"}
        assert ask.options("/search", headers=asked).status_code == 204
        assert "access-control-allow-origin" not in ask.get("/search?q=bread").headers


@pytest.fixture
def tokens(tmp_path, retriever):
    retriever.add([{"id": name, "text": f"The ship of {name}.", "metadata": {"tenant": name}} for name in ("t1", "t2")])
    file = tmp_path / "tokens.json"
    rows = [
        {"token": "whole-index-token-1", "write": True},
        {"token": "only-tenant-one-token", "where": "tenant=t1", "write": True},
        {"token": "only-reads-this-token", "where": {"type": "eq", "key": "tenant", "value": "t2"}},
        {"token": "another-index-token-4", "indexes": ["other"]},
    ]
    file.write_text(json.dumps({"tokens": rows}))
    file.chmod(0o600)
    return read_tokens(file)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_a_token_is_needed_where_there_are_tokens(retriever, tokens):
    with client(retriever, tokens=tokens) as ask:
        for headers in ({}, bearer("wrong"), {"Authorization": "Basic whole-index-token-1"}, bearer("")):
            answer = ask.get("/search?q=ship", headers=headers)
            assert "expected the header 'Authorization: Bearer TOKEN'" in refused(answer, 401)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert ask.get("/metrics", headers=headers).status_code == 401
        assert ask.get("/search?q=ship", headers=bearer("whole-index-token-1")).status_code == 200
        assert ask.get("/health").status_code == 200
        assert "reaches no index" in refused(ask.get("/status", headers=bearer("another-index-token-4")), 403)


def test_no_request_widens_the_scope_of_its_token(retriever, tokens):
    mine = bearer("only-tenant-one-token")
    with client(retriever, tokens=tokens, writable=True) as ask:
        posts = [
            ("/search", {"query": "ship", "k": 50}),
            ("/search", {"query": "ship", "k": 50, "where": "tenant=t2 or tenant=t1"}),
            ("/v1/vector_stores/notes/search", {"query": "ship"}),
            ("/context", {"query": "ship"}),
        ]
        for path, body in posts:
            text = ask.post(path, json=body, headers=mine).text
            assert "ship of t1" in text and "ship of t2" not in text and "sails the sea" not in text, path
        many = ask.post("/search/many", json={"queries": ["ship", "sea"], "k": 50}, headers=mine).json()
        assert {hit["path"] for result in many["results"] for hit in result["hits"]} == {"t1"}
        assert [row["id"] for row in ask.get("/documents", headers=mine).json()["documents"]] == ["t1"]
        for path in ("/documents/t2", "/documents/README.md", "/similar?path=t2&line=1"):
            assert "is not in the index" in refused(ask.get(path, headers=mine), 404)
        facets = ask.get("/search?q=ship&facets=tenant", headers=mine).json()["facets"]["tenant"]["counts"]
        assert facets == [{"value": "t1", "count": 1}]
        status = ask.get("/status", headers=mine).json()
        assert (status["documents"]["indexed"], status["passages"], status.get("folder")) == (1, 1, None)
        assert "unread_language" not in status
        assert ask.delete("/documents/t2", headers=mine).status_code == 404
        assert (
            ask.request("DELETE", "/documents", json={"ids": ["t2", "README.md"]}, headers=mine).json()["removed"] == 0
        )
        for body in ({"ids": ["t2"], "metadata": {"a": 1}}, {"ids": ["t1"], "metadata": {"tenant": "t2"}}):
            assert ask.patch("/documents", json=body, headers=mine).is_client_error
        changed = ask.patch("/documents", json={"where": "tenant in (t1, t2)", "metadata": {"a": 1}}, headers=mine)
        assert changed.json()["ids"] == ["t1"]
        outside = {"documents": [{"id": "x", "text": "x", "metadata": {"tenant": "t2"}}]}
        assert "outside of this scope" in refused(ask.post("/documents", json=outside, headers=mine), 400)
        reader = bearer("only-reads-this-token")
        assert "this token only reads" in refused(ask.delete("/documents/t2", headers=reader), 403)
        assert {hit["path"] for hit in ask.get("/search?q=ship", headers=reader).json()["hits"]} == {"t2"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"tokens": []}', "tokens: expected a list that is not empty"),
        ('{"tokens": [{"token": "short"}]}', "tokens.0.token: expected a text of at least 16 characters"),
        ('{"tokens": [{"token": "long-enough-token-1", "were": "a=b"}]}', "tokens.0.were is unknown: leave it out"),
        ('{"tokens": [{"token": "long-enough-token-1", "where": []}]}', "a filter has no condition"),
        (
            '{"tokens": [{"token": "long-enough-token-1 "}]}',
            "tokens.0.token: expected a text of ASCII characters without spaces",
        ),
        (
            '{"tokens": [{"token": "long-enough-töken-1"}]}',
            "tokens.0.token: expected a text of ASCII characters without spaces",
        ),
        (
            '{"tokens": [{"token": "long-enough-token-1", "where": "a=b"}, {"token": "long-enough-token-1"}]}',
            "two entries",
        ),
        ("nothing", "its content is not JSON"),
        ('{"tokens": [{"token": "long-enough-token-1", "where": "a"}]}', "tokens.json: cannot read the filter 'a'"),
    ],
)
def test_a_file_of_tokens_with_a_mistake_is_refused(tmp_path, content, words):
    file = tmp_path / "tokens.json"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(InputError, match=re.escape(words)) as caught:
        read_tokens(file)
    assert "long-enough" not in str(caught.value)


def test_a_file_of_tokens_that_others_may_read_is_refused(tmp_path):
    file = tmp_path / "tokens.json"
    file.write_text('{"tokens": [{"token": "long-enough-token-1"}]}')
    file.chmod(0o640)
    with pytest.raises(InputError, match="other users may read"):
        read_tokens(file)
    with pytest.raises(InputError, match="No such file"):
        read_tokens(tmp_path / "none")


# The queue


def test_a_request_beyond_the_queue_is_refused_at_once_and_the_next_is_answered():
    queue, free = WorkQueue(threads=1, waiting=1, deadline=30), threading.Event()

    async def load():
        at_work, waits = (asyncio.ensure_future(queue.run(free.wait)) for _ in range(2))
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as caught:
            await queue.run(free.wait)
        assert (caught.value.status, int(caught.value.headers["Retry-After"]) >= 1) == (429, True)
        free.set()
        assert await asyncio.gather(at_work, waits) == [True, True]
        assert await queue.run(lambda: "recovered") == "recovered"

    asyncio.run(load())
    assert (queue.refused, queue.pending) == (1, 0)
    queue.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")
def test_searching_threads_give_way_to_a_process_that_writes():
    queue = WorkQueue(threads=1)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    worker = asyncio.run(queue.run(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
    queue.close()
    assert (worker, os.getpriority(os.PRIO_PROCESS, 0)) == (min(own + 5, 19), own)


def test_a_request_past_its_deadline_is_refused_and_never_starts():
    queue, free, began = WorkQueue(threads=1, waiting=5, deadline=0.05), threading.Event(), []

    async def load():
        at_work = asyncio.ensure_future(queue.run(free.wait))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="takes longer than 0.05 s") as caught:
            await queue.run(lambda: began.append(1))
        assert caught.value.status == 503
        free.set()
        with pytest.raises(Refusal):
            await at_work

    asyncio.run(load())
    queue.close()
    assert began == [] and queue.late == 2


def test_a_client_that_goes_away_gives_its_place_free():
    queue, free, began = WorkQueue(threads=1, waiting=1, deadline=30), threading.Event(), []

    async def load():
        gone = asyncio.Event()
        at_work = asyncio.ensure_future(queue.run(free.wait))
        await asyncio.sleep(0)
        waits = asyncio.ensure_future(queue.run(lambda: began.append(1), gone.wait))
        await asyncio.sleep(0)
        gone.set()
        with pytest.raises(Refusal) as caught:
            await waits
        assert caught.value.status == 499
        assert queue.pending == 1
        free.set()
        await at_work

    asyncio.run(load())
    queue.close()
    assert began == []


def test_metrics_count_requests_in_the_format_of_prometheus(ask):
    ask.get("/search?q=bread")
    ask.get("/documents/nope")
    answer = ask.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'binocle_requests_total{path="/search",status="200"} 1' in lines
    assert 'binocle_requests_total{path="/documents/{id}",status="404"} 1' in lines
    assert 'binocle_request_seconds_count{path="/search"} 1' in lines
    sample = re.compile(r'[a-z_]+(\{([a-z]+="[^"\n]*",?)+\})? [0-9.e+-]+')
    assert all(sample.fullmatch(line) for line in lines if not line.startswith("#"))
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    names = {re.sub(r"_(bucket|sum|count)$", "", re.split(r"[{ ]", line)[0]) for line in lines if line[0] != "#"}
    assert names == typed


def test_metrics_name_only_the_indexes_that_a_token_reaches(retriever, tokens):
    with client(retriever, indexes={"other": retriever}, tokens=tokens) as ask:
        text = ask.get("/metrics", headers=bearer("another-index-token-4")).text
        assert ('index="other"' in text, 'index="notes"' in text) == (True, False)


# The shapes of others' clients


def test_embeddings_have_the_shape_of_openai(ask, tiny):
    texts = ["the cat", "the ship"]
    body = ask.post(
        "/v1/embeddings", json={"input": texts, "model": "any", "encoding_format": "float", "user": "me"}
    ).json()
    assert list(body) == ["object", "data", "model", "usage"]
    assert (body["object"], body["model"]) == ("list", tiny.name)
    assert [(row["object"], row["index"]) for row in body["data"]] == [("embedding", 0), ("embedding", 1)]
    np.testing.assert_allclose([row["embedding"] for row in body["data"]], tiny.encode(texts), atol=1e-5)
    tokens = sum(map(len, tiny.offsets(texts)))
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    packed = ask.post("/v1/embeddings", json={"input": "the cat", "model": "any", "encoding_format": "base64"}).json()
    vector = np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(vector, tiny.encode(["the cat"])[0], atol=1e-5)


def test_a_vector_store_has_the_shape_of_openai(ask, retriever):
    retriever.add([{"id": "a/ship", "text": "A ship of salt.", "metadata": {"tenant": "t1", "tags": ["x"], "n": 2}}])
    asked = {"query": "ship of salt", "filters": {"type": "eq", "key": "tenant", "value": "t1"}, "max_num_results": 3}
    body = ask.post("/v1/vector_stores/notes/search", json=asked).json()
    (hit,) = retriever.search("ship of salt", where=F.tenant == "t1")
    assert body == {
        "object": "vector_store.search_results.page",
        "search_query": ["ship of salt"],
        "data": [
            {
                "file_id": "a/ship",
                "filename": "ship",
                "score": hit.relevance,
                "attributes": {"tenant": "t1", "n": 2},
                "content": [{"type": "text", "text": "A ship of salt."}],
                "citation": {"line_start": 1, "line_end": 1, "page": None, "heading": []},
            }
        ],
        "has_more": False,
        "next_page": None,
    }
    error = ask.post("/v1/vector_stores/third/search", json=asked).json()["error"]
    assert error["type"] == "invalid_request_error"
    assert "there is no index 'third'" in error["message"]


def test_reranking_has_the_shape_of_cohere(retriever, make_reranker, tmp_path):
    from binocle.retriever.models.load import load_reranker

    reranker = load_reranker(make_reranker(tmp_path / "reranker"))
    documents = ["the cat", "the ship sails", "bread and salt"]
    asked = {"model": "any", "query": "ship", "documents": documents, "top_n": 2}
    with client(retriever, reranker=reranker) as ask:
        body = ask.post("/v2/rerank", json=asked).json()
        assert ask.post("/search", json={"query": "ship", "rerank": True}).json()["hits"][0]["scores"]["reranker"]
    assert set(body) == {"id", "results", "meta"}
    assert body["meta"]["api_version"] == {"version": "2"}
    logits = reranker.score("ship", documents)
    expected = np.argsort(-logits)[:2].tolist()
    assert [row["index"] for row in body["results"]] == expected
    np.testing.assert_allclose(
        [row["relevance_score"] for row in body["results"]], 1 / (1 + np.exp(-logits[expected])), atol=1e-4
    )
    with client(retriever) as ask:
        assert len(ask.post("/v2/rerank", json=asked).json()["results"]) == 2
        assert "query" in ask.post("/v2/rerank", json={"documents": ["a"]}).json()["message"]


# OpenAPI


def test_every_answer_has_the_schema_that_openapi_gives_it(retriever):
    with client(retriever, writable=True) as ask:
        document = ask.get("/openapi.json").json()
        asked = [
            ("get", "/search", {"params": {"q": "bread", "highlights": True, "facets": "type", "explain": True}}),
            ("post", "/search/many", {"json": {"queries": ["bread"]}}),
            ("get", "/similar", {"params": {"path": "README.md", "line": 3}}),
            ("get", "/context", {"params": {"q": "bread"}}),
            ("get", "/documents", {}),
            ("get", "/status", {}),
            ("post", "/documents", {"json": {"documents": [{"text": "New bread."}]}}),
            ("post", "/v1/embeddings", {"json": {"input": "bread"}}),
            ("post", "/v2/rerank", {"json": {"query": "bread", "documents": ["salt"]}}),
        ]
        for method, path, options in asked:
            answer = ask.request(method, path, **options)
            assert answer.status_code == 200, answer.text
            schema = document["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
            jsonschema.validate(answer.json(), {**schema, "components": document["components"]})
        problem = ask.get("/search?q=").json()
        jsonschema.validate(problem, document["components"]["schemas"]["Problem"])


def test_openapi_names_every_operation_once(ask):
    document = ask.get("/openapi.json").json()
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids)) > 20
    assert all(
        operation["summary"].endswith(".") for methods in document["paths"].values() for operation in methods.values()
    )
    assert {"/search", "/indexes/{index}/search", "/v2/rerank", "/health", "/metrics"} <= set(document["paths"])
    assert {"/files/{id}", "/indexes/{index}/files/{id}"} <= set(document["paths"])
    assert request_shapes.SearchInput.__name__ in document["components"]["schemas"]


# The command


def start(*arguments, **options):
    """A server of its own process, and its address, once it answers."""
    command = [sys.executable, "-W", "error", "-m", "binocle.cli", "serve", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
    line = process.stderr.readline()
    assert "serving" in line, line + process.stderr.read()
    return process, re.search(r" at (\S+) ", line)[1]


def test_the_command_serves_and_ends_when_told_with_running_requests_answered(retriever, folder):
    process, address = start(folder, "--port", "0")
    with process:
        try:
            if sys.platform == "linux":  # all threads but the one that answers give way to a process that writes
                threads = set(map(int, os.listdir(f"/proc/{process.pid}/task"))) - {process.pid}
                own = os.getpriority(os.PRIO_PROCESS, process.pid)
                assert threads
                assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads} == {min(own + 5, 19)}
            hits = httpx2.get(f"{address}search", params={"q": QUERY}).json()["hits"]
            assert hits[0]["path"] == retriever.search(QUERY)[0].path
            host, port = re.search(r"//(.+):(\d+)/", address).groups()
            with socket.create_connection((host, int(port))) as half:
                body = json.dumps({"query": QUERY}).encode()
                head = f"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
                half.sendall(head.encode())
                time.sleep(0.2)  # the server waits for the body
                process.send_signal(signal.SIGTERM)
                time.sleep(0.2)
                half.sendall(body)
                assert half.recv(100_000).startswith(b"HTTP/1.1 200")
            assert process.wait(30) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("head", "more"),
    [
        (b"GET /", b"a"),
        (b"GET / HTTP/1.1\r\nX-Long: ", b"a"),
        (b"GET / HTTP/1.1\r\n", b"X-One: more\r\n"),
        (b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-One: more\r\n"),
        (b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
    ],
)
def test_a_request_whose_head_never_ends_is_refused(head, more, serving, retriever):
    with serving(retriever) as address:
        host, port = re.search(r"//(.+):(\d+)", address).groups()
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(head)
            with pytest.raises(ConnectionError):  # the server has closed its end
                client.sendall(more * 8_000_000)
        assert httpx2.get(f"{address}/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    "sent", [b"", b"\r\n", b"GET /health HTTP/1.1\r\nHost: local", b"GET /health HTTP/1.1\r\n\r\nG"]
)
def test_a_client_that_sends_no_request_is_disconnected(sent, serving, retriever, monkeypatch):
    monkeypatch.setattr(server, "_PATIENCE", 0.2)
    with serving(retriever) as address, connected(address) as client:
        client.sendall(sent)
        assert is_closed(client)


def is_closed(client: socket.socket) -> bool:
    """Whether the server closes the connection before the client's own timeout."""
    with contextlib.suppress(ConnectionResetError):
        try:
            while client.recv(1_000):
                pass
        except TimeoutError:
            return False
    return True


def test_a_client_that_reads_no_answer_is_disconnected(serving, retriever, monkeypatch, caplog):
    monkeypatch.setattr(server, "_PATIENCE", 0.2)
    with serving(retriever) as address, connected(address) as client:
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400)
        with contextlib.suppress(ConnectionError):
            for _ in range(500):
                client.sendall(b"\r\n")
                time.sleep(0.02)
            pytest.fail("the server kept the connection")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_client_that_waits_for_its_answer_is_not_disconnected(serving, retriever, monkeypatch):
    monkeypatch.setattr(server, "_PATIENCE", 0.1)
    search = type(retriever).search

    def slow(self, *arguments, **options):
        time.sleep(0.5)
        return search(self, *arguments, **options)

    monkeypatch.setattr(type(retriever), "search", slow)
    with serving(retriever) as address:
        assert httpx2.get(f"{address}/search", params={"q": QUERY}).json()["hits"]


def connected(address):
    host, port = re.search(r"//(.+):(\d+)", address).groups()
    return socket.create_connection((host, int(port)), timeout=30)


def test_a_head_and_a_body_in_many_pieces_are_read(serving, retriever):
    body = json.dumps({"query": "sea " * 2_000}).encode()
    head = f"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with serving(retriever) as address:
        host, port = re.search(r"//(.+):(\d+)", address).groups()
        with socket.create_connection((host, int(port)), timeout=30) as client:
            for _ in range(12):  # together longer than a head may be
                for start in range(0, len(head), 10):
                    client.sendall(head[start : start + 10])
                client.sendall(body)
                assert client.recv(17) == b"HTTP/1.1 200 OK\r\n"
                answer = b""
                while not answer.rstrip().endswith(b"}"):
                    answer += client.recv(100_000)


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_a_request_that_offers_another_protocol_is_answered_whole_by_this_one(protocol, serving, retriever):
    body = json.dumps({"query": QUERY})
    lines = ["POST /search HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", "Connection: Upgrade"]
    request = "\r\n".join([*lines, f"Upgrade: {protocol}", "", body]).encode()
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with serving(retriever) as address, connected(address) as client:
        client.sendall(request + request[:-9])
        client.sendall(request[-9:] + last)
        answers = b"".join(iter(lambda: client.recv(100_000), b""))
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    assert answers.count(retriever.search(QUERY)[0].path.encode()) >= 2
    assert answers.endswith(b'{"status":"ok"}')


def test_a_request_for_a_tunnel_is_refused(serving, retriever):
    with serving(retriever) as address, connected(address) as client:
        client.sendall(b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(100_000).startswith(b"HTTP/1.1 400")


def test_a_unix_socket_is_for_its_user_alone_and_is_gone_afterwards(tmp_path):
    path = tmp_path / "socket"
    with listening.listen_at(path):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(InputError, match="another server does"), listening.listen_at(path):
            pass
    assert not path.exists()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    with listening.listen_at(path):
        pass
    path.write_text("a file")
    with pytest.raises(InputError, match="it is a file"), listening.listen_at(path):
        pass
    assert path.read_text() == "a file"
    with pytest.raises(InputError, match="it is a folder, and no socket"), listening.listen_at(tmp_path):
        pass


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "other machines may reach 0.0.0.0: give --tokens FILE"),
        (["--tokens", "none.json"], "none.json: No such file"),
        (["--tokens", "wrong.json"], "a token is for the index 'nosuch': expected some of folder"),
        (["--allow-origin", "intranet"], "'intranet' is not the origin of a page"),
        (["--allow-host", "a/b"], "'a/b' is not the name of a host"),
        (["--host", "no.such.host.invalid", "--tokens", "tokens.json"], "cannot listen at no.such.host.invalid"),
        (["--host", "::1", "--socket", "s"], "--host does not go with --socket"),
        (["--socket", "s"], "--port does not go with --socket"),
        (["--host", "x" * 64, "--tokens", "tokens.json"], "it is not the name of a host"),
    ],
)  # fmt: skip
def test_a_server_that_cannot_start_says_why_in_one_line(folder, retriever, monkeypatch, arguments, words):
    from click.testing import CliRunner

    from binocle.cli import cli

    monkeypatch.chdir(folder)
    with open("tokens.json", "w") as file:
        file.write('{"tokens": [{"token": "long-enough-token-1"}]}')
    with open("wrong.json", "w") as file:
        file.write('{"tokens": [{"token": "long-enough-token-1", "indexes": ["folder", "nosuch"]}]}')
    for name in ("tokens.json", "wrong.json"):
        os.chmod(name, 0o600)
    result = CliRunner().invoke(cli, ["serve", str(folder), "--port", "0", *arguments])
    assert isinstance(result.exception, InputError | SystemExit)  # the latter for wrong options
    says = result.output.splitlines()[-1] if result.exit_code == 2 else str(result.exception)
    assert words in says and "\n" not in says


def test_addresses_of_this_machine_alone_are_known():
    assert all(map(access.is_loopback, ("127.0.0.1", "127.8.0.1", "::1", "localhost")))
    assert not any(map(access.is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.com", "")))


# The page


def test_the_page_is_one_small_file_that_asks_no_other_host(ask):
    answer = ask.get("/")
    text, policy = answer.text, answer.headers["content-security-policy"]
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert len(answer.content) < 60_000
    assert re.findall(r"https?://[^'\s]*", text) == ["http://www.w3.org/2000/svg"]  # the name of SVG
    assert "innerHTML" not in text and "eval(" not in text and " style=" not in text and " onclick" not in text
    assert "default-src 'none'" in policy and "unsafe" not in policy
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_the_page_ships_with_the_package():
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]
    assert shipped["binocle.retriever.servers.http"] == ["page.html"]
    others = {path.name for path in (ROOT / "retriever/servers/http").iterdir() if path.suffix not in (".py", "")}
    assert others == {"page.html"}


@pytest.mark.slow
def test_a_wheel_has_the_page(tmp_path):
    pytest.importorskip("setuptools")
    left_out = shutil.ignore_patterns(".*", "tests", "docs", "benchmarks", "build", "__pycache__")
    shutil.copytree(ROOT, tmp_path / "binocle", ignore=left_out)
    build = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"
    command = [sys.executable, "-c", build, str(tmp_path)]
    name = subprocess.run(command, cwd=tmp_path / "binocle", capture_output=True, text=True, check=True).stdout.split()[
        -1
    ]
    with zipfile.ZipFile(tmp_path / name) as wheel:
        assert (
            wheel.read("binocle/retriever/servers/http/page.html")
            == (ROOT / "retriever/servers/http/page.html").read_bytes()
        )


def test_facets_are_counted_without_a_query(ask, retriever):
    body = ask.get("/facets", params={"facets": ["type"], "where": "path=notes/**"}).json()
    expected = retriever.facets("type", "path=notes/**")["type"].counts
    assert [(row["value"], row["count"]) for row in body["facets"]["type"]["counts"]] == list(expected)
    assert expected


# A token with a scope learns nothing of others; work ends when nobody waits for it


@pytest.fixture
def tenants(tmp_path, tiny_model):
    """A retriever with two documents of tenant t1, and a token that sees only them."""
    from binocle import Retriever

    retriever = Retriever.open(tmp_path / "tenants", model=tiny_model)
    retriever.add([{"id": f"a{number}", "text": "The ship sails.", "metadata": {"tenant": "t1"}} for number in (1, 2)])
    token = access.Token(hashlib.sha256(b"a-token-of-tenant-1").digest(), F.tenant == "t1")
    return retriever, token


def test_a_token_with_a_scope_does_not_learn_when_others_work(tenants):
    retriever, token = tenants
    with client(retriever, tokens=(token,)) as ask:
        ask.headers["Authorization"] = "Bearer a-token-of-tenant-1"

        def seen():
            answers = ask.get("/status"), ask.get("/documents")
            return [answer.headers["etag"] for answer in answers], answers[0].json()

        before = seen()
        retriever.add([{"id": "b", "text": "Another ship.", "metadata": {"tenant": "t2"}}])
        assert seen() == before
        retriever.update(["a1"], metadata={"colour": "red"})
        (after,) = set(seen()[0])
        assert after != before[0][0]


def test_a_server_with_other_options_sends_its_answer_anew(retriever):
    with client(retriever) as ask:
        tag = {"If-None-Match": ask.get("/status").headers["etag"]}
        assert ask.get("/status", headers=tag).status_code == 304
    with client(retriever, writable=True) as ask:
        assert ask.get("/status", headers=tag).json()["writable"] is True


@pytest.mark.thorough
def test_work_ends_when_its_deadline_has_passed(retriever, monkeypatch):
    encoder, encoded = retriever.encoder, []
    encode = type(encoder).encode

    def slow(self, texts, **options):
        encoded.append(len(texts))
        time.sleep(0.3)
        return encode(self, texts, **options)

    monkeypatch.setattr(type(encoder), "encode", slow)
    texts = [f"text {number}" for number in range(1_000)]
    for path, body in (("/v1/embeddings", {"input": texts}), ("/v2/rerank", {"query": "a", "documents": texts})):
        encoded.clear()
        with client(retriever, queue=WorkQueue(1, deadline=1)) as ask:
            assert "1 s" in refused(ask.post(path, json=body), 503).replace(".0", "")
        assert 0 < sum(encoded) < 1_000  # the server ended after the work did


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/search", {"query": "ship"}),
        ("/search/many", {"queries": ["ship", "bread"]}),
        ("/context", {"query": "ship"}),
        ("/v1/vector_stores/notes/search", {"query": "ship"}),
    ],
)
def test_a_search_that_comes_too_late_to_its_thread_never_starts(retriever, path, body):
    operation = {each.path: each for each in [*operations.OPERATIONS, *openai.OPERATIONS]}[
        path.replace("/notes/", "/{store}/")
    ]
    request = operation.input.model_validate({**body, **({"store": "notes"} if "/notes/" in path else {})})
    served = Served({"notes": ServedIndex("notes", retriever)})
    over = Deadline(1.0, time.monotonic() - 1)
    with pytest.raises(DeadlineError):
        operation.call(served.caller(access.ANYONE, None, over), request)


def test_many_queries_share_one_limit_of_passages(ask):
    asked = {"queries": [QUERY, "bread"], "k": 1_000, "offset": 4_000}
    assert len(ask.post("/search/many", json=asked).json()["results"]) == 2
    detail = refused(ask.post("/search/many", json=asked | {"offset": 4_001}), 400)
    assert detail.startswith("2 queries of 5,001 passages are 10,002: expected at most 10,000")


def test_another_application_has_the_server_below_a_path(retriever):
    fastapi = pytest.importorskip("fastapi")
    app = fastapi.FastAPI()
    served = Served({"notes": ServedIndex("notes", retriever)})
    app.mount("/inner", application(Server(served, Access())))
    with TestClient(app, base_url="http://localhost") as ask:
        assert ask.get("/inner").url.path == "/inner/"
        assert "<title>Binocle</title>" in ask.get("/inner/").text
        hits = ask.get("/inner/search", params={"q": QUERY}).json()["hits"]
        assert [hit["path"] for hit in hits] == [hit.path for hit in retriever.search(QUERY)]
        assert ask.get("/inner/indexes/notes/status").json()["index"] == "notes"
        assert "there is no /none" in refused(ask.get("/inner/none"), 404)
        assert ask.post("/inner/v1/embeddings", json={}).json()["error"]["type"] == "invalid_request_error"


# PDF files


def test_a_browser_gets_a_pdf_file_as_it_was_indexed_and_no_other_file(tmp_path, tiny_model, pdf_file):
    from binocle import Retriever

    folder = tmp_path / "papers"
    folder.mkdir()
    for name in ("ship plan.pdf", "secret.pdf"):
        (folder / name).write_bytes(pdf_file(f"The ship sails at night, says the {name[:4]}."))
    (folder / "a.md").write_text("A note.\n")
    (tmp_path / "outside.pdf").write_bytes(pdf_file("Outside."))
    retriever = Retriever.open(folder, model=tiny_model)
    retriever.sync()
    with client(retriever) as ask:
        (hit,) = ask.get("/search", params={"q": "ship plan", "k": 1, "where": "path='ship plan.pdf'"}).json()["hits"]
        assert (hit["format"], hit["page"], hit["source"]) == ("pdf", 1, "file")
        answer = ask.get("/files/ship%20plan.pdf")
        assert answer.content == (folder / "ship plan.pdf").read_bytes()
        assert answer.headers["content-type"] == "application/pdf"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert ask.get("/indexes/notes/files/ship%20plan.pdf").content == answer.content
        for other in ("a.md", "none.pdf", "..%2Foutside.pdf", "%2Fetc%2Fpasswd", ".binocle/HEAD.json"):
            assert ask.get(f"/files/{other}").status_code == 404
        (folder / "ship plan.pdf").write_bytes(pdf_file("Another text."))
        assert "as the index has read it" in refused(ask.get("/files/ship%20plan.pdf"), 404)
        (folder / "secret.pdf").rename(tmp_path / "moved.pdf")
        (folder / "secret.pdf").symlink_to(tmp_path / "moved.pdf")  # the same bytes, but not of the folder
        assert "as the index has read it" in refused(ask.get("/files/secret.pdf"), 404)
    token = access.Token(hashlib.sha256(b"a-token-of-one-file").digest(), F.path == "ship plan.pdf")
    with client(retriever, tokens=(token,)) as ask:
        assert ask.get("/files/secret.pdf").status_code == 401
        ask.headers["Authorization"] = "Bearer a-token-of-one-file"
        assert "is not in the index" in refused(ask.get("/files/secret.pdf"), 404)
