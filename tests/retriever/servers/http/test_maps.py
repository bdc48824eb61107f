"""The map of a collection over HTTP: its points, its scope, and how it follows the index."""

from __future__ import annotations

import hashlib
import time

import pytest

pytest.importorskip("starlette")
httpx2 = pytest.importorskip("httpx2")

from starlette.testclient import TestClient

from binocle import F, Retriever
from binocle.retriever.inspection.collection_map import CollectionMap
from binocle.retriever.servers.http import access
from binocle.retriever.servers.http.application import Server, application
from binocle.retriever.servers.http.caller import Served, ServedIndex

TOKEN = "a-token-of-tenant-1"


@pytest.fixture
def serve():
    def client(retriever, **rules):
        served = Served({"notes": ServedIndex("notes", retriever)})
        return TestClient(application(Server(served, access.Access(**rules))), base_url="http://localhost")

    return client


def drawn(ask, condition=lambda answer: answer["ready"]):
    """The map, when it is there."""
    end = time.monotonic() + 60
    while not condition(answer := ask.get("/map").json()):
        assert time.monotonic() < end, answer
        time.sleep(0.02)
    return answer


def test_the_map_has_each_passage_at_its_place(retriever, serve):
    with serve(retriever) as ask:
        answer = drawn(ask)
        points, count = answer["points"], len(retriever.snapshot().sorted_ids)
        assert answer["current"] and answer["passages"] == count
        assert {len(column) for column in points.values()} == {count}
        assert sum(folder["shown"] for folder in answer["folders"]) == count
        hits = ask.get("/search", params={"q": "cancel a task", "positions": "true"}).json()["hits"]
        of_passage = zip(points["document"], points["char_start"], points["x"], points["y"], strict=True)
        places = {(answer["documents"][document], start): [x, y] for document, start, x, y in of_passage}
        for hit in hits:
            assert hit["position"] == pytest.approx(places[hit["path"], hit["char_start"]], abs=0.001)
        assert "position" not in ask.get("/search", params={"q": "cancel a task"}).json()["hits"][0]


def test_the_answer_is_sent_anew_when_the_map_is_there(retriever, serve):
    with serve(retriever) as ask:
        first = ask.get("/map")
        assert first.json()["ready"] is False
        drawn(ask)
        later = ask.get("/map", headers={"If-None-Match": first.headers["etag"]})
        assert later.json()["ready"] is True
        assert ask.get("/map", headers={"If-None-Match": later.headers["etag"]}).status_code == 304


def test_a_token_with_a_scope_sees_its_own_documents_only(tmp_path, tiny_model, serve):
    retriever = Retriever.open(tmp_path / "tenants", model=tiny_model)

    def row(tenant, name):
        return {"id": f"{tenant}/{name}", "text": f"The ship {name}.", "metadata": {"tenant": tenant}}

    retriever.add([row("t1", "sails"), row("t1", "sinks"), row("t2", "docks")])
    token = access.Token(hashlib.sha256(TOKEN.encode()).digest(), F.tenant == "t1")
    with serve(retriever, tokens=(token,)) as ask:
        ask.headers["Authorization"] = f"Bearer {TOKEN}"
        before = drawn(ask)
        assert before["documents"] == ["t1/sails", "t1/sinks"] and before["passages"] == 2
        assert [folder["name"] for folder in before["folders"]] == ["t1"]
        retriever.add([row("t2", "waits")])
        assert drawn(ask) == before
        # A document that leaves the scope is gone at once, although the map is not drawn again yet.
        retriever.update(["t1/sinks"], metadata={"tenant": "t2"})
        after = ask.get("/map").json()
        assert after["documents"] == ["t1/sails"] and after["ready"] and not after["current"]


def test_a_map_that_cannot_be_drawn_says_why_and_is_tried_again(retriever, serve, monkeypatch):
    from binocle.core.errors import DamagedError

    def damaged(*_):
        raise DamagedError("a file is damaged")

    with serve(retriever) as ask:
        with monkeypatch.context() as patch:
            patch.setattr(CollectionMap, "of", damaged)
            end = time.monotonic() + 60
            while (answer := ask.get("/map")).status_code == 200:
                assert time.monotonic() < end
            assert answer.status_code == 503 and answer.json()["detail"] == "a file is damaged"
        assert drawn(ask)["ready"]
