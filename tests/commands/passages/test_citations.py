"""Commands take citations and paths as printed, or as they are found from the current folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from binocle import Retriever
from binocle.retriever.store.derived import text_index


def test_similar_leaves_the_passage_itself_out(here: Path, run):
    result = run("similar", "notes/guide/tasks.md:9", "--json")
    own = [
        row
        for row in result.rows
        if row["path"] == "notes/guide/tasks.md" and row["line_start"] <= 9 <= row["line_end"]
    ]
    assert (result.code, own, len(result.rows)) == (0, [], 8)
    assert {row["path"] for row in run("similar", "notes/guide/tasks.md:9", "src", "--json").rows} == {"src/queue.py"}
    assert run("similar", "notes/guide/tasks.md:9", "--where", "type=pdf").code == 1


def test_citation_may_be_as_printed_or_relative_to_the_current_folder(here: Path, run, monkeypatch):
    text = run("show", "notes/taxes.md:5-7")
    assert text == (0, "## Filing\n\nFile the return before the moon is full, or pay.\n", "")
    assert run("show", here / "notes/taxes.md:5-7") == text
    monkeypatch.chdir("notes")
    for path in ("taxes.md", "./taxes.md", "../notes/taxes.md", "notes/taxes.md"):
        assert run("show", f"{path}:5-7") == text
        assert run("similar", f"{path}:5", "-k", 1).code == 0


def test_an_unknown_path_is_an_error_that_suggests_the_nearest(here: Path, run, monkeypatch):
    def message_of(*words) -> str:
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        return err.removeprefix("binocle: ").rstrip()

    listed = "'binocle files' lists its files"
    assert message_of("show", "taxes.md:5") == f"'taxes.md' is not in the index: is it 'notes/taxes.md'? {listed}"
    assert message_of("similar", "notes/texas.md:5") == (
        f"'notes/texas.md' is not in the index: is it 'notes/taxes.md'? {listed}"
    )
    assert message_of("show", "zyzzyva") == f"'zyzzyva' is not in the index: {listed}"
    assert (
        message_of("show", "notes/guide/") == "'notes/guide/' is a folder: 'binocle files notes/guide' lists its files"
    )
    assert run("files", "notes/guide").out == "indexed  notes/guide/tasks.md  (2 passages, markdown)\n"
    monkeypatch.chdir("notes")
    assert message_of("show", "tasks.md") == f"'tasks.md' is not in the index: is it 'guide/tasks.md'? {listed}"


def test_the_id_of_an_added_document_is_no_path(here: Path, run, monkeypatch):
    guide = "https://example.org/guide"
    Retriever.open(here).add([{"id": guide, "text": "The walrus sat."}])
    for folder in (here, here / "notes"):
        monkeypatch.chdir(folder)
        for near in ("https://example.org/guid", "https://example.org"):
            message = f"binocle: {near!r} is not in the index: is it '{guide}'? 'binocle files' lists its files\n"
            assert run("show", near) == (2, "", message)
        assert run("show", guide).out == "The walrus sat.\n"
        assert f"indexed  {guide}  (" in run("files").out
    assert run("forget", guide).out == "1 document forgotten\n"


def test_show_prints_the_whole_text(here: Path, run):
    text = (here / "notes/taxes.md").read_text()
    assert run("show", "notes/taxes.md").out.rstrip("\n") == text.rstrip("\n")
    assert run("show", "notes/taxes.md:1").out == "# Taxes\n"


def test_file_name_that_looks_like_a_citation_is_a_name(here: Path, run, write):
    write(here, {"a:12": "The ship.\n", "b:1": "The king.\n"})
    run("index", ".")
    assert run("show", "a:12").out.strip() == "The ship."
    assert run("show", "a:12:1").out == "The ship.\n"
    assert run("show", "b:1:1").out == "The king.\n"


def test_citations_of_search_can_be_shown(here: Path, run):
    rows = run("search", "the", "--json").rows
    assert rows
    for row in rows:
        shown = run("show", f"{row['path']}:{row['line_start']}-{row['line_end']}").out
        assert row["text"].strip() in shown


def test_a_citation_opens_the_index_above_its_file_from_any_folder(here: Path, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cited = os.path.relpath(here / "notes/taxes.md")
    assert run("show", f"{cited}:1").out == "# Taxes\n"
    assert run("show", str(here / "notes/taxes.md")).out.startswith("# Taxes\n")
    assert run("similar", f"{cited}:1", "--json").rows
    missing = run("show", os.path.relpath(here / "notes/none.md"))
    assert missing.code == 2
    assert f"--index {here / '.binocle'}' lists its files" in missing.err
    assert "no index in" in run("show", f"{'x' * 5_000}/none.md:1").err


def test_forget_takes_a_printed_path_from_the_folder_above(here: Path, run, monkeypatch):
    monkeypatch.chdir(here.parent)
    cited = os.path.relpath(here / "notes/taxes.md")
    assert run("forget", cited) == (0, f"1 document forgotten from {here / '.binocle'}\n", "")
    assert run("forget", cited) == (1, f"{cited} was forgotten already\n", "")
    assert run("forget", "notes/none.md").code == 2


def test_an_index_here_answers_before_the_one_above_the_cited_file(here: Path, run, tmp_path, monkeypatch):
    (here / "notes/new.md").write_text("# New\n", "utf-8")  # which only the second index has
    run("index", ".", "--index", str(tmp_path / "second"))
    monkeypatch.chdir(tmp_path / "second")
    assert run("show", f"{here / 'notes/new.md'}:1").out == "# New\n"
    (tmp_path / "else").mkdir()
    (tmp_path / "else/one.txt").write_text("The sea.\n", "utf-8")
    run("index", str(tmp_path / "else"))
    monkeypatch.chdir(tmp_path / "else")
    assert run("show", f"{here / 'notes/taxes.md'}:1").out == "# Taxes\n"
    unknown = run("show", "none.txt")
    assert unknown.code == 2
    assert "'binocle files' lists its files" in unknown.err


def test_a_folder_that_was_forgotten_is_known_as_a_file_is(here: Path, run):
    (here / "notes/deep").mkdir()
    for name in ("one", "two"):
        (here / f"notes/deep/{name}.md").write_text("A ship at sea.\n")
    assert run("forget", "notes/deep").code == 2
    run("index", ".")
    assert run("forget", "notes/deep").out == "2 documents forgotten\n"
    assert run("forget", "notes/deep/") == (1, "notes/deep/ was forgotten already\n", "")
    assert run("forget", "notes").code == 0


@pytest.mark.parametrize(("stored", "typed"), [("Cafe\u0301", "Caf\u00e9"), ("Caf\u00e9", "Cafe\u0301")])
def test_a_forgotten_file_that_is_gone_is_known_however_its_accents_are_written(here: Path, run, stored, typed):
    file = here / f"notes/{stored}.md"
    file.write_text("A ship at sea.\n")
    run("index", ".")
    assert run("forget", f"notes/{typed}.md").code == 0
    file.unlink()
    run("index", ".")
    assert run("forget", f"notes/{typed}.md") == (1, f"notes/{typed}.md was forgotten already\n", "")
    assert "was forgotten on request" in run("show", f"notes/{typed}.md").err


def test_forget_takes_a_file_out_until_a_retry(here: Path, run):
    assert run("forget", "notes/cats.txt") == (0, "1 document forgotten\n", "")
    assert run("search", "dog", "--mode", "lexical").code == 1
    listed = run("files", "--state", "skipped")
    assert "cats" not in listed.out
    assert listed.err == "binocle: 1 file was forgotten: 'binocle index --retry' reads it again\n"
    assert "6 indexed, 4 skipped, 0 failed, 1 forgotten" in run("status").out
    assert run("index", ".", "--json").rows[0]["files"]["indexed"] == 0
    assert run("forget", "notes/cats.txt") == (1, "notes/cats.txt was forgotten already\n", "")
    assert run("index", ".", "--retry", "--json").rows[0]["files"]["indexed"] == 1
    assert run("search", "dog", "--mode", "lexical").code == 0
    assert run("files", "--state", "skipped").err == ""


def test_forget_erases_what_was_stored(here: Path, run, write):
    write(here, {"secret.txt": "The password is xylophone.\n"})
    run("index", ".")
    stored = [file for file in (here / ".binocle").rglob("*") if file.is_file()]
    assert any(b"xylophone" in file.read_bytes() for file in stored)
    assert run("forget", "secret.txt").code == 0
    left = [file for file in (here / ".binocle").rglob("*") if file.is_file() and b"xylophone" in file.read_bytes()]
    assert left == []
    assert (here / "secret.txt").is_file()


def test_forgetting_again_erases_what_a_full_disk_kept(here: Path, run, write, monkeypatch):
    write(here, {"secret.txt": "The password is xylophone.\n"})
    run("index", ".")

    def fill(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(text_index, "update", fill)
        result = run("forget", "secret.txt")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"binocle: cannot write to {here / '.binocle'} ([Errno 28] No space left on device); what was committed before "
        "is kept; deleted texts are still on the disk: the next command that writes tries to erase them again\n"
    )
    assert run("forget", "secret.txt") == (
        1,
        "secret.txt was forgotten already\n",
        "what an earlier run had left on the disk is erased now\n",
    )
    left = [file for file in (here / ".binocle").rglob("*") if file.is_file() and b"xylophone" in file.read_bytes()]
    assert left == []


def test_forget_takes_a_folder(here: Path, run, monkeypatch):
    monkeypatch.chdir("notes")
    assert run("forget", "../notes/").out == "3 documents forgotten\n"
    assert {row["path"] for row in run("files", "--state", "indexed", "--json").rows} == {
        "README.md",
        "data/prices.csv",
        "src/queue.py",
        "web/bread.html",
    }
