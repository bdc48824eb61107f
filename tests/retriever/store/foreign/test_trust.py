from __future__ import annotations

import errno
import json
import os
import pickle
import re
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from binocle import Retriever
from binocle.core.errors import DamagedError, ModelNotFoundError, UntrustedError
from binocle.indexes.inverted.lexical_index import LexicalIndex
from binocle.retriever.models import model_files
from binocle.retriever.models.model_files import INT8
from binocle.retriever.store import tables
from binocle.retriever.store.foreign import trust
from binocle.retriever.store.snapshot import Snapshot


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state of a user without an index."""
    monkeypatch.delenv("BINOCLE_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(model_files, "_bundled", lambda _: None)
    return tmp_path / "state"


def make_index(folder: Path, model: str) -> Path:
    folder.mkdir()
    (folder / "a.txt").write_text("The cat sat on the mat.\n")
    Retriever.open(folder, model=model).sync()
    return folder


@pytest.fixture
def new(tmp_path: Path, tiny_model: str, state: Path) -> Path:
    """A folder that the user has just indexed."""
    return make_index(tmp_path / "mine", tiny_model)


@pytest.fixture(scope="session")
def _index(tmp_path_factory: pytest.TempPathFactory, tiny_model: str) -> Path:
    """What `mine` is copied from. Not to be changed."""
    return make_index(tmp_path_factory.mktemp("indexed") / "mine", tiny_model)


@pytest.fixture
def mine(tmp_path: Path, state: Path, _index: Path) -> Path:
    """The same, with the note that the user's own index has."""
    mine = shutil.copytree(_index, tmp_path / "mine")
    Retriever.open(mine).allow()
    return mine


def without_id(index: Path) -> None:
    """As an earlier version left it."""
    settings = json.loads((index / "settings.json").read_text())
    del settings["id"]
    (index / "settings.json").write_text(json.dumps(settings))


def bytes_of(index: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in index.rglob("*") if file.is_file()}


def assert_untrusted(folder: Path) -> None:
    """It answers by words, and nothing else."""
    retriever = Retriever.open(folder)
    before = bytes_of(retriever.path)
    assert not retriever.trusted
    assert [hit.path for hit in retriever.search("cat", mode="lexical")] == ["a.txt"]
    assert retriever.text("a.txt")
    assert not retriever.verify().faults
    calls = [
        lambda: retriever.search("cat"),
        lambda: retriever.encoder,
        retriever.warm_up,
        lambda: retriever.context("cat"),
        lambda: retriever.verify(deep=True),
        retriever.sync,
        lambda: retriever.add([{"text": "new"}]),
        lambda: retriever.delete("a.txt"),
        retriever.rollback,
        retriever.repair,
        lambda: retriever.build_index("flat"),
        retriever.optimize,
    ]
    for call in calls:
        with pytest.raises(UntrustedError, match="allow it once by 'binocle trust --index ") as caught:
            call()
        assert "\n" not in str(caught.value)
    assert bytes_of(retriever.path) == before


def test_own_index_is_trusted_also_after_it_was_moved(new, tmp_path):
    assert Retriever.open(new).trusted
    new.rename(tmp_path / "elsewhere")
    assert Retriever.open(tmp_path / "elsewhere").search("cat")
    assert Retriever.open(tmp_path / "elsewhere").sync().embedded == 0


def test_index_that_was_copied_here_is_read_only_until_the_user_allows_it(mine, tmp_path):
    shutil.copytree(mine, tmp_path / "copy")
    assert_untrusted(tmp_path / "copy")
    Retriever.open(tmp_path / "copy").allow()
    opened = Retriever.open(tmp_path / "copy")
    assert opened.trusted
    assert opened.search("cat")
    assert opened.sync().unchanged == 1
    assert Retriever.open(mine).trusted  # still


def test_another_index_in_the_place_of_an_allowed_copy_is_not_trusted(mine, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(mine, copy)
    Retriever.open(copy).allow()
    Retriever.open(mine).allow()
    assert Retriever.open(copy).trusted
    shutil.copytree(mine, tmp_path / "changed")
    shutil.rmtree(copy)
    (tmp_path / "changed").rename(copy)
    assert_untrusted(copy)


def test_removing_an_index_leaves_an_allowed_copy_trusted(mine, tmp_path, state):
    shutil.copytree(mine, tmp_path / "copy")
    Retriever.open(tmp_path / "copy").allow()
    (note,) = (state / "binocle/trusted").iterdir()
    for folder, remaining in ((mine, 1), (tmp_path / "copy", 0)):
        shutil.rmtree(folder)
        trust.forget(note.name)
        assert len(list((state / "binocle/trusted").iterdir())) == remaining
    assert not note.exists()


def test_other_index_in_the_place_of_an_own_one_is_not_trusted(new, tmp_path, tiny_model, state):
    own = state.rename(tmp_path / "own state")
    theirs = make_index(tmp_path / "theirs", tiny_model)
    shutil.rmtree(state)
    own.rename(state)
    shutil.rmtree(new)
    theirs.rename(new)
    assert_untrusted(new)


@pytest.mark.parametrize("index_id", [None, "f" * 32])
def test_index_without_an_id_of_ours_is_not_trusted(index_id, mine):
    settings = json.loads((mine / ".binocle/settings.json").read_text())
    settings["id"] = index_id
    (mine / ".binocle/settings.json").write_text(json.dumps(settings))
    assert_untrusted(mine)


def test_own_index_that_is_gone_is_not_trusted(mine):
    store = Retriever.open(mine).snapshot().store
    assert trust.is_trusted(store.location, store.settings.id)
    shutil.rmtree(mine)
    assert not trust.is_trusted(store.location, store.settings.id)


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"[]",
        b"{",
        b"{}",
        b"\xff",
        b'{"place": 1}',
        b"[[], 1]",
        b'[{"inode": []}]',
        b'[{"place": "/", "inode": []}]',
        b'{"place": "/", "inode": 1}',
    ],
)
def test_note_that_says_nothing_is_no_trust(note, mine, state):
    for file in (state / "binocle/trusted").iterdir():
        file.write_bytes(note)
    assert not Retriever.open(mine).trusted


def test_index_of_an_earlier_version_is_allowed_once(mine):
    without_id(mine / ".binocle")
    assert_untrusted(mine)
    Retriever.open(mine).allow()
    assert Retriever.open(mine).sync().unchanged == 1
    assert Retriever.open(mine).trusted


def test_word_of_the_program_and_of_the_environment_trust_without_a_note(mine, state, monkeypatch):
    shutil.rmtree(state)
    assert_untrusted(mine)
    trusting = Retriever.open(mine, trust=True)
    assert trusting.sync().unchanged == 1
    assert pickle.loads(pickle.dumps(trusting)).trusted
    monkeypatch.setenv("BINOCLE_TRUST", "all")
    assert Retriever.open(mine).sync().unchanged == 1
    monkeypatch.setenv("BINOCLE_TRUST", "1")
    assert_untrusted(mine)
    assert not state.exists()


def test_encoder_that_the_user_names_needs_no_trust(mine, state, tiny_model):
    shutil.rmtree(state)
    named = Retriever.open(mine, model=tiny_model)
    assert named.search("cat", mode="semantic")
    with pytest.raises(UntrustedError):
        named.sync()


@pytest.mark.parametrize("precision", ["", INT8])
def test_default_encoder_needs_no_trust_if_it_is_here(precision, mine, state, tiny_model, monkeypatch):
    if precision:
        Retriever.open(mine).switch(tiny_model + precision)
    shutil.rmtree(state)
    monkeypatch.setattr(model_files, "_bundled", lambda _: Path(tiny_model))
    assert Retriever.open(mine).search("cat", mode="semantic")


def test_nobody_is_asked_for_the_encoder_of_an_untrusted_index(mine, state, monkeypatch):
    """Neither the hub, nor a folder that it names."""
    shutil.rmtree(state)
    head = json.loads((mine / ".binocle/HEAD.json").read_text())
    for name in ("attacker-org/some-model", "/etc", model_files.DEFAULT_MODEL):
        head["encoder"]["model"] = name
        (mine / ".binocle/HEAD.json").write_text(json.dumps(head))
        for function in ("find", "_download"):
            monkeypatch.setattr(model_files, function, lambda *_: pytest.fail("asked"))
        with pytest.raises(UntrustedError):
            Retriever.open(mine).search("cat")


def test_untrusted_index_names_no_folder_but_its_own(mine, state, tmp_path):
    settings = json.loads((mine / ".binocle/settings.json").read_text())
    assert Retriever.open(mine).folder == mine
    for folder in ("/etc", "../..", str(tmp_path), "../../mine/..", "."):
        (mine / ".binocle/settings.json").write_text(json.dumps(settings | {"folder": folder}))
        assert Retriever.open(mine).folder is not None
    shutil.rmtree(state)
    assert Retriever.open(mine).folder is None
    (mine / ".binocle/settings.json").write_text(json.dumps(settings | {"folder": str(mine)}))
    assert Retriever.open(mine).folder == mine
    (mine / ".binocle").rename(tmp_path / "index")
    (tmp_path / "index/settings.json").write_text(json.dumps(settings))
    assert Retriever.open(tmp_path / "index").folder is None


def test_repair_does_not_restore_the_previous_state_of_an_untrusted_index(mine, state):
    shutil.rmtree(state)
    (mine / ".binocle/HEAD.json").write_text("{}")
    before = bytes_of(mine)
    with pytest.raises(UntrustedError):
        Retriever.open(mine).repair()
    assert bytes_of(mine) == before


def test_state_that_cannot_be_written_is_a_warning(tmp_path, tiny_model, state):
    state.write_text("a file in the way")
    index = Retriever.open(tmp_path / "new", model=tiny_model)
    with pytest.warns(UserWarning, match=r"cannot be written .* read-only in later runs.*BINOCLE_TRUST=all"):
        index.add([{"text": "The cat sat."}])
    assert not Retriever.open(tmp_path / "new").trusted


def test_an_index_whose_trust_cannot_be_taken_back_is_removed_all_the_same(mine, state, monkeypatch):
    notes = list((state / "binocle/trusted").iterdir())

    def unlink(file, missing_ok):
        raise PermissionError(errno.EACCES, "Permission denied", str(file))

    monkeypatch.setattr(Path, "unlink", unlink)
    shutil.rmtree(mine)
    with pytest.warns(UserWarning, match=rf"^{notes[0]} cannot be changed \(Permission denied\), so a copy"):
        trust.forget(notes[0].name)


def test_a_user_without_a_home_folder_has_no_trust_to_take_back(without_home, recwarn):
    trust.forget("0" * 32)
    assert not recwarn.list


def test_notes_are_for_the_user_alone(new, state):
    notes = list((state / "binocle/trusted").iterdir())
    assert [note.name for note in notes] == [json.loads((new / ".binocle/settings.json").read_text())["id"]]
    assert os.stat(notes[0]).st_mode & 0o777 == 0o600
    assert notes[0].parent.stat().st_mode & 0o777 == 0o700


def test_commands_say_what_to_do(mine, state, run, monkeypatch):
    shutil.rmtree(state)
    monkeypatch.chdir(mine)
    done = run("search", "cat", ".")
    assert done.code == 0
    assert "a.txt" in done.out
    assert done.err.count("\n") == 1
    assert done.err.startswith("binocle: searched by words alone: ")
    assert "binocle trust --index " in done.err
    assert run("search", "cat", ".", "--mode", "semantic").code == 2
    assert "trust      none, so it is read-only: 'binocle trust' allows it" in run("status", ".").out
    done = run("index", ".")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"'binocle trust --index {mine}/.binocle'" in done.err
    done = run("trust", ".")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"trusted: {mine}/.binocle, of the folder {mine}, with the encoder ")
    assert run("search", "cat", ".").err == ""
    assert run("index", ".").code == 0
    assert "trust  " not in run("status", ".").out


def test_missing_encoder_of_a_trusted_index_is_still_named(mine):
    head = json.loads((mine / ".binocle/HEAD.json").read_text())
    head["encoder"]["model"] = "some-org/some-model"
    (mine / ".binocle/HEAD.json").write_text(json.dumps(head))
    with pytest.raises(ModelNotFoundError):
        Retriever.open(mine).search("cat")


def test_ids_are_random():
    assert len({trust.new_id() for _ in range(100)}) == 100


def test_texts_of_a_stranger_are_analysed_if_a_search_finds_their_words_damaged(mine, tmp_path, monkeypatch):
    """Lance's own index of them could end the process."""
    search, searched = LexicalIndex.search, []

    def search_the_second(index, *arguments, **options):
        searched.append(index)
        if len(searched) == 1:
            raise DamagedError("a posting list is damaged")
        return search(index, *arguments, **options)

    monkeypatch.setattr(LexicalIndex, "search", search_the_second)
    monkeypatch.delattr(Snapshot, "full_text")
    (hit,) = Retriever.open(shutil.copytree(mine, tmp_path / "copy"), trust=False).search("cat", mode="lexical")
    assert (hit.path, len(searched)) == ("a.txt", 2)
    assert searched[0] is not searched[1]


@pytest.mark.parametrize("trusted", [False, True], ids=["untrusted", "trusted"])
@pytest.mark.parametrize("table", ["documents", "chunks"])
def test_a_page_with_a_nul_in_its_description_is_an_error_and_ends_no_process(table, trusted, mine, tmp_path):
    """Unless it is found first, Lance's error about it aborts the process, and so this run of the tests."""
    copy = shutil.copytree(mine, tmp_path / "copy")
    retriever = Retriever.open(copy, trust=trusted)
    rows = getattr(retriever.snapshot(), table)
    folder = copy / f".binocle/{table}.lance"
    files = [folder / "data" / file.path for part in rows.get_fragments() for file in part.data_files()]
    assert len(files) == 1
    for file in files:
        whole = file.read_bytes()
        places = [match.start() + 21 for match in re.finditer(rb"lance\.encodings21\.PageLayout", whole)]
        assert places
        for place in places:
            file.write_bytes(whole[:place] + bytes(4) + whole[place + 4 :])
            damaged = Retriever.open(copy, trust=trusted)
            with pytest.raises(DamagedError, match=rf"{table}\.lance is damaged \(.*PageLayout"):
                damaged.verify() if trusted else damaged.search("cat", mode="lexical")
        file.write_bytes(whole)


@pytest.mark.parametrize("trusted", [False, True], ids=["untrusted", "trusted"])
@pytest.mark.parametrize("table", ["documents", "chunks"])
def test_a_file_whose_end_claims_too_much_is_an_error_and_ends_no_process(table, trusted, mine, tmp_path):
    """Lance reserves 16 bytes for each part that the footer counts, and aborts if there is not so much memory."""
    copy = shutil.copytree(mine, tmp_path / "copy")
    (file,) = (copy / f".binocle/{table}.lance/data").iterdir()
    whole = file.read_bytes()
    values = tables._FOOTER.unpack(whole[-40:])
    assert values[7] == b"LANC"
    tables._check_footer(file)
    claims = [(number, value) for number in (1, 2) for value in (2**40, 2**63, len(whole))]
    claims += [(number, values[number] + 2**31) for number in (3, 4)]
    for number, value in claims:
        footer = tables._FOOTER.pack(*values[:number], value, *values[number + 1 :])
        file.write_bytes(whole[:-40] + footer)
        damaged = Retriever.open(copy, trust=trusted)
        with pytest.raises(DamagedError, match=r"its end names parts outside of its [\d,]+ bytes"):
            damaged.verify() if trusted else damaged.search("cat", mode="lexical")
    part = values[2]
    start, size = tables._PART.unpack(whole[part : part + 16])
    for claim in ((2**40, size), (start, len(whole) - start + 1)):
        file.write_bytes(whole[:part] + tables._PART.pack(*claim) + whole[part + 16 :])
        with pytest.raises(DamagedError, match="its end names parts outside"):
            tables._check_footer(file)
    file.write_bytes(whole[:part] + tables._PART.pack(start, len(whole) - start) + whole[part + 16 :])
    tables._check_footer(file)  # up to its last byte
    file.write_bytes(whole)
    assert Retriever.open(copy, trust=trusted).search("cat", mode="lexical")


def test_tables_in_memory_and_missing_or_short_files_are_left_to_lance(tmp_path):
    tables.check_pages(lance.write_dataset(pa.table({"id": [1, 2]}), "memory://table"))
    tables._check_footer(tmp_path / "missing")  # Lance names it
    (tmp_path / "short").write_bytes(b"LANC")
    tables._check_footer(tmp_path / "short")


@pytest.mark.parametrize(
    ("table", "column"),
    [("documents", "path"), ("documents", "metadata"), ("chunks", "char_end"), ("chunks", "heading")],
)
def test_a_manifest_that_names_another_column_is_an_error(table, column, mine, tmp_path):
    """Lance then gives nulls for the column that no file has."""
    copy = shutil.copytree(mine, tmp_path / "copy")
    for manifest in (copy / f".binocle/{table}.lance/_versions").glob("*.manifest"):
        data = manifest.read_bytes()
        field = re.search(rb"\x12" + bytes([len(column)]) + column.encode() + rb"\x18(.)", data, re.DOTALL)
        assert field
        manifest.write_bytes(data[: field.start(1)] + b"\x7f" + data[field.end(1) :])
    with pytest.raises(DamagedError):
        Retriever.open(copy, trust=True).verify()


def test_a_copied_index_that_is_damaged_says_first_how_to_allow_it_and_then_how_to_repair_it(mine, tmp_path, run):
    copy = tmp_path / "copy"
    shutil.copytree(mine, copy)
    for manifest in copy.glob(".binocle/vectors/flat-*/manifest.json"):
        manifest.write_bytes(b"{}")
    (line,) = (line for line in run("status", copy).out.splitlines() if line.startswith("damage"))
    assert line.endswith(
        f"if you know where the index comes from, 'binocle trust {copy}' allows a repair, then "
        f"'binocle verify --repair {copy}' rebuilds it"
    )
