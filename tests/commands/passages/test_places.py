"""Where a search looks, and how it leads to the places that it found."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
import zipfile
from pathlib import Path

import click
import pytest

from binocle import Retriever
from binocle.commands import index as index_module
from binocle.commands.index_lookup import folder_filter
from binocle.commands.passages.places import document_url, editor_command
from binocle.core.errors import InputError, NoIndexError


@pytest.fixture
def notes(here: Path, run, write):
    write(here, {"a (1)/x y.md": "a ship at sea\n", "a (1)/z.txt": "a ship in port\n", "ship.md": "one more ship\n"})
    run("index", ".")
    return here


def paths(result):
    return sorted(json.loads(line)["path"] for line in result.out.splitlines())


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("a (1)", ["a (1)/x y.md", "a (1)/z.txt"]),
        ("a (1)/x y.md", ["a (1)/x y.md"]),
        ("a (1)/*.md", ["a (1)/x y.md"]),
        ("*/*.txt", ["a (1)/z.txt"]),
        ("**/[xz]*", ["a (1)/x y.md", "a (1)/z.txt"]),
    ],
)
def test_a_search_looks_in_a_folder_a_file_or_a_glob(scope, expected, notes, run):
    assert paths(run("search", "ship", scope, "--mode", "lexical", "--json")) == expected
    assert paths(run("search", "--fixed", "ship", scope, "--json")) == expected
    assert paths(run("search", "ship", notes / scope, "--mode", "lexical", "--json")) == expected


@pytest.mark.parametrize(
    ("scope", "expected"),
    [("d", ["d/[x]/o[1].md", "d/y.md"]), ("d/[x]/o[1].md", ["d/[x]/o[1].md"]), ("*/y*", ["d/y.md"]), ("none.md", [])],
)
def test_a_search_looks_in_the_members_of_an_archive_by_their_paths(scope, expected, here, run):
    with zipfile.ZipFile(here / "a.zip", "w") as archive:
        for name in ("d/[x]/o[1].md", "d/y.md", "z.md"):
            archive.writestr(name, "a ship at sea\n")
    run("index", ".")
    scope, expected = f"a.zip/{scope}", [f"a.zip/{name}" for name in expected]
    assert paths(run("search", "ship", scope, "--copies", "-l", "--json")) == expected
    assert paths(run("files", scope, "--json")) == expected


def test_a_file_or_a_glob_that_is_not_there_is_said(notes, run):
    assert run("search", "ship", "none.md").err == "binocle: there is no folder or file none.md\n"
    result = run("search", "ship", "*.pdf")
    assert (result.code, result.err) == (1, "binocle: no document in *.pdf has passages in the index\n")


def test_index_takes_the_current_folder(tmp_path: Path, run, write, monkeypatch, tiny_model):
    write(tmp_path, {"one.md": "a ship"})
    monkeypatch.chdir(tmp_path)
    assert run("index", "--model", tiny_model).out.startswith("1 indexed; ")


def test_where_there_is_no_index_a_person_is_asked(tmp_path: Path, run, write, monkeypatch, tiny_model):
    write(tmp_path, {"one.md": "a ship"})
    monkeypatch.chdir(tmp_path)
    assert run("search", "ship", "--model", tiny_model).err.startswith(
        "binocle: no index in "
    )  # no terminal: not asked
    monkeypatch.setattr(index_module, "is_interactive", lambda: True)
    questions = []
    monkeypatch.setattr(click, "confirm", lambda text, **_: bool(questions.append(text)))
    assert run("search", "ship", "--model", tiny_model).code == 2
    (tmp_path / "image.png").write_bytes(b"")
    assert run("search", "ship", "one.md", "--model", tiny_model).code == 2
    assert questions == ["There is no index of . yet. Index it now (1 file, less than a minute)?"] * 2
    monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
    result = run("search", "ship", "--model", tiny_model)
    assert result.code == 0
    assert result.out.startswith(" 1  one.md:1\n")


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux says who holds a lock")
def test_a_search_says_that_the_index_is_being_made(tmp_path: Path, run, monkeypatch, tiny_model):
    (tmp_path / "folder").mkdir()
    retriever = Retriever.open(tmp_path / "folder/.binocle", model=tiny_model)
    retriever.sync(tmp_path / "folder")
    for number in range(3):
        (tmp_path / f"folder/{number}.md").write_text("a ship")
    monkeypatch.chdir(tmp_path / "folder")
    with retriever.location.locked():
        result = run("search", "ship", "--mode", "lexical")
    assert result.code == 1
    assert result.err.startswith(f"binocle: process {os.getpid()} on ")
    assert f"is making the index at {retriever.path}, 0 of about 3 files so far: search again" in result.err
    assert "holds no passages yet" in run("search", "ship", "--mode", "lexical").err


@pytest.mark.parametrize(
    ("editor", "expected"),
    [
        ("vim", ["vim", "+7", "/x/a b.md"]),
        ("/usr/bin/emacsclient -t", ["/usr/bin/emacsclient", "-t", "+7", "/x/a b.md"]),
        ("nano", ["nano", "+7", "/x/a b.md"]),
        ("code --wait", ["code", "--wait", "-g", "/x/a b.md:7"]),
        ("hx", ["hx", "/x/a b.md:7"]),
        ("unknown", ["unknown", "/x/a b.md"]),
    ],
)
def test_each_editor_is_told_the_line_in_its_own_way(editor, expected):
    assert editor_command(editor.split(), Path("/x/a b.md"), 7) == expected


def test_open_starts_the_editor_without_a_shell(notes, run, monkeypatch, write):
    write(notes, {"$(touch pwned);.md": "\n\nquinces\n"})
    run("index", ".")
    script = notes / "vim"
    script.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\npathlib.Path('arguments').write_text(repr(sys.argv[1:]))\n"
    )
    script.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(script))
    monkeypatch.delenv("VISUAL", raising=False)
    assert run("search", "quinces", "--mode", "lexical", "--open").code == 0
    assert (notes / "arguments").read_text() == repr(["+3", str(notes / "$(touch pwned);.md")])
    assert not (notes / "pwned").exists()


def test_open_says_what_it_needs(notes, run, monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "")
    assert "--open needs an editor" in run("search", "ship", "--open").err
    monkeypatch.setenv("EDITOR", "/nowhere/vim")
    assert "cannot start the editor '/nowhere/vim'" in run("search", "ship", "--open").err


def test_a_path_that_leads_out_of_the_folder_is_no_link(notes, run):
    (hit,) = Retriever.open(notes).search("ship", 1, where="path=ship.md")
    from dataclasses import replace

    assert document_url(hit, notes) == (notes / "ship.md").as_uri()
    assert document_url(replace(hit, path="a\x1b]b"), notes).endswith("/a%1B%5Db")
    for path in ("../ship.md", "/etc/passwd", "a/../../b"):
        assert document_url(replace(hit, path=path), notes) == ""
    assert document_url(replace(hit, source="added"), notes) == ""
    assert document_url(hit, None) == ""


def test_a_symbolic_link_is_forgotten_for_itself_and_shown_as_its_target(notes, run):
    (notes / "link.md").symlink_to("ship.md")
    result = run("forget", "link.md")
    assert (result.code, result.out) == (2, "")
    assert result.err == "binocle: 'link.md' is not in the index: is it 'ship.md'? 'binocle files' lists its files\n"
    assert "one more ship" in run("show", "link.md").out
    (notes / "ship.md").unlink()
    (notes.parent / "secret.md").write_text("x")
    (notes / "ship.md").symlink_to(notes.parent / "secret.md")
    assert "one more ship" in run("show", "ship.md").out
    assert run("forget", "ship.md").out == "1 document forgotten\n"


def test_a_name_leads_to_its_file_as_output_shows_it(notes, run, write):
    texts = {
        "odd/a\nb.md": "plum jam\n",
        "odd/a\\nb.md": "plum pie\n",
        "o\x1bdd/c.md": "plum cake\n",
        "C:\\d.md": "plum\n",
    }
    write(notes, texts)
    run("index", ".")
    shown = {line.split("  ")[1] for line in run("files").out.splitlines() if line.startswith("indexed")}
    assert shown >= {"odd/a\\nb.md", "odd/a\\\\nb.md", "o\\x1bdd/c.md", "C:\\d.md"}
    assert run("show", "odd/a\\\\nb.md").out == "plum pie\n\n"
    assert run("show", "o\\x1bdd/c.md:1").out == "plum cake\n"
    assert run("show", "C:\\d.md").out == "plum\n\n"
    assert run("similar", "o\\x1bdd/c.md:1").code == 0
    both = run("forget", "odd/a\\nb.md")
    assert (both.code, both.out) == (2, "") and "shown for another, 'odd/a\\nb.md'" in both.err
    assert run("forget", "odd/a\\\\nb.md").out == "1 document forgotten\n"
    assert run("show", "odd/a\\nb.md").out == "plum jam\n\n"
    assert run("forget", "odd/a\\nb.md").out == "1 document forgotten\n"
    again = run("forget", "o\\x1bdd"), run("forget", "o\\x1bdd/c.md")
    assert [ran.out for ran in again] == ["1 document forgotten\n", "o\\x1bdd/c.md was forgotten already\n"]


def test_open_opens_nothing_outside_of_the_folder(notes, monkeypatch):
    from dataclasses import replace

    from binocle.commands.passages.places import open_in_editor

    monkeypatch.setenv("EDITOR", "false")
    (hit,) = Retriever.open(notes).search("ship", 1, where="path=ship.md")
    (notes.parent / "secret.md").write_text("x")
    (notes / "link.md").symlink_to(notes.parent / "secret.md")
    (notes / "data.bin").write_bytes(b"\0\1")
    for path in ("../secret.md", "link.md", "missing.md", "data.bin"):
        with pytest.raises(InputError):
            open_in_editor(replace(hit, path=path), notes)


@pytest.mark.filterwarnings("default")
def test_a_user_without_a_home_searches_a_folder_and_has_no_collections(tmp_path, run, write, without_home, tiny_model):
    write(tmp_path / "docs", {"one.md": "a ship at sea\n"})
    assert "Defaults:" not in run("--help").out
    ran = run("index", tmp_path / "docs", "--model", tiny_model)
    assert ran.code == 0
    assert re.match("warning: this user has no home folder, so .* is read-only in later runs: ", ran.err)
    assert [row["path"] for row in run("search", "ship", tmp_path / "docs", "--json").rows] == ["one.md"]
    expected = "binocle: this user has no home folder: set HOME, or XDG_DATA_HOME, to an absolute path\n"
    assert (run("collections").err, run("index", tmp_path / "docs", "-n", "all").err) == (expected, expected)


def test_a_path_that_no_shell_expanded_is_below_the_home_folder(notes, run, monkeypatch):
    monkeypatch.setenv("HOME", str(notes.parent))
    folder = f"~/{notes.name}"
    assert paths(run("search", "ship", f"{folder}/a (1)/*.txt", "--json")) == ["a (1)/z.txt"]
    assert run("index", folder).code == run("files", folder).code == 0
    assert run("label", folder, "--as", "a,b", f"--examples={folder}/none").err.startswith(
        f"binocle: Invalid value for '--examples': File '{notes}/none' does not exist."
    )
    assert run("files", "~nobody-of-that-name").err == "binocle: there is no folder or file ~nobody-of-that-name\n"


def test_a_citation_that_no_shell_expanded_is_below_the_home_folder(notes, run, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(notes.parent))
    for folder in (notes, tmp_path):  # its index is that of the current folder, or the one above it
        monkeypatch.chdir(folder)
        assert run("show", f"~/{notes.name}/ship.md:1").out == "one more ship\n"
        assert run("similar", f"~/{notes.name}/ship.md:1", "--json").rows
    assert run("show", "~/none.md", notes).err.startswith("binocle: '~/none.md' is not in the index")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_name_is_found_however_its_accents_are_written(form, here: Path, run, write, tmp_path, monkeypatch):
    name = "Übung/é.txt"
    write(here, {unicodedata.normalize(form, name): "a ship at sea\n"})
    run("index", ".")
    for other in ("NFC", "NFD"):
        typed = unicodedata.normalize(other, name)
        for scope in (typed, typed.split("/")[0], f"{typed.split('/')[0]}/*.txt"):
            assert len(run("search", "ship", scope, "--mode", "lexical", "--json").rows) == 1
        assert run("show", f"{typed}:1").out == "a ship at sea\n"
        assert Retriever.open(here).text(typed) == "a ship at sea\n"
        monkeypatch.chdir(tmp_path)
        assert run("show", typed, here).out == run("show", here / typed).out == "a ship at sea\n\n"
        monkeypatch.chdir(here)
    assert run("forget", typed).out == "1 document forgotten\n"


@pytest.mark.parametrize("name", ["gs://bucket/x", "S3://bucket/x", "az://x", "file:///tmp/x"])
def test_a_store_that_is_not_supported_makes_no_folder_of_that_name(name, here, run):
    before = sorted(here.iterdir())
    expected = f"{name} is in no store that is supported: expected a folder, or s3://BUCKET/PREFIX"
    for command in (["index", "."], ["search", "cat"], ["serve"]):
        assert run(*command, "--index", name).err == f"binocle: {expected}\n"
    with pytest.raises(InputError, match=f"^{expected}$"):
        Retriever.open(name)
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize("command", [["train", "inverter", "--out", "o", "--index"], ["trust"], ["verify"], ["index"]])
def test_object_storage_is_no_folder_of_this_machine(command, here, run):
    assert "s3://bucket/x is on object storage: expected a " in run(*command, "s3://bucket/x").err


def test_an_index_on_object_storage_is_named_by_its_address(here):
    class Bucket:
        cache = here / "cache"

        def __str__(self):
            return "s3://bucket/x"

        def exists(self, _file):
            return False

    with pytest.raises(InputError, match="the index at s3://bucket/x has no folder"):
        folder_filter(here, None, Bucket())
    with pytest.raises(NoIndexError, match="'binocle index FOLDER --index s3://bucket/x'"):
        Retriever(Bucket()).search("cat")


def test_an_index_is_not_opened_by_the_address_of_a_server(here, run):
    assert "open it by RemoteRetriever" in run("status", "--index", "http://localhost:8420").err


def test_index_without_a_folder_takes_the_index_that_a_search_there_takes(notes, run, monkeypatch, write):
    write(notes, {"a (1)/new.md": "a ship below\n", "beside.md": "a ship beside\n"})
    monkeypatch.chdir(notes / "a (1)")
    ran = run("index")
    assert ran.out.startswith("2 indexed, 10 unchanged")
    here = "'binocle index .' makes one of the current folder alone"
    assert ran.err == f"binocle: this is the index of {notes}, the nearest above; {here}\n"
    assert not Path(".binocle").exists()
    assert run("index", ".").out.startswith("3 indexed")
    assert run("index").out.startswith("3 unchanged")


def test_index_without_a_folder_below_an_index_of_added_documents_makes_one_here(tmp_path, run, monkeypatch, write):
    write(tmp_path, {"here/a.md": "a ship"})
    Retriever.open(tmp_path / ".binocle", encoder=None, dim=2).add([{"id": "a", "text": "cat", "embedding": [1, 0]}])
    monkeypatch.chdir(tmp_path / "here")
    assert run("index").out.startswith("1 indexed")
