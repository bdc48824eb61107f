"""A hit is compared with its document as that is now."""

from __future__ import annotations

import zipfile

import pytest

from binocle import Retriever
from binocle.retriever.documents import file_parts
from binocle.retriever.readers import large_files
from binocle.retriever.search.results import currency


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


@pytest.mark.parametrize("path", ["big.log", "box.zip"])
def test_parts_of_a_large_file_and_files_in_an_archive_are_compared_too(path, tmp_path, tiny_model, monkeypatch):
    monkeypatch.setattr(file_parts, "PART_BYTES", 1_000)
    monkeypatch.setattr(large_files, "MAX_WHOLE", 2_000)
    file = tmp_path / path

    def write(word):
        lines = "".join(f"line {number}\n" for number in range(400)) + f"one {word}\n"
        if path == "big.log":
            file.write_text(lines)
        else:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("notes/a.txt", f"the {word} in a box")

    write("needle")
    retriever = Retriever.open(tmp_path, model=tiny_model)
    retriever.sync()
    (hit,) = retriever.search("+needle", mode="lexical")
    assert hit.path.startswith(f"{path}/")
    assert retriever.check(hit) == "exact"
    inside = retriever.search(
        "+needle", mode="lexical", ids=[path]
    )  # a path names all parts of a file, and no member of an archive
    assert [found.path for found in inside] == ([hit.path] if path == "big.log" else [])
    file.touch()
    assert retriever.check(hit) == ("exact" if path == "big.log" else "stale")
    write("thread")
    assert retriever.check(hit) == "stale"
    if path == "big.log":
        file.write_text("one needle\n")
        assert retriever.check(hit) == "moved" if hit.text.strip() == "one needle" else "stale"
    file.unlink()
    assert retriever.check(hit) == "gone"


def test_a_file_that_cannot_be_read_is_gone(filed, tmp_path, monkeypatch):
    (hit,) = filed.search("cat", mode="lexical")
    file = filed.folder / "cat.txt"
    moved = file.rename(tmp_path / "cat.txt")
    file.symlink_to(moved)
    assert filed.check(hit) == "gone"
    file.unlink()
    file.mkdir()
    assert filed.check(hit) == "gone"
    file.rmdir()
    moved.rename(file)
    assert filed.check(hit) == "exact"

    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(currency, "document_sha256", refuse)
    assert filed.check(hit) == "gone"


def test_a_file_is_gone_if_its_folder_became_a_link_or_a_file(tmp_path, tiny_model):
    root = tmp_path / "notes"
    (root / "pets").mkdir(parents=True)
    (root / "pets" / "cat.txt").write_text("the cat sat on the mat")
    retriever = Retriever.open(root, model=tiny_model)
    retriever.sync()
    (hit,) = retriever.search("cat", mode="lexical")
    moved = (root / "pets").rename(tmp_path / "pets")
    (root / "pets").symlink_to(moved)
    assert retriever.check(hit) == "gone"
    (root / "pets").unlink()
    (root / "pets").write_text("the cat sat on the mat")
    assert retriever.check(hit) == "gone"
    retriever.sync(drop_missing=True)
    assert retriever.check(hit) == "gone"


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


@pytest.mark.parametrize(
    ("text", "after"), [("", "stale"), ("the wolf ran", "stale"), ("a wolf at the door!", "exact")]
)
def test_an_added_document_is_compared_with_itself_before_a_file_of_its_name(text, after, filed):
    filed.add([{"id": "wolf.txt", "text": "a wolf at the door"}])
    (hit,) = filed.search("door", mode="lexical")
    (filed.folder / "wolf.txt").write_text(text)
    filed.sync()
    assert filed.check(hit) == "exact"
    filed.add([{"id": "wolf.txt", "text": "a fox"}])
    assert filed.check(hit) == after


def test_only_files_change_behind_the_index(filed):
    assert currency.changed_files(filed.snapshot(), filed.folder, ["cat.txt", "added"]) == []
    (filed.folder / "cat.txt").write_text("the dog ran")
    assert currency.changed_files(filed.snapshot(), filed.folder, ["cat.txt", "added"]) == ["cat.txt"]
    assert currency.changed_files(filed.snapshot(), filed.folder, ["added"]) == []
    assert currency.changed_files(filed.snapshot(), None, ["cat.txt"]) == []
