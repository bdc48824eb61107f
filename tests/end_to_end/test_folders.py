"""The scope of a search: files, globs, folders, and the folders of a collection."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import threading
import time
from pathlib import Path

import pytest

from binocle import Retriever
from binocle.commands.index import own_folder
from binocle.core.errors import InputError
from binocle.retriever.search.results.currency import changed_files
from binocle.retriever.store import collection


def paths(ran) -> set[str]:
    return {row["path"] for row in ran.rows}


# Files and globs


def test_search_takes_several_files_folders_and_globs(here: Path, run):
    def found(*scope: object) -> set[str]:
        return paths(run("search", "the", *scope, "--json", "-k", 100))

    everything = found()
    assert found("README.md") == {"README.md"}
    assert found("README.md", "notes/cats.txt") == {"README.md", "notes/cats.txt"}
    assert found("README.md", "notes/guide") == {"README.md", "notes/guide/tasks.md"}
    assert found("notes/*.md", "README.md") == {"README.md", "notes/taxes.md"}
    assert found("README.md", ".") == everything
    assert found(*sorted(file for file in here.rglob("*") if ".binocle" not in file.parts)) == everything


def test_hits_of_several_files_are_found_from_below(here: Path, run, monkeypatch):
    monkeypatch.chdir("notes/guide")
    assert paths(run("search", "the", "tasks.md", "../cats.txt", "--json")) == {
        "notes/guide/tasks.md",
        "notes/cats.txt",
    }


def test_file_of_another_folder_in_the_scope_is_an_error(here: Path, run, tmp_path):
    (tmp_path / "else.md").write_text("The cat.\n")
    ran = run("search", "the", "README.md", tmp_path / "else.md")
    assert ran.code == 2
    assert ran.err == f"binocle: {tmp_path}/else.md is not in {here}, the folder of the index at {here}/.binocle\n"
    assert run("search", "the", "README.md", "nothing.md").err == "binocle: there is no folder or file nothing.md\n"


def test_an_index_without_a_folder_has_no_part_to_search(here: Path, run, tmp_path):
    Retriever.open(tmp_path / "added", encoder=None, dim=2).add([{"id": "a", "text": "cat", "embedding": [1, 0]}])
    ran = run("search", "cat", "notes", "--index", tmp_path / "added")
    expected = f"the index at {tmp_path}/added has no folder, so notes is not in it: leave it out"
    assert (ran.code, ran.err) == (2, f"binocle: {expected}\n")


def test_scope_without_passages_is_named(here: Path, run, write):
    write(here, {"new.md": "The walrus.\n", "newer.md": "The walrus.\n"})
    ran = run("search", "walrus", "new.md", "newer.md")
    assert (ran.code, ran.err) == (1, "binocle: no document in new.md, newer.md has passages in the index\n")


# Collections


@pytest.fixture
def home(tmp_path, write, monkeypatch) -> Path:
    """A working directory with two folders that have a file of the same name, and a single file."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    home = tmp_path / "home"
    write(home / "notes", {"plan.md": "The walrus sails.\n", "sub/more.md": "The ship sails the sea.\n"})
    write(home / "work", {"plan.md": "The invoice is due.\n", "tax.txt": "Income tax is due in march.\n"})
    write(home, {"report.txt": "The report of the moon.\n", "other.txt": "The other file.\n"})
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def collected(home, run, tiny_model) -> Path:
    assert run("index", "notes", "work", "report.txt", "--name", "all", "--model", tiny_model).code == 0
    return home


def listed(run, *arguments: object) -> set[str]:
    """The absolute paths of the files that a collection has texts of."""
    return {
        f"/{row['path']}" for row in run("files", "-n", "all", *arguments, "--json").rows if row["state"] == "indexed"
    }


def test_collection_is_searched_from_anywhere_by_unambiguous_paths(collected: Path, run, monkeypatch, tmp_path):
    files = {str(collected / name) for name in ("notes/plan.md", "notes/sub/more.md", "work/plan.md", "work/tax.txt")}
    assert listed(run) == files | {str(collected / "report.txt")}
    assert run("search", "-n", "all", "walrus", "--mode", "lexical").out.startswith(" 1  notes/plan.md:1")
    monkeypatch.chdir(tmp_path / "data")
    shown = run("search", "-n", "all", "walrus", "--mode", "lexical").out
    assert shown.startswith(f" 1  {collected}/notes/plan.md:1")
    assert run("show", "-n", "all", f"{collected}/work/plan.md").out == "The invoice is due.\n\n"
    scoped = run("search", "-n", "all", "the", collected / "work", "--json", "--min-relevance", 0)
    assert {f"/{path}" for path in paths(scoped)} == {str(collected / "work/plan.md"), str(collected / "work/tax.txt")}
    assert not list(collected.rglob(".binocle"))


def test_collection_is_kept_up_to_date_and_folders_come_and_go(collected: Path, run, write):
    before = listed(run)
    write(collected, {"notes/new.md": "The new cat.\n", "more/late.md": "The late cat.\n"})
    (collected / "work/tax.txt").unlink()
    assert run("index", "-n", "all").out.startswith("1 indexed, 4 unchanged, 1 removed")
    assert run("index", "-n", "all", "more").out.startswith("1 indexed, 5 unchanged")
    after = before - {str(collected / "work/tax.txt")}
    after |= {str(collected / "notes/new.md"), str(collected / "more/late.md")}
    assert listed(run) == after
    dropped = run("index", "-n", "all", "--drop", "notes")
    assert (dropped.code, dropped.out[:24]) == (0, "3 unchanged, 3 removed; ")
    assert listed(run) == {path for path in after if "/notes/" not in path}
    assert (collected / "notes/plan.md").is_file()


def test_last_folder_stays(home: Path, run, tiny_model):
    run("index", "notes", "--name", "all", "--model", tiny_model)
    ran = run("index", "-n", "all", "--drop", "notes")
    assert (
        ran.err
        == "binocle: a collection holds one folder at least: 'binocle collections --remove NAME' removes a named one\n"
    )
    ran = run("index", "-n", "all", "--drop", "work")
    assert ran.err == f"binocle: work is not one of the folders of the collection: {home}/notes\n"
    assert len(listed(run)) == 2


def test_folder_twice_in_another_or_by_a_link_is_held_once(home: Path, run, tiny_model):
    (home / "link").symlink_to("notes")
    run("index", "notes", "./notes/", "notes/sub", "link", "notes/plan.md", "-n", "all", "--model", tiny_model)
    assert listed(run) == {str(home / "notes/plan.md"), str(home / "notes/sub/more.md")}
    (collection,) = run("collections", "--json").rows
    assert collection["folders"] == [str(home / name) for name in ("notes", "notes/plan.md", "notes/sub")]
    assert run("index", "-n", "all", "--drop", "notes").out.startswith("2 unchanged;")
    assert run("index", "-n", "all", "--drop", "link/sub").out.startswith("1 unchanged, 1 removed;")


def test_hidden_or_ignored_folder_that_is_named_is_read(home: Path, run, write, tiny_model):
    write(home, {"notes/.hidden/a.md": "The cat.\n", "notes/build/b.md": "The dog.\n", "notes/.gitignore": "build/\n"})
    run("index", "notes", "-n", "all", "--model", tiny_model)
    before = listed(run)
    run("index", "notes/.hidden", "notes/build", "-n", "all")
    assert listed(run) - before == {str(home / "notes/.hidden/a.md"), str(home / "notes/build/b.md")}


def test_names_of_collections_are_listed_even_if_one_may_not_be_read(home: Path, monkeypatch, tmp_path):
    assert collection.collection_names() == []
    folder = tmp_path / "data/binocle/collections"
    for name in ("b", "a", ".x", "c"):
        (folder / name / "chunks.lance").mkdir(parents=True)
        (folder / name / ("other.txt" if name == "c" else "HEAD.json")).write_text("{}")
    assert collection.collection_names() == ["a", "b"]

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(collection, "is_index", denied)
    assert collection.collection_names() == ["a", "b", "c"]


@pytest.mark.parametrize("how", ["gone", "file gone", "empty"])
def test_folder_that_is_gone_is_not_taken_for_deletions(how: str, collected: Path, run, write):
    write(collected / "notes", {f"{number}.md": f"The cat {number}.\n" for number in range(4)})
    run("index", "-n", "all")
    before = listed(run)
    away = collected / ("report.txt" if how == "file gone" else "notes")
    away.rename(collected / "away")
    if how == "empty":
        away.mkdir()
    ran = run("index", "-n", "all")
    assert ran.code == 1
    assert "is a disk not mounted?" in ran.err
    assert (str(away) in ran.err) == (how != "empty")
    assert f"'binocle index --name all {'--yes' if how == 'empty' else '--drop FOLDER'}'" in ran.err
    assert listed(run) == before
    if how == "empty":
        away.rmdir()
    (collected / "away").rename(away)
    assert run("index", "-n", "all").code == 0
    assert listed(run) == before
    away.rename(collected / "away")
    assert run("index", "-n", "all", "--yes").code == 0
    assert listed(run) == {path for path in before if not path.startswith(str(away))}


def test_search_names_a_folder_that_is_gone_and_finds_its_texts(collected: Path, run, monkeypatch):
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.delenv("VISUAL", raising=False)
    notes = collected / "notes"
    shutil.rmtree(notes)
    (collected / "work/plan.md").write_text("The invoice was paid.\n")
    missing = f"binocle: {notes} of the collection is not there: is a disk not mounted? "
    missing += f"'binocle index --drop {notes} --name all' takes it out\n"
    outcome = run("search", "-n", "all", "walrus", "--mode", "lexical")
    assert (outcome.out.splitlines()[0], outcome.err) == (" 1  notes/plan.md:1", missing)
    changed = "binocle: one of these files was changed or removed after indexing: 'binocle index --name all' "
    both = run("search", "-n", "all", "walrus invoice", "--mode", "lexical")
    assert both.err == missing + changed + "brings the index up to date\n"
    assert run("search", "-n", "all", "moon", "--mode", "lexical").err == ""
    opened = run("search", "-n", "all", "walrus", "--mode", "lexical", "--open")
    gone = f"--open: {notes}/plan.md is not there: it was removed after indexing, or its disk is not mounted"
    assert (opened.code, opened.err) == (2, f"binocle: {gone}\n")
    snapshot = Retriever.open(collection.collection_path("all")).snapshot()
    cited = [str(collected / name)[1:] for name in ("notes/plan.md", "work/plan.md")]
    assert changed_files(snapshot, Path("/"), cited) == cited[1:]


def test_collections_are_listed_and_removed_and_their_files_stay(collected: Path, run, tmp_path):
    run("index", "notes", "-n", "one more ü.x")
    shown = run("collections")
    assert shown.out.count("changed") == 2
    assert "one more ü.x  (" in shown.out
    assert f"    {collected}/notes\n" in shown.out
    assert run("collections", "--remove", "all").out.startswith("all  (")
    assert [row["name"] for row in run("collections", "--json").rows] == ["one more ü.x"]
    assert not (tmp_path / "data/binocle/collections/all").exists()
    assert (collected / "notes/plan.md").is_file()
    assert run("search", "-n", "all", "cat").err.startswith("binocle: there is no collection 'all': there are one more")
    (tmp_path / "data/binocle/collections/one more ü.x").rename(tmp_path / "data/binocle/collections/.x")
    assert "no collection yet" in run("collections").err  # as a removal leaves it that was killed
    (tmp_path / "data/binocle/collections/.x").rename(tmp_path / "data/binocle/collections/x")
    assert [row["name"] for row in run("collections", "--json").rows] == ["x"]
    run("collections", "--remove", "x")
    assert "no collection yet" in run("collections").err


def test_damaged_collection_is_removed(collected: Path, run, tmp_path):
    path = tmp_path / "data/binocle/collections/all"
    (path / "settings.json").write_text("{")
    header, problem = run("collections").out.splitlines()
    assert header.endswith(", cannot be read)")
    assert "'binocle collections --remove all'" in problem
    removed = run("collections", "--remove", "all")
    assert (removed.code, "settings.json" in removed.out, path.exists()) == (0, False, False)


def test_collection_is_removed_while_a_writer_takes_a_ticket_in_it(collected: Path, run, tmp_path, monkeypatch):
    removed, tickets, rmdir = tmp_path / "data/binocle/collections/.all", ["waiting"], os.rmdir

    def taken(path, **options):
        if str(path) == str(removed) and tickets:
            (removed / tickets.pop()).touch()
        rmdir(path, **options)

    monkeypatch.setattr(os, "rmdir", taken)
    assert run("collections", "--remove", "all").code == 0
    assert not tickets
    assert not list(removed.parent.iterdir())


def test_removal_of_a_collection_that_is_being_written_names_what_helps(collected: Path, run):
    with Retriever.open(collection.collection_path("all"))._index.writer():
        ran = run("collections", "--remove", "all")
    assert ran.code == 2
    assert ran.err.endswith(": try again when it has finished, or end that process\n")
    assert run("collections").out.startswith("all  (")


def test_linked_collection_is_not_removed(collected: Path, run, tmp_path):
    place = tmp_path / "data/binocle/collections"
    (place / "all").rename(tmp_path / "elsewhere")
    (place / "all").symlink_to(tmp_path / "elsewhere")
    assert "is a symbolic link" in run("collections", "--remove", "all").err
    assert (tmp_path / "elsewhere/HEAD.json").is_file()


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "-a", "a/b", "a\\b", "a\nb", " a", "a\u202eb", "a" * 201])
def test_name_that_is_no_folder_is_refused(name: str, home: Path, run):
    for words in (["index", "notes"], ["search", "cat"]):
        ran = run(*words, f"--name={name}")
        assert (ran.code, ran.out) == (2, "")
        assert "the name of a collection" in ran.err or "cannot name a collection" in ran.err
    assert not (home.parent / "data").exists()


def test_trust_of_a_collection_names_its_folders(collected: Path, run):
    held = f"of the folders {collected}/notes, {collected}/report.txt, {collected}/work, with the encoder "
    assert held in run("trust", "-n", "all").out


def test_misspelt_collection_makes_nothing(collected: Path, run):
    assert run("index", "-n", "al").err == "binocle: there is no collection 'al': is it 'all'?\n"
    assert run("search", "-n", "al", "cat").err == "binocle: there is no collection 'al': is it 'all'?\n"
    assert run("index", "-n", "all", "nothing").err == "binocle: there is no folder or file nothing\n"
    assert "give one of them" in run("search", "-n", "all", "--index", "x", "cat").err
    assert "--name NAME" in run("index", "notes", "work").err
    assert "--name NAME" in run("index", "other.txt").err


def test_collection_is_an_index_like_any_other(collected: Path, run, tmp_path):
    place = tmp_path / "data/binocle/collections/all"
    before = listed(run)
    assert run("index", "--index", place).out.startswith("5 unchanged;")  # and the current folder is not added
    retriever = Retriever.open(place)
    assert retriever.sync().unchanged == retriever.sync(collected / "notes").unchanged == 5
    with pytest.raises(InputError, match=r"a collection without .*other\.txt: .* sync\(\[folder\]\) adds it"):
        retriever.sync(collected / "other.txt")
    assert retriever.folder == Path("/")
    assert retriever.folders == [collected / "notes", collected / "report.txt", collected / "work"]
    assert run("index", collected / "other.txt", "--index", place).out.startswith("1 indexed, 5 unchanged")
    assert listed(run) == before | {str(collected / "other.txt")}
    assert retriever.verify().faults == []


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_index_of_an_earlier_version_among_the_collections(number: int, home: Path, run, tmp_path, tiny_model):
    place = tmp_path / "data/binocle/collections/old"
    with tarfile.open(Path(__file__).parents[1] / f"retriever/store/formats/{number}.tar.xz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
        tar.extractall(place)
    (collection,) = run("collections", "--json").rows
    assert (collection["name"], collection["problem"]) == ("old", "")
    assert run("search", "-n", "old", "ship", "--mode", "lexical").code == 0
    (place / "settings.json").write_text("{")
    assert ", cannot be read)" in run("collections").out


def test_settings_that_binocle_did_not_write_are_refused(collected: Path, run, tmp_path):
    settings = tmp_path / "data/binocle/collections/all/settings.json"
    text = settings.read_text()
    folders: list = [["home"], ["/home/../etc"], "/", [3], [""], ["/a\0b"]]
    changes = [{"folders": value} for value in folders]
    changes += [{"folder": ".."}, {"exclude": "*.log"}, {"exclude": [["*.log"]]}, {"more": []}]
    for change in changes:
        settings.write_text(json.dumps(json.loads(text) | change))
        for words in (["search", "cat"], ["index"]):
            ran = run(*words, "-n", "all")
            assert (ran.code, ran.out) == (2, "")
            assert "is not what was written" in ran.err


def test_index_of_one_folder_keeps_its_ids(here: Path, run, tmp_path, write):
    write(tmp_path / "else", {"a.md": "The cat.\n"})
    before = run("files", "--json").out
    ran = run("index", ".", tmp_path / "else", "--index", ".binocle")
    assert f"is of one folder, {here}: several folders need a collection" in ran.err
    assert run("index", ".", "--index", ".binocle").code == 0
    assert run("files", "--json").out == before


def test_collection_named_in_the_configuration_answers_where_there_is_no_index(
    collected: Path, run, tmp_path, monkeypatch
):
    monkeypatch.setenv("BINOCLE_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text('collection = "all"\n')
    assert run("search", "walrus", "--mode", "lexical").out.startswith(" 1  notes/plan.md:1")
    assert paths(run("search", "the", "work/plan.md", "--json")) == {f"{collected}/work/plan.md"[1:]}
    note = f"binocle: there is no index here, so this is the collection all that {tmp_path / 'config.toml'} names\n"
    assert run("optimize").err.startswith(note)
    assert run("forget", "work/plan.md").err == note
    assert run("search", "walrus", "--mode", "lexical").err == ""
    (tmp_path / "config.toml").write_text('collection = "al"\n')
    err = run("search", "walrus").err
    assert err == f"binocle: {tmp_path / 'config.toml'}: there is no collection 'al': is it 'all'?\n"
    (tmp_path / "config.toml").write_text('collection = "all"\n')
    assert run("index", "--json").rows[0]["files"]["indexed"] == 6
    assert Path(".binocle").is_dir()


def test_no_command_acts_on_an_index_of_other_documents_than_those_of_its_folder(
    collected: Path, run, tmp_path, write, monkeypatch
):
    write(tmp_path / "strange", {"a.md": "The cat.\n"})
    write(tmp_path / "one", {"b.md": "The walrus.\n"})
    assert run("index", tmp_path / "one").code == 0
    monkeypatch.setenv("BINOCLE_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text('collection = "all"\n')
    for command in ("status", "rollback", "optimize", "verify", "enrich"):
        ran = run(command, tmp_path / "strange")
        assert (ran.code, ran.out) == (2, "") and f"no index in {tmp_path / 'strange'} or above it" in ran.err
        ran = run(command, tmp_path / "strange", "-n", "all")
        assert f"{tmp_path / 'strange'} is not in the collection at " in ran.err
        ran = run(command, tmp_path / "strange", "--index", tmp_path / "one/.binocle")
        assert f"{tmp_path / 'strange'} is not in {tmp_path / 'one'}, the folder of the index at " in ran.err
    assert run("status").code == run("status", collected / "work", "-n", "all").code == 0


def test_a_folder_of_another_index_is_refused_wherever_the_index_is_named(
    here: Path, collected: Path, run, tmp_path, write, monkeypatch
):
    write(tmp_path / "else", {"README.md": "The cat.\n"})
    other = tmp_path / "else"
    expected = f"binocle: {other} is not in {here}, the folder of the index at {here}/.binocle\n"
    monkeypatch.setenv("BINOCLE_INDEX", str(here / ".binocle"))
    for command in (["rollback"], ["status"], ["verify"], ["trust"], ["forget", "README.md"]):
        ran = run(*command, other)
        assert (ran.code, ran.err) == (2, expected)
    assert run("status", here / "notes").code == 0
    monkeypatch.delenv("BINOCLE_INDEX")
    assert f"{other} is not in the collection at " in run("status", other, "-n", "all").err
    monkeypatch.setenv("BINOCLE_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text('collection = "all"\n')
    assert f"no index in {other} or above it" in run("rollback", other).err


def test_a_model_in_the_configuration_counts_only_with_its_option(here: Path, run, tmp_path, monkeypatch):
    monkeypatch.setenv("BINOCLE_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text('[search]\nreader = "no-reader"\ninverter = "no-inverter"\n')
    assert run("search", "cheese", "--mode", "lexical").code == 0
    assert "--reader goes with --answer" in run("search", "cheese", "--reader", "x").err
    assert "--inverter goes with --explain" in run("search", "cheese", "--inverter", "x").err


def test_a_pattern_from_a_pipe_loses_its_last_line_break(here: Path, run):
    assert run("search", "--fixed", "-", stdin=b"cheese\n").code == 0
    assert run("search", "--regex", "-", stdin=b"chee.e\n").code == 0
    assert "a pattern of one line" in run("search", "--fixed", "a\nb").err


def test_an_open_quote_in_the_name_of_the_editor_is_one_line(here: Path, run, monkeypatch):
    monkeypatch.setenv("VISUAL", "vi '")
    ran = run("search", "cheese", "--mode", "lexical", "--open")
    assert (ran.code, ran.err) == (2, 'binocle: the editor "vi \'" cannot be read as a command: No closing quotation\n')


def test_a_removed_current_folder_is_named_and_a_named_index_needs_none(collected: Path, run, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ran = run("status")
    assert (ran.code, ran.err) == (
        2,
        "binocle: the current folder was removed: name the FOLDER, or go to another one\n",
    )
    assert run("status", "-n", "all").code == 0


def test_files_in_the_folder_of_a_new_collection_ask_for_another_name(collected: Path, run, tmp_path, write):
    write(tmp_path / "data/binocle/collections/half", {"strange.txt": "not an index"})
    err = run("index", collected, "--name", "half").err
    assert "half is not empty and not a whole index: give another --name" in err


def test_an_interrupted_removal_of_a_collection_is_finished_by_the_same_command(collected: Path, run, tmp_path):
    home = tmp_path / "data/binocle/collections"
    (home / "all").rename(home / ".all")
    ran = run("collections", "--remove", "all")
    assert ran.code == 0 and ran.out.startswith("all  (")
    assert not list(home.iterdir())
    assert "there is no collection 'all'" in run("collections", "--remove", "all").err


# The folder of --index


def test_index_and_watch_without_a_folder_take_that_of_the_index(here: Path, run, tmp_path, monkeypatch, tiny_model):
    assert run("index", here, "--index", tmp_path / "index", "--model", tiny_model).code == 0
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    (here / "new.md").write_text("The walrus.\n")
    assert run("index", "--index", tmp_path / "index").out.startswith("1 indexed, ")
    assert list((tmp_path / "else").iterdir()) == []
    assert own_folder(Retriever.open(tmp_path / "index")) == here
    assert own_folder(Retriever.open(tmp_path / "else")) is None
    monkeypatch.setattr("binocle.retriever.servers.watch.watch", lambda *_, **__: [])
    assert run("watch", "--index", tmp_path / "index").err == f"watching {here}; Ctrl-C ends it\n"
    renamed = here.rename(tmp_path / "renamed")
    monkeypatch.chdir(renamed)  # the index lies elsewhere and names the old path
    assert "unchanged" in run("index", "--index", tmp_path / "index").out


# Excluded patterns


def test_excluded_files_are_remembered_shown_and_taken_back(here: Path, run):
    def indexed() -> set[str]:
        return {row["path"] for row in run("files", "--json").rows if row["state"] == "indexed"}

    before = indexed()
    run("index", "--exclude", "notes/guide/", "--exclude", "*.csv")
    assert indexed() == before - {"notes/guide/tasks.md", "data/prices.csv"}
    assert "(ignored by --exclude)" in run("files").out
    assert "notes/guide/, *.csv" in run("status").out
    assert run("status", "--json").rows[0]["exclude"] == ["notes/guide/", "*.csv"]
    run("index")
    run("index", "--exclude", "!*.csv")
    assert indexed() == before - {"notes/guide/tasks.md"}
    run("index", "--no-exclude")
    assert indexed() == before
    assert "\nexcluded" not in run("status").out


def test_ocr_is_remembered_shown_and_ended(here: Path, run, write, tmp_path, monkeypatch):
    write(tmp_path, {"commands/tesseract": '#!/bin/sh\n[ "$1" = --list-langs ] && echo eng || head -c 15\n'})
    (tmp_path / "commands/tesseract").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/commands:{os.environ['PATH']}")
    run("index", "--ocr")
    assert run("status", "--json").rows[0]["ocr"] == "eng"
    assert "\npictures   read in eng ('binocle index --no-ocr' undoes it)" in run("status").out
    write(here, {"cat.png": "a cat in a boat"})
    assert "pictures are read in eng: " in run("index").err
    assert run("index", "--no-ocr").err == ""
    assert "a cat in a boat" in run("show", "cat.png").out
    assert "\npictures" not in run("status").out


def test_pattern_that_matches_nothing_is_an_error(here: Path, run):
    for pattern in ("", "# note", "[a", "a\nb"):
        ran = run("index", "--exclude", pattern)
        assert (ran.code, ran.out) == (2, "")
        assert "pattern" in ran.err
    assert run("status", "--json").rows[0]["exclude"] == []


def test_earlier_versions_refuse_an_index_with_exclusions(here: Path, run):
    def version() -> int:
        return json.loads((here / ".binocle/settings.json").read_text())["format"]

    assert version() == 4
    run("index", "--exclude", "*.csv")
    assert version() == 5
    run("index", "--no-exclude")
    assert version() == 4


def test_collection_that_cannot_be_read_hides_no_other_one(collected: Path, run, tmp_path):
    other = tmp_path / "data/binocle/collections/closed"
    (other / "chunks.lance").mkdir(parents=True)
    (other / "HEAD.json").write_text("{}")
    settings = tmp_path / "loop"
    settings.symlink_to(settings)
    (other / "settings.json").symlink_to(settings)
    lines = run("collections").out
    assert "all  (" in lines
    assert "closed  (" in lines
    assert ", cannot be read)\n    " in lines


def test_collections_that_cannot_be_listed_are_an_error(home: Path, run, tmp_path):
    (tmp_path / "data/binocle").mkdir(parents=True)
    (tmp_path / "data/binocle/collections").write_text("")
    ran = run("collections")
    assert (ran.code, ran.out) == (2, "")
    assert "collections cannot be listed (Not a directory): XDG_DATA_HOME moves them" in ran.err


def test_collection_is_removed_in_one_step_for_a_writer_that_waits(collected: Path, run, tmp_path, monkeypatch):
    path, remove = tmp_path / "data/binocle/collections/all", shutil.rmtree
    failures, started, writers = [], [], [Retriever.open(path, wait=20) for _ in range(2)]

    def write(writer: Retriever) -> None:
        try:
            writer.add([{"id": "late", "text": "The late cat."}])
        except Exception as error:  # else the removal would wait
            failures.append(f"{type(error).__name__}: {error}")

    def remove_late(folder: Path, **options: object) -> None:
        if not started:  # of an earlier removal: the collection is still there
            started.append(True)
            for thread in threads:
                thread.start()
            while len(list(path.glob("waiting-*"))) < 2:
                time.sleep(0.01)
        else:
            while len(failures) < 2:
                time.sleep(0.01)
        remove(folder, **options)

    threads = [threading.Thread(target=write, args=[writer]) for writer in writers]
    monkeypatch.setattr(collection.shutil, "rmtree", remove_late)
    assert run("collections", "--remove", "all").code == 0
    for thread in threads:
        thread.join()
    assert failures == [f"NoIndexError: another process removed {path}: 'binocle index' makes it anew"] * 2
    assert list(path.parent.iterdir()) == []


def test_relative_folder_of_data_is_ignored(home: Path, run, tiny_model, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    assert run("index", "notes", "--name", "all", "--model", tiny_model).code == 0
    assert (tmp_path / "user/.local/share/binocle/collections/all").is_dir()


def test_folder_with_a_line_break_in_its_name_takes_one_line(home: Path, run, tiny_model):
    odd = home / "odd\nname"
    odd.mkdir()
    (odd / "a.md").write_text("The ship sails.\n")
    assert run("index", "notes", odd, "--name", "all", "--model", tiny_model).code == 0
    assert "home/odd\\nname\n" in run("status", "-n", "all").out
    (odd / "a.md").unlink()
    odd.rmdir()
    ran = run("index", "-n", "all")
    assert ran.code == 1
    assert "home/odd\\nname; the index keeps their documents (1): " in ran.err


def test_filter_on_a_part_of_the_path_as_the_guide_has_it(collected: Path, run):
    ran = run(
        "search", "ship walrus invoice", "-n", "all", "--where", "path=**/notes/**", "--min-relevance", 0, "--json"
    )
    assert {Path(path).name for path in paths(ran)} == {"plan.md", "more.md"}
    assert all("/notes/" in path for path in paths(ran))


def test_collection_is_served_by_its_name(collected: Path, run):
    assert "there is no collection 'al': is it 'all'?" in run("serve", "-n", "al").err
    assert "other machines may reach 0.0.0.0" in run("serve", "-n", "all", "--host", "0.0.0.0").err  # it was opened


@pytest.mark.parametrize("lists", [{"drop": 3}, {"drop": "a"}, {"drop": [3]}, {"drop": ["\0"]}, {"exclude": 3}])
def test_sync_takes_lists_of_folders_and_patterns(here: Path, retriever, lists):
    with pytest.raises(InputError, match="expected a"):
        retriever.sync(**lists)
