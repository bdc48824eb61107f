"""A hit is compared with its document as that is now."""

from __future__ import annotations

import pytest

from binocle import Retriever


@pytest.fixture
def filed(tmp_path, tiny_model):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "cat.txt").write_text("the cat sat on the mat")
    retriever = Retriever.open(folder, model=tiny_model)
    retriever.sync()
    retriever.add([{"id": "added", "text": "a ship at sea"}])
    return retriever


@pytest.mark.parametrize("is_synced", [False, True])
@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("the cat sat on the mat", "exact"),
        ("a line\nthe cat sat on the mat", "moved"),
        ("the dog ran", "stale"),
        (None, "gone"),
    ],
)
def test_a_hit_is_compared_with_the_file(text, state, is_synced, filed):
    (hit,) = filed.search("cat", mode="lexical")
    (passage,) = filed.context("cat", mode="lexical").passages
    assert filed.check(hit) == filed.check(passage) == "exact"
    file = filed.folder / "cat.txt"
    if text is None:
        file.unlink()
        (filed.folder / "other.txt").write_text("another")
    else:
        file.write_text(text)
    if is_synced:
        filed.sync(drop_missing=True)
    assert filed.check(hit) == filed.check(passage) == state


@pytest.mark.parametrize(
    ("text", "state"),
    [("a ship at sea", "exact"), ("now a ship at sea", "moved"), ("a queen", "stale"), (None, "gone")],
)
def test_a_hit_is_compared_with_the_added_document(text, state, filed):
    (hit,) = filed.search("ship", mode="lexical")
    if text is None:
        filed.delete("added")
    else:
        filed.add([{"id": "added", "text": text}])
    assert filed.check(hit) == state
