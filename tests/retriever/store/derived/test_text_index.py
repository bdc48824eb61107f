"""The full-text index grows by small segments, and by merges of small segments alone."""

from __future__ import annotations

import pytest

from binocle import Retriever
from binocle.retriever.store import writer
from binocle.retriever.store.derived import text_index


@pytest.fixture
def filled(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": f"base{number}", "text": f"cat {number} sat on the mat"} for number in range(60)])
    return retriever


def segments(retriever):
    return text_index._segments(retriever.snapshot().chunks)


def test_a_few_new_documents_are_found_without_a_segment(filled):
    for number in range(17):
        assert segments(filled) == [60]
        filled.add([{"id": f"new{number}", "text": f"walrus {number} sat"}])
        hits = filled.search("walrus", mode="lexical", k=99, per_document=None)
        assert sorted(hit.path for hit in hits) == sorted(f"new{other}" for other in range(number + 1))
        assert len(filled.snapshot().full_text("walrus", 99)) == number + 1
    assert segments(filled) == [77]
    assert filled.verify().faults == []


def test_one_document_gets_a_segment_of_its_own(filled, monkeypatch):
    monkeypatch.setattr(writer, "_FEW_ROWS", 0)
    filled.add([{"id": "new", "text": "a walrus sat"}])
    assert segments(filled) == [60, 1]
    assert [hit.path for hit in filled.search("walrus", mode="lexical")] == ["new"]


def test_small_segments_are_merged_with_each_other_and_then_with_all(filled, monkeypatch):
    monkeypatch.setattr(text_index, "_MAX_SEGMENTS", 3)
    monkeypatch.setattr(writer, "_FEW_ROWS", 0)
    sizes = []
    for number in range(7):
        filled.add([{"id": f"new{number}", "text": f"walrus {number}"}])
        sizes.append(segments(filled))
    assert sizes == [[60, 1], [60, 1, 1], [60, 3], [60, 3, 1], [60, 5], [60, 5, 1], [67]]
    assert len(filled.search("walrus", mode="lexical")) == 7


def test_many_new_rows_are_indexed_with_the_others(filled):
    filled.add([{"id": f"new{number}", "text": f"walrus {number}"} for number in range(20)])
    assert segments(filled) == [80]
