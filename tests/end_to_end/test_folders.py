"""What a search looks at: files, globs, folders, and the folders of a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


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
    assert run("search", "the", "README.md", "nothing.md").err == "binocle: there is no folder nothing.md\n"


def test_scope_without_passages_is_named(here: Path, run, write):
    write(here, {"new.md": "The walrus.\n", "newer.md": "The walrus.\n"})
    ran = run("search", "walrus", "new.md", "newer.md")
    assert (ran.code, ran.err) == (1, "binocle: no document in new.md, newer.md has passages in the index\n")
