"""The status of an index, its files, and its check and repair."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from binocle.retriever.readers.formats import VERSIONS


def test_status_says_what_the_index_holds(here: Path, run, tiny_model):
    shown = run("status")
    values = dict(re.split(r" {2,}| (?=/)", line, maxsplit=1) for line in shown.out.splitlines())
    assert (shown.code, shown.err) == (0, "")
    assert values["index"].strip() == str(here / ".binocle")
    assert values["folder"].strip() == str(here)
    assert "7 indexed, 4 skipped, 0 failed" in shown.out
    assert re.search(r"^passages +9$", shown.out, re.MULTILINE)
    assert f"{tiny_model}, 32 dimensions, fingerprint " in shown.out
    (row,) = run("status", "notes", "--json").rows
    assert row["documents"] == {"indexed": 7, "skipped": 4, "failed": 0, "forgotten": 0}
    assert (row["passages"], row["dim"], row["model"]) == (9, 32, tiny_model)
    assert (row["newer_rows"], row["deleted_rows"]) == (0, 0)


def test_status_names_a_language_that_the_encoder_does_not_read(here: Path, run, monkeypatch):
    assert ("\nlanguage " in run("status").out, run("status", "--json").rows[0]["unread_language"]) == (False, None)
    monkeypatch.setattr("binocle.retriever.integrity.status.unread_language", lambda _: "German")
    assert "\nlanguage   most of the text seems to be in German, but the encoder is for English" in run("status").out
    assert run("status", "--json").rows[0]["unread_language"] == "German"


FILES = """\
skipped  .gitignore  (hidden)
indexed  README.md  (1 passage, markdown)
skipped  build/  (ignored by .gitignore)
indexed  data/prices.csv  (1 passage, csv)
indexed  notes/cats.txt  (1 passage, text)
indexed  notes/guide/tasks.md  (2 passages, markdown)
indexed  notes/taxes.md  (1 passage, markdown)
skipped  picture.bin  (no reader for .bin files)
skipped  server.log  (ignored by .gitignore)
indexed  src/queue.py  (2 passages, python)
indexed  web/bread.html  (1 passage, html)
"""


def test_files_accounts_for_every_file(here: Path, run):
    assert run("files") == (0, FILES, "")
    rows = run("files", "--json").rows
    assert [f"{row['state']:<8} {row['path']}" for row in rows] == [line.split("  (")[0] for line in FILES.splitlines()]
    assert list(rows[0]) == ["path", "state", "reason", "format", "passages", "size", "sha256", "title", "source"]


def test_files_can_be_narrowed_to_a_state_and_a_folder(here: Path, run):
    def lines(word: str) -> str:
        return "".join(line for line in FILES.splitlines(keepends=True) if word in line)

    assert run("files", "--state", "skipped").out == lines("skipped ")
    assert run("files", "notes").out == lines(" notes/")
    assert run("files", "--state", "failed") == (1, "", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["files", "--state", "failed"], "Exit 1 when there are none."),
        (["search", "zyzzyva", "--mode", "lexical"], "Exit 1 when nothing is found"),
        (["similar", "README.md:1", "--where", "type=pdf"], "Exit 1 when nothing is found."),
    ],
    ids=str,
)
def test_help_says_how_a_command_that_finds_nothing_ends(words: list[str], said: str, here: Path, run):
    assert run(*words)[:2] == (1, "")
    assert said in " ".join(run(words[0], "--help").out.split())


def test_a_line_break_in_a_name_is_shown_as_what_it_is(here: Path, run, write):
    write(here, {"new\nline.txt": "The walrus sat.\n"})
    run("index", ".")
    assert "indexed  new\\nline.txt  (1 passage, text)\n" in run("files").out
    (here / "new\nline.txt").unlink()
    assert run("verify").out == "document: new\\nline.txt: cannot be read now: it is no longer there\n"


def test_verify_is_clean_until_something_changes(here: Path, run):
    assert run("verify") == (0, "clean\n", "")
    assert run("verify", "--json") == (0, "", "")
    (here / "README.md").unlink()
    (here / "notes/cats.txt").write_text("The dog is gone.\n")
    result = run("verify")
    assert result == (
        1,
        (
            "document: README.md: cannot be read now: it is no longer there\n"
            "document: notes/cats.txt: has changed since it was indexed\n"
        ),
        "2 faults\n",
    )
    rows = run("verify", "--json").rows
    assert [f"{row['kind']}: {row['path']}: {row['problem']}" for row in rows] == result.out.splitlines()


def test_verify_names_files_that_an_earlier_version_of_the_reader_read(here: Path, run, monkeypatch):
    monkeypatch.setitem(VERSIONS, "markdown", VERSIONS["markdown"] + 1)
    hint = "'binocle index' reads"
    several = run("verify")
    assert several[:2] == (0, "clean\n")
    assert re.fullmatch(
        rf"\d documents were read by an earlier version of the reader: {hint} them again\n", several.err
    )
    assert "files were read again, since their reader has changed" in run("index").err
    assert run("verify") == (0, "clean\n", "")


def test_verify_repair_mends_documents_and_indexes(here: Path, run):
    (here / "README.md").unlink()
    (here / "notes/cats.txt").write_text("The zebra is gone.\n")
    for file in (here / ".binocle/vectors").glob("*/*"):
        file.write_bytes(b"nonsense")
    result = run("verify")
    assert (result.code, result.err) == (1, "4 faults\n")
    assert run("verify", "--repair") == (0, "clean\n", "4 faults mended\n")
    assert run("search", "zebra", "--mode", "lexical").code == 0
    assert run("verify") == run("verify", "--repair") == (0, "clean\n", "")


def test_verify_repair_says_in_json_what_it_mended(here: Path, run):
    (here / "README.md").unlink()
    (before,) = run("verify", "--json").rows
    mended = run("verify", "--repair", "--json")
    assert (mended.code, mended.rows, mended.err) == (0, [before | {"mended": True}], "1 fault mended\n")
    assert run("verify", "--repair", "--json") == (0, "", "")


def test_search_answers_the_same_without_its_vector_index(here: Path, run):
    before = run("search", "cancel a task", "--json").rows
    shutil.rmtree(here / ".binocle/vectors")
    after = run("search", "cancel a task", "--json")
    assert (after.code, after.err) == (0, "")
    assert [row["path"] for row in after.rows] == [row["path"] for row in before]
    assert [row["score"] for row in after.rows] == pytest.approx([row["score"] for row in before], abs=1e-5)
    assert run("verify").code == 1
    assert run("verify", "--repair").code == 0
