"""What a power cut may not take: everything that a commit names is on the disk before the commit."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from binocle import Retriever
from binocle.retriever.store.locations.location import HEAD, PREVIOUS

# What no commit names, or is whole at once.
EPHEMERAL = {"lock", "lock.json", ".gitignore", "settings.json", f".{HEAD}", f".{PREVIOUS}", "switching"}
REWRITTEN = "latest_version_hint.json"  # Lance makes it anew with each version, and can do without it


def below(index):
    """The files and folders of an index that a commit may name."""
    for part in (index, *index.rglob("*")):
        if part.relative_to(index).parts[:1] not in {(name,) for name in EPHEMERAL}:
            yield part


def state(path):
    """What a sync of a file or folder covers: it differs after each change of the bytes or the names."""
    status = os.stat(path)
    names = frozenset(os.listdir(path)) - {REWRITTEN} if stat.S_ISDIR(status.st_mode) else None
    return status.st_ino, status.st_mtime_ns if names is None else names


@pytest.fixture
def commits(monkeypatch):
    """The files and folders that were not synced as they were, at each rename of HEAD.json."""
    synced, unsynced, fsync, replace = set(), [], os.fsync, Path.replace

    def syncing(descriptor):
        fsync(descriptor)
        synced.add(state(descriptor))

    def renaming(source, target):
        if Path(target).name == HEAD:
            found = [part for part in below(source.parent) if part != source.parent and state(part) not in synced]
            assert state(source) in synced
            unsynced.append([part.name for part in found if part.name not in (HEAD, PREVIOUS, REWRITTEN)])
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "replace", renaming)
    yield unsynced
    assert unsynced


def use(retriever, folder, model):
    """Everything that writes, each time followed by what the commits before it must not have broken."""
    (folder / "new.md").write_text("The king baked bread.\n")
    retriever.sync()
    retriever.add([{"id": "one", "text": "The queen sailed by night."}, {"id": "two", "text": "Cheese in a hot oven."}])
    retriever.delete("one")
    retriever.delete("two", erase=False)
    retriever.build_index("hnsw")
    retriever.switch(model)
    retriever.rollback()
    retriever.repair()


def test_nothing_that_a_commit_names_waits_to_be_written_when_head_is_renamed(
    commits, folder, tiny_model, make_model, tmp_path
):
    retriever = Retriever.open(folder, model=tiny_model)
    use(retriever, folder, make_model(tmp_path / "other", seed=1))
    assert len(commits) > 10
    assert [names for names in commits if names] == []
    assert retriever.verify().faults == []


def test_an_index_that_was_written_without_syncing_is_synced_by_the_next_durable_commit(commits, retriever):
    (retriever.path / PREVIOUS).unlink()
    retriever.add([{"id": "one", "text": "The queen sailed by night."}])
    assert not any(commits)


def test_an_index_is_closed_to_other_users_whatever_the_umask(folder, tiny_model):
    (folder / ".binocle").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        retriever = Retriever.open(folder, model=tiny_model)
        retriever.sync()
        retriever.add([{"id": "one", "text": "The queen sailed by night."}])
        retriever.delete("notes/cats.txt")
        retriever.optimize(0.5)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (retriever.path, *retriever.path.rglob("*"))}
    assert {path: oct(mode) for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


def test_an_index_that_its_owner_opens_to_a_group_stays_open_to_it(retriever):
    retriever.path.chmod(0o2750)
    (before,) = (retriever.path / "vectors").iterdir()
    retriever.add([{"id": "one", "text": "The queen sailed by night."}])
    retriever.repair()
    new = [path for path in (retriever.path / "vectors").rglob("*") if before not in (path, path.parent)]
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in new} == {"0o2750", "0o640"}


@pytest.mark.parametrize("left", [b"", b"*"])
def test_a_folder_in_which_an_index_was_cut_short_can_be_indexed(left, folder, tiny_model):
    index = folder / ".binocle"
    index.mkdir()
    for name in ("lock", "lock.json"):
        (index / name).touch()
    (index / ".gitignore").write_bytes(left)
    Retriever.open(folder, model=tiny_model).sync()
    assert (index / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("size", [0, 40])
def test_the_remains_of_a_power_cut_in_a_commit_are_removed(size, retriever):
    """Manifests after the committed version, and any that is empty."""
    manifests = retriever.path / "chunks.lance" / "_versions"
    newest = min(manifests.glob("*.manifest"))
    (manifests / f"{int(newest.stem) - 1:020}.manifest").write_bytes(newest.read_bytes()[:size])
    max(manifests.glob("*.manifest")).write_bytes(b"")
    assert Retriever.open(retriever.path).verify().faults == []
    retriever.add([{"id": "one", "text": "The queen sailed by night."}])
    assert retriever.search("queen", 1, mode="lexical")[0].path == "one"
    assert retriever.verify().faults == []
