"""The neighbourhoods of a store: renewed as passages come and go, erased with them, and never in the way of a search."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest

from binocle import Retriever
from binocle.retriever.store.derived import live_neighbourhood

WORDS = ["cat", "ship", "sea", "moon", "harbour", "sail", "night", "quiet", "zebra", "lamp", "stone", "river"]


def documents(numbers):
    for number in numbers:
        yield {"id": f"d{number}", "text": " ".join(random.Random(number).choices(WORDS, k=12))}


@pytest.fixture
def retriever(tmp_path, tiny_model, monkeypatch):
    monkeypatch.setattr(live_neighbourhood, "MIN_PASSAGES", 20)
    monkeypatch.setattr(live_neighbourhood, "_STALE_ROWS", 10)
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(documents(range(60)))
    return retriever


def published(retriever):
    return {file.name for file in (retriever.path / "vectors").glob("neighbours-*")}


def test_few_passages_have_no_neighbours(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(documents(range(30)))
    assert retriever.snapshot().head.neighbours is None
    assert "neighbours" not in retriever.search("cat")[0].scores


def test_new_passages_have_none_until_many_came(retriever):
    before = retriever.snapshot().head.neighbours
    retriever.add(documents(range(60, 66)))
    retriever.delete("d3", erase=False)
    snapshot = retriever.snapshot()
    assert snapshot.head.neighbours == before
    ids = snapshot.sorted_ids
    passages, places = snapshot.neighbourhood.around(ids)
    np.testing.assert_array_equal(passages[places[:, 0]], ids)
    assert (places[-6:, 1:] == -1).all()
    assert set(passages[places[places >= 0]].tolist()) <= set(ids.tolist())
    owners = dict(zip(*(snapshot.chunk_ids[name].to_pylist() for name in ("id", "document")), strict=True))
    assert snapshot.neighbourhood.documents(ids).tolist() == [owners[number] for number in ids.tolist()]
    assert {hit.path for hit in retriever.search("cat", k=100)} >= {"d60", "d65"}
    retriever.add(documents(range(66, 80)))
    assert retriever.snapshot().head.neighbours != before
    assert retriever.snapshot().neighbourhood.complete


def test_forgotten_passages_leave_no_neighbourhood_behind(retriever):
    before = published(retriever)
    retriever.delete("d3", erase=True)
    assert not before & published(retriever)
    assert len(retriever.snapshot().neighbourhood.published.ids) == 59
    retriever.delete(*(f"d{number}" for number in range(45) if number != 3), erase=True)
    assert not published(retriever)


def test_another_encoder_gets_other_neighbourhoods(retriever, make_model, tmp_path):
    before = retriever.snapshot().head.neighbours
    retriever.switch(make_model(tmp_path / "other", seed=9))
    snapshot = retriever.snapshot()
    assert snapshot.head.neighbours not in (None, before)
    assert snapshot.neighbourhood.complete


@pytest.mark.parametrize("damage", ["remove", "cut", "manifest", "encoder"])
def test_damaged_neighbourhoods_are_one_fault_and_renewed(damage, retriever):
    (folder,) = (retriever.path / "vectors").glob("neighbours-*")
    match damage:
        case "remove":
            shutil.rmtree(folder)
        case "cut":
            (folder / "neighbours.i32").write_bytes(b"123")
        case "manifest":
            (folder / "manifest.json").write_bytes(b"{}")
        case "encoder":
            (folder / "means.f16").write_bytes((folder / "means.f16").read_bytes() + b"12")
    again = Retriever.open(retriever.path)
    assert again.snapshot().neighbourhood is None
    assert "neighbours" not in again.search("cat")[0].scores
    assert [fault.kind for fault in again.verify().faults] == ["neighbours"]
    again.repair()
    assert again.verify().faults == []
    assert Retriever.open(retriever.path).snapshot().neighbourhood.complete


def test_copies_are_one_neighbour(retriever):
    retriever.add([{"id": f"copy{number}", "text": "the moon over the quiet harbour"} for number in range(40)])
    snapshot = retriever.snapshot()
    copies = snapshot.read("chunks", ["id"], "text = 'the moon over the quiet harbour'")["id"].to_numpy()
    assert len(copies) == 40
    passages, places = snapshot.neighbourhood.around(snapshot.sorted_ids)
    for row in places:
        assert np.isin(passages[row[1:][row[1:] >= 0]], copies).sum() <= 1
