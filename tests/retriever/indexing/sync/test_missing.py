"""A sync that finds many documents missing keeps them until it is told to drop them."""

from __future__ import annotations

import contextlib
import os
import shutil
import zipfile
from types import SimpleNamespace

import pytest

from binocle import Retriever
from binocle.core.errors import InputError
from binocle.retriever.documents import file_parts
from binocle.retriever.indexing.sync.missing import take_doubtful
from binocle.retriever.readers import large_files

DISK = {f"disk/{number}.txt": f"The cat of house number {number} sat on the mat.\n" for number in range(6)}
REST = {f"rest/{number}.txt": f"The ship of queen number {number} ran to sea.\n" for number in range(8)}


@pytest.fixture
def disk(tmp_path, write, tiny_model):
    """An indexed folder; its index lies elsewhere, so that the folder can be empty."""
    root = write(tmp_path / "root", DISK | REST)
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.sync(root)
    return retriever, root


def paths(retriever):
    return {row["path"] for row in retriever.documents() if row["state"] == "indexed"}


def empty(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def test_an_empty_folder_keeps_every_document_until_told(disk):
    retriever, root = disk
    empty(root)
    report = retriever.sync()
    assert (report.missing, report.removed, report.chunks_removed) == (14, 0, 0)
    assert report.note.startswith(f"{root} lacks 14 indexed documents, which the index keeps")
    assert paths(retriever) == {*DISK, *REST}
    assert retriever.search("cat", mode="lexical")
    assert retriever.sync(drop_missing=True).removed == 14
    assert paths(retriever) == set()


def test_what_is_new_or_changed_is_indexed_while_most_is_missing(disk, write):
    retriever, root = disk
    shutil.rmtree(root)
    write(root, {"new.txt": "The river and the bridge.\n", "disk/0.txt": "The dog sat on the mat.\n"})
    report = retriever.sync()
    assert (report.indexed, report.missing, report.removed) == (2, 13, 0)
    assert retriever.search("dog", mode="lexical")[0].path == "disk/0.txt"
    write(root, DISK | REST)
    assert (retriever.sync().missing, retriever.verify().faults) == (0, [])


def test_a_folder_of_a_collection_that_is_away_is_named_though_it_had_no_documents(tmp_path, write, tiny_model):
    write(tmp_path, {"notes/a.md": "The cat sat on the mat.\n"})
    (tmp_path / "empty").mkdir()
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.sync([tmp_path / "notes", tmp_path / "empty"])
    (tmp_path / "empty").rmdir()
    report = retriever.sync()
    assert (report.unchanged, report.missing, report.note) == (1, 0, f"not there: {tmp_path / 'empty'}")


def test_a_mount_point_without_its_disk_keeps_what_was_on_it(disk):
    retriever, root = disk
    (root / "rest/0.txt").unlink()
    empty(root / "disk")
    report = retriever.sync()
    assert (report.missing, report.removed) == (6, 1)
    assert paths(retriever) == {*DISK, *REST} - {"rest/0.txt"}


def test_a_minority_whose_folder_was_deleted_goes_at_once(disk):
    retriever, root = disk
    shutil.rmtree(root / "disk")
    report = retriever.sync()
    assert (report.missing, report.removed) == (0, 6)
    assert paths(retriever) == set(REST)


def test_a_folder_that_is_ignored_from_now_on_is_not_missing(disk, write):
    retriever, root = disk
    write(root, {".binocleignore": "rest/\n"})
    report = retriever.sync()
    assert (report.missing, report.removed) == (0, 8)


def test_a_moved_folder_is_not_missing(disk):
    retriever, root = disk
    (root / "rest").rename(root / "moved")
    report = retriever.sync()
    assert (report.missing, report.removed, report.moved) == (0, 0, 8)


def test_three_documents_go_without_a_question(tmp_path, write, tiny_model):
    root = write(tmp_path / "root", dict(list(DISK.items())[:3]))
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.sync(root)
    empty(root)
    assert retriever.sync().removed == 3


def test_a_root_that_is_missing_or_cannot_be_listed_changes_nothing(disk, monkeypatch):
    retriever, root = disk
    listing = os.scandir

    def refused(path):
        if os.path.realpath(path) == str(root):  # root may list everything: refuse it as the kernel would
            raise PermissionError(13, "Permission denied")
        return listing(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refused)
        with pytest.raises(InputError, match=r"root cannot be listed: Permission denied"):
            retriever.sync()
    root.rename(root.with_name("away"))
    with pytest.raises(InputError, match="there is no folder"):
        retriever.sync()
    assert paths(retriever) == {*DISK, *REST}


@contextlib.contextmanager
def closed(folder, *, is_listed):
    """Have no file of a folder be read, as the kernel would for another user than root.

    :param is_listed: whether the names of its files still are.
    """
    listing = os.scandir

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    def refused(path):
        if os.path.realpath(path) != str(folder):
            return listing(path)
        if not is_listed:
            refuse()
        names = os.listdir(folder)
        return contextlib.nullcontext([SimpleNamespace(name=name, is_dir=refuse, stat=refuse) for name in names])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", refused)
        yield


@pytest.mark.parametrize(("is_listed", "skipped"), [(False, 1), (True, 0)])
def test_a_folder_whose_files_cannot_be_read_keeps_them_with_what_is_in_them(disk, is_listed, skipped):
    retriever, root = disk
    with zipfile.ZipFile(root / "disk/a.zip", "w") as archive:
        archive.writestr("in.txt", "The dog ran to the sea.\n")
    retriever.sync()
    before = paths(retriever)
    assert "disk/a.zip/in.txt" in before
    with closed(root / "disk", is_listed=is_listed):
        reports = [retriever.sync() for _ in range(3)]
        assert paths(retriever) == before
    assert [(each.unchanged, each.skipped, each.removed) for each in reports] == [(16, skipped, 0)] * 3
    again = retriever.sync()
    assert (again.unchanged, again.indexed) == (16, 0)
    assert retriever.search("dog", mode="lexical")[0].path == "disk/a.zip/in.txt"


def test_a_retry_forgets_no_tombstone_of_a_disk_that_is_away(disk):
    retriever, root = disk
    retriever.delete("disk/0.txt")
    empty(root / "disk")
    assert retriever.sync(retry=True).missing == 5
    assert len(retriever.snapshot().tombstones) == 1


def test_a_repair_keeps_what_is_missing(disk):
    retriever, root = disk
    empty(root)
    repair = retriever.repair()
    assert paths(retriever) == {*DISK, *REST}
    assert any("indexed documents, which the index keeps" in note for note in repair.notes)


def test_the_parts_of_a_large_file_count_as_one(tmp_path, write, tiny_model, monkeypatch):
    monkeypatch.setattr(large_files, "MAX_WHOLE", 1_500)
    monkeypatch.setattr(large_files, "MAX_BYTES", 2_000)
    monkeypatch.setattr(file_parts, "PART_BYTES", 1_000)
    root = write(tmp_path / "root", {"big.log": "The cat sat on the mat.\n" * 400, **dict(list(DISK.items())[:2])})
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    assert retriever.sync(root).indexed > 6
    write(root, {"big.log": "The cat sat on the mat.\n" * 200})
    assert retriever.sync().missing == 0
    (root / "big.log").unlink()
    assert retriever.sync().missing == 0
    assert paths(retriever) == set(list(DISK)[:2])


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(tmp_path):
    row = {"state": "indexed"}
    gone = {f"disk/{number}.txt": row for number in range(6)}
    (tmp_path / "disk").mkdir()
    assert len(take_doubtful(tmp_path, dict(gone), 20, set())) == 6
    assert take_doubtful(tmp_path / "gone", dict(gone), 20, set()) == []


def test_the_note_on_missing_documents_of_a_collection_names_it(tmp_path, write, tiny_model):
    write(tmp_path / "notes", {f"{number}.md": f"note {number}" for number in range(4)})
    retriever = Retriever.open(tmp_path / "index", model=str(tiny_model))
    retriever.sync([tmp_path / "notes"])
    empty(tmp_path / "notes")
    assert f"'binocle index --index {tmp_path}/index --yes'" in retriever.sync().note
    (tmp_path / "notes").rmdir()
    assert f"'binocle index --index {tmp_path}/index --drop FOLDER' takes a folder out" in retriever.sync().note


def test_the_note_on_missing_documents_of_an_index_elsewhere_names_both(tmp_path, write, tiny_model):
    write(tmp_path / "notes", {f"{number}.md": f"note {number}" for number in range(4)})
    retriever = Retriever.open(tmp_path / "index", model=str(tiny_model))
    retriever.sync(tmp_path / "notes")
    empty(tmp_path / "notes")
    command = f"'binocle index {tmp_path}/notes --index {tmp_path}/index --yes'"
    assert command in retriever.sync().note
