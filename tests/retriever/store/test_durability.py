"""Everything that a commit names is on the disk before the commit, so that a power cut cannot take it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from binocle import Retriever
from binocle.core.errors import DamagedError
from binocle.retriever.store import commits as commits_module
from binocle.retriever.store.locations import new_files as new_files_module
from binocle.retriever.store.locations.folder_location import FolderLocation
from binocle.retriever.store.locations.location import ANY, HEAD, PREVIOUS
from binocle.retriever.store.locations.new_files import NewFiles
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store
from binocle.retriever.store.tables import document_schema
from binocle.retriever.store.writer import open_writer

# Files that no commit names, or that are whole at once.
EPHEMERAL = {
    "lock",
    "lock.json",
    ".gitignore",
    "settings.json",
    "full-text.json",
    "scanned.json",
    f".{HEAD}",
    f".{PREVIOUS}",
    "switching",
}
REWRITTEN = "latest_version_hint.json"  # Lance makes it anew with each version, and can do without it


def below(index):
    """The files and folders of an index that a commit may name."""
    for part in (index, *index.rglob("*")):
        if part.relative_to(index).parts[:1] not in {(name,) for name in EPHEMERAL}:
            yield part


def state(path):
    """The state of a file or folder for a sync: it differs after each change of the bytes or the names."""
    status = os.stat(path)
    names = frozenset(os.listdir(path)) - {REWRITTEN} if stat.S_ISDIR(status.st_mode) else None
    return status.st_ino, status.st_mtime_ns if names is None else names


@pytest.fixture(autouse=True)
def _threads_sync_files(monkeypatch):
    """Sync files by several threads, as users do; other tests use one."""
    monkeypatch.setattr(new_files_module, "_THREADS", 8)


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
    """Everything that writes, each time followed by a check of the commits before it."""
    (folder / "new.md").write_text("The king baked bread.\n")
    retriever.sync()
    retriever.add([{"id": "one", "text": "The queen sailed by night."}, {"id": "two", "text": "Cheese in a hot oven."}])
    retriever.delete("one", erase=True)
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


def test_what_an_earlier_commit_has_synced_is_not_synced_again(retriever, monkeypatch):
    retriever.add([{"id": "one", "text": "The queen sailed by night."}])
    before, synced, fsync = set(retriever.path.rglob("data/*.lance")), set(), os.fsync

    def syncing(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", syncing)
    retriever.add([{"id": "two", "text": "Cheese in a hot oven."}])
    after = set(retriever.path.rglob("data/*.lance"))
    assert {file for file in after if file.stat().st_ino in synced} == after - before != set()


def test_the_name_of_a_commit_is_synced_after_it_is_renamed(retriever, monkeypatch):
    head, events, fsync, replace = retriever.path / HEAD, [], os.fsync, Path.replace

    def renaming(source, target):
        events.append(Path(target).name)
        return replace(source, target)

    def syncing(descriptor):
        if os.fstat(descriptor).st_ino == head.parent.stat().st_ino:
            events.append("the folder is synced")
        fsync(descriptor)

    monkeypatch.setattr(Path, "replace", renaming)
    monkeypatch.setattr(os, "fsync", syncing)
    retriever.add([{"id": "one", "text": "The queen sailed by night."}])
    assert "the folder is synced" in events[events.index(HEAD) :]


def test_a_small_file_is_synced_before_its_name(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def syncing(descriptor):
        synced.append((os.fstat(descriptor).st_ino, (tmp_path / "erase.json").exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", syncing)
    FolderLocation(tmp_path).write("erase.json", b"{}", over=ANY)
    assert synced == [((tmp_path / "erase.json").stat().st_ino, False), (tmp_path.stat().st_ino, True)]


def test_nothing_is_synced_if_speed_was_preferred(folder, tiny_model, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("synced"))
    retriever = Retriever.open(folder, model=tiny_model, durable=False)
    retriever.sync()
    retriever.add([{"id": "one", "text": "The queen sailed by night."}])
    assert not (retriever.path / PREVIOUS).exists()
    assert retriever.verify().faults == []
    assert stat.S_IMODE((retriever.path / HEAD).stat().st_mode) == 0o600


def test_an_index_is_closed_to_other_users_whatever_the_umask(folder, tiny_model):
    (folder / ".binocle").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        retriever = Retriever.open(folder, model=tiny_model)
        retriever.sync()
        retriever.add([{"id": "one", "text": "The queen sailed by night."}])
        retriever.delete("notes/cats.txt", erase=True)
        retriever.optimize(0.5)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (retriever.path, *retriever.path.rglob("*"))}
    assert {path: oct(mode) for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


def test_an_index_that_its_owner_opens_to_a_group_stays_open_to_it(retriever):
    retriever.path.chmod(0o2750)
    before = set((retriever.path / "vectors").rglob("*"))
    retriever.add([{"id": "one", "text": "The queen sailed by night."}])
    retriever.repair()
    new = set((retriever.path / "vectors").rglob("*")) - before
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in new} == {"0o2750", "0o640"}


@pytest.fixture
def new_files(tmp_path):
    (tmp_path / "index" / "part").mkdir(parents=True)
    return NewFiles(tmp_path / "index", ["part"], durable=True)


def test_a_link_in_the_place_of_a_new_file_is_not_followed(new_files, tmp_path):
    (tmp_path / "own").write_text("a secret")
    (tmp_path / "own").chmod(0o644)
    (tmp_path / "index" / "link").symlink_to(tmp_path / "own")
    (tmp_path / "index").chmod(0o700)
    with pytest.raises(OSError, match="symbolic links"):
        new_files.settle_file(tmp_path / "index" / "link")
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o644


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="lists open files on Linux")
def test_files_that_are_settled_are_closed_again(new_files, tmp_path):
    (tmp_path / "index" / "part" / "file").touch()
    before = len(os.listdir("/proc/self/fd"))
    new_files.settle()
    new_files.settle_parents()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_cannot_be_synced_is_no_error_but_a_disk_that_fails_is(new_files, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "index" / "pipe")  # as folders of some file systems
    new_files.settle_file(tmp_path / "index" / "pipe")
    (tmp_path / "index" / "part" / "file").touch()

    def failing(_):
        raise OSError(errno.EIO, "the disk fails")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="the disk fails"):
        new_files.settle()


def test_a_full_sync_takes_the_place_of_fsync_where_the_system_has_one(new_files, tmp_path, monkeypatch):
    (tmp_path / "index" / "part" / "file").touch()
    monkeypatch.setattr(new_files_module, "_FULL_SYNC", fcntl.F_GETFD)
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("synced in part"))
    new_files.settle()
    monkeypatch.setattr(new_files_module, "_FULL_SYNC", -1)  # a command that no system knows: EINVAL
    new_files.settle_folder(tmp_path / "index" / "part")


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


# The state before the last commit


def newest(folder, pattern):
    return max(folder.glob(pattern), key=lambda file: file.stat().st_mtime_ns)


def spoil_head(index, data):
    (index / HEAD).write_bytes(data)


def spoil_rows(index, data):
    newest(index / "documents.lance" / "data", "*.lance").write_bytes(data)


def spoil_manifest(index, data):
    manifest = min((index / "documents.lance" / "_versions").glob("*.manifest"))
    manifest.write_bytes(data) if data else manifest.unlink()


@pytest.mark.parametrize(("spoil", "data"), [(spoil_head, b""), (spoil_rows, b"\0" * 40), (spoil_manifest, b"")])
def test_if_the_last_commit_is_damaged_the_state_before_answers_and_repair_commits_it_again(
    spoil, data, retriever, caplog
):
    retriever.add([{"id": "one", "text": "The queen sailed by night."}])
    before = [row["path"] for row in retriever.documents()]
    with open_writer(Store.open(retriever.path)) as writer:
        documents = pa.Table.from_pylist(
            [{**retriever.document("one"), "id": 99, "path": "two", "metadata": "{}"}], document_schema()
        )
        writer.commit(drop=[], documents=documents)
    spoil(retriever.path, data)
    fresh = Retriever.open(retriever.path)
    assert [row["path"] for row in fresh.documents()] == before
    assert fresh.search("queen", 1, mode="lexical")[0].path == "one"
    assert [record.message[-31:] for record in caplog.records] == ["; until then that state answers"]
    assert [fault.kind for fault in fresh.verify().faults] == ["store"]
    with pytest.raises(DamagedError, match="'binocle verify --repair' goes back to the state before the last commit"):
        fresh.add([{"id": "three", "text": "The king baked bread."}])
    assert fresh.repair().faults
    for again in (fresh, Retriever.open(retriever.path)):
        assert again.verify().faults == []
        assert [row["path"] for row in again.documents()] == before
    fresh.add([{"id": "three", "text": "The king baked bread."}])
    assert fresh.search("king", 1, mode="lexical")[0].path == "three"
    assert fresh.verify().faults == []


def test_what_both_states_name_is_reported_as_damaged(retriever, caplog):
    retriever.add([{"id": "one", "text": "The queen sailed by night."}])
    for file in (retriever.path / "documents.lance" / "data").iterdir():
        file.write_bytes(b"")
    with pytest.raises(DamagedError, match=r"documents.lance is damaged"):
        Retriever.open(retriever.path).documents()
    assert not caplog.records


def test_a_forgotten_text_does_not_come_back_with_the_state_before(retriever):
    retriever.delete("notes/cats.txt", erase=True)
    (retriever.path / HEAD).write_bytes(b"")
    fresh = Retriever.open(retriever.path)
    assert "notes/cats.txt" not in [row["path"] for row in fresh.documents()]
    assert fresh.search("dog ran to the house", 1, mode="lexical") == []
    fresh.repair()
    assert fresh.verify().faults == []
    for file in retriever.path.rglob("*"):
        assert file.is_dir() or b"The dog ran" not in file.read_bytes()


def test_tidying_up_keeps_what_the_state_before_names(retriever, monkeypatch):
    monkeypatch.setattr(commits_module, "_KEEP_VERSIONS", timedelta(0))
    for number in range(4):
        retriever.add([{"id": f"{number}", "text": f"The queen sailed by night {number}."}])
        retriever.build_index("flat")
        store = Store.open(retriever.path)
        previous = Snapshot(store, store.previous())
        assert previous.head != store.head()
        assert previous.index.search(retriever.encoder.encode(["queen"], kind="query"), 3)[1].shape == (1, 3)
        assert previous.damage is None
        assert previous.documents.count_rows() == len(retriever.documents())
