from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from binocle import Retriever
from binocle.core.errors import StoreError
from binocle.retriever.store.foreign.confinement import check_files, check_table
from binocle.retriever.store.tables import TableLocation

PLACES = [
    "chunks.lance/_indices/11111111-2222-3333-4444-555555555555",
    "chunks.lance/data/evil",
    "chunks.lance/_versions",
    "documents.lance/_deletions",
    "documents.lance/_transactions/1-x.txn",
    "documents.lance/data/evil.lance",
    "switching",
    "switching/" + "f" * 32 + "-32",
    "vectors/.0123456789ab",
    "vectors/flat-1-0123456789abcdef/ids.npy",
    "queries-made-0123456789abcdef.npy",
    "settings.json",
    "HEAD.json",
    "lock",
    "lock.json",
    ".gitignore",
    "unheard-of/deep/er",
]


def put(place: Path) -> Path:
    """Clear the place of an attack."""
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of the user's own, with the names that Lance looks for."""
    victim = tmp_path / "victim"
    (victim / "sub").mkdir(parents=True)
    names = ("precious.txt", "data.lance", "18446744073709551000.manifest", "sub/deep.md", "manifest.json")
    for name in names:
        (victim / name).write_text(f"precious {name}")
    return victim


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("target", ["victim", "victim/precious.txt"])
def test_symbolic_link_anywhere_in_an_index_is_refused(place, target, retriever, victim):
    put(retriever.path / place).symlink_to(victim.parent / target)
    before = bytes_below(victim)
    calls = [
        lambda index: index.search("cat"),
        lambda index: index.status(),
        lambda index: index.verify(),
        lambda index: index.sync(),
        lambda index: index.delete("README.md"),
    ]
    for call in calls:
        with pytest.raises(StoreError) as caught:
            call(Retriever.open(retriever.path))
        assert "\n" not in str(caught.value)
        if (place, target) != ("HEAD.json", "victim"):  # then there is no index
            assert f"{retriever.path / place} is a symbolic link" in str(caught.value)
    assert bytes_below(victim) == before


@pytest.mark.parametrize("place", ["chunks.lance/data/pipe", "settings.json", "vectors/pipe", "lock", "lock.json"])
def test_fifo_and_socket_in_an_index_are_refused_and_nobody_waits(place, retriever):
    os.mkfifo(put(retriever.path / place))
    for call in (Retriever.search, Retriever.delete):
        with pytest.raises(StoreError, match=f"/{place} is a FIFO, and an index holds only files and folders"):
            call(Retriever.open(retriever.path), "cat")
    put(retriever.path / place)
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir((retriever.path / place).parent)  # a socket's path is short
        try:
            listener.bind(Path(place).name)
        finally:
            os.chdir(here)
        with pytest.raises(StoreError, match=f"/{place} is a socket"):
            Retriever.open(retriever.path).search("cat")


def test_table_with_data_elsewhere_or_of_references_is_refused(tmp_path):
    table = lance.write_dataset(pa.table({"id": [1]}), tmp_path / "own.lance")
    check_table(table)
    table.shallow_clone(str(tmp_path / "clone.lance"), 1)
    with pytest.raises(StoreError, match=r"keeps data outside of the index, in .*own\.lance: remove the index"):
        TableLocation(str(tmp_path / "clone.lance")).at()
    marked = pa.field("id", pa.int64(), metadata={"own": "x"})
    for field in (marked, pa.field("id", pa.uint8()), pa.field("id", pa.list_(pa.uint8()))):
        values = pa.array([[1]] if pa.types.is_list(field.type) else [1], field.type)
        other = lance.write_dataset(pa.table([values], pa.schema([field])), tmp_path / "own.lance", mode="overwrite")
        with pytest.raises(StoreError, match="has a column 'id' that may hold references"):
            check_table(other)


def test_open_retriever_sees_a_link_that_a_later_commit_brings(retriever, victim):
    open_before = Retriever.open(retriever.path)
    assert open_before.search("cat")
    retriever.add([{"text": "A new document.", "id": "new"}])
    (retriever.path / "vectors/evil").symlink_to(victim)
    with pytest.raises(StoreError, match="vectors/evil is a symbolic link"):
        open_before.search("cat")


def test_files_that_vanish_during_the_check_are_no_fault(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    (tmp_path / "link").symlink_to("gone")
    scandir = os.scandir

    def scan(path: str):
        entries = scandir(path)
        for name in ("gone", "link"):
            (tmp_path / name).unlink() if name == "link" else (tmp_path / name).rmdir()
        monkeypatch.setattr(os, "scandir", scandir)
        return entries

    monkeypatch.setattr(os, "scandir", scan)
    check_files(tmp_path)
    check_files(tmp_path / "missing")
