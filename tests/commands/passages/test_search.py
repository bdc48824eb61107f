"""Search prints passages for people and for scripts, with hints and exit codes."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import pytest

from binocle import Retriever
from binocle.retriever.store.derived.relevance_scale import RelevanceScale, store_scale


def test_search_prints_place_heading_and_passage(here: Path, run):
    result = run("search", "cancel", "--mode", "lexical")
    assert result == (
        0,
        (
            " 1  notes/guide/tasks.md:1  Tasks\n"
            "    # Tasks\n"
            "    ## Cancel a task\n"
            "    Call `cancel()` on the task. A cancelled task raises an error in the worker.\n"
            "\n"
        ),
        "",
    )


def test_search_json_has_one_whole_object_a_line(here: Path, run):
    result = run("search", "a task of the queue", "--json")
    types = {
        "rank": int,
        "score": float,
        "scores": dict,
        "path": str,
        "sha256": str,
        "char_start": int,
        "char_end": int,
        "line_start": int,
        "line_end": int,
        "page": type(None),
        "heading": list,
        "text": str,
        "hidden": list,
        "title": str,
        "metadata": dict,
        "format": str,
        "source": str,
        "relevance": float,
        "weak": bool,
    }
    assert (result.code, result.err) == (0, "")
    assert [row["rank"] for row in result.rows] == list(range(1, 10))
    for row in result.rows:
        assert list(row)[: len(types)] == list(types)
        assert {name: type(row[name]) for name in types} == types
        assert list(row["scores"]) == ["lexical", "semantic"]
        assert re.fullmatch("[0-9a-f]{64}", row["sha256"])
        text = Retriever.open(here).document(row["path"])["text"]
        assert text[row["char_start"] : row["char_end"]] == row["text"]


def test_search_cites_the_line_on_which_the_passage_stands(here: Path, run):
    for query in ("timeout", "retry", "dog", "tax"):
        (row, *_) = run("search", query, "--json", "--mode", "lexical").rows
        lines = (here / row["path"]).read_text().split("\n")
        assert "\n".join(lines[row["line_start"] - 1 : row["line_end"]]).strip() == row["text"].strip()


def test_search_json_gives_the_page_of_a_pdf(here: Path, run, pdf_file):
    (here / "report.pdf").write_bytes(pdf_file("A zeppelin"))
    run("index", ".")
    (row,) = run("search", "zeppelin", "--mode", "lexical", "--json").rows
    assert (row["page"], row["text"]) == (1, "A zeppelin")
    assert run("search", "zeppelin", "--mode", "lexical").out.startswith(" 1  report.pdf:1  p. 1\n")


def test_search_json_keeps_every_alphabet_readable(here: Path, run, write):
    write(here, {"東京/天気.txt": "東京の天気は晴れ\n"})
    run("index", ".")
    result = run("search", "東京の天気は晴れ", "-k", 1, "--json")
    assert "東京/天気.txt" in result.out
    assert "東京の天気は晴れ" in result.out


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "lexical"])
def test_search_in_every_mode_explains_its_stages(mode: str, here: Path, run):
    result = run("search", "cheese", "--mode", mode, "--explain", "-k", 1)
    number = r"-?\d+\.\d{3}"
    stage = {name: rf"{name} {number} \(rank \d+\)" for name in ("lexical", "semantic")}
    stage |= {"semantic": f"{stage['semantic']}|semantic –", "lexical": f"{stage['lexical']}|lexical –"}
    pattern = rf"    score {number} = {mode} of ({stage['lexical']}), ({stage['semantic']}); [a-z]+ \d+\.\d ms.*"
    lines = result.out.splitlines()
    if mode != "lexical":
        assert re.fullmatch(rf"    cosine {number}, strongest (cheese ~ \S+ {number}(, )?){{5}}", lines.pop(-2))
    assert re.fullmatch(pattern, lines[-2])
    (row,) = run("search", "cheese", "--mode", mode, "--explain", "-k", 1, "--json").rows
    assert row["explanation"]["mode"] == mode
    assert ("words" in row["explanation"]) == (mode != "lexical")
    assert set(row["explanation"]["ranks"]) == {"lexical", "semantic"}
    assert (row["scores"]["lexical"] is None) == (mode == "semantic")
    assert (row["scores"]["semantic"] is None) == (mode == "lexical")


def test_the_shares_of_words_add_up_to_the_cosine_of_the_hit(here: Path, run):
    for row in run("search", "salt the cheese", "--mode", "semantic", "--explain", "--json").rows:
        words = row["explanation"]["words"]
        total = sum(pair["share"] for pair in words["pairs"]) + words["rest"] + words["special"]
        assert total == pytest.approx(words["cosine"], abs=1e-5)
        assert words["cosine"] == pytest.approx(row["scores"]["semantic"], abs=1e-2)  # of stored vectors, maybe in bf16


def test_search_without_explain_prints_no_scores(here: Path, run):
    assert "explanation" not in run("search", "cheese", "-k", 1, "--json").rows[0]
    assert "score" not in run("search", "cheese", "-k", 1).out


@pytest.fixture
def strict(here: Path) -> Path:
    """The indexed folder with an encoder whose cosines for answers count as far higher."""
    snapshot = Retriever.open(here).snapshot()
    store_scale(snapshot.store.location, RelevanceScale(5.0, 9.0, 0.04, 0.02, 1_000), snapshot.head.encoder)
    return here


def test_search_for_what_nothing_answers_names_the_nearest_and_exits_1(strict: Path, run):
    code, out, err = run("search", "where does the mountain queen bake")
    assert (code, out) == (1, "")
    nearest = r"binocle: nothing here answers this; the nearest is \S+:\d+ \(relevance 0\.\d\d\): --min-relevance 0 shows it\n"
    assert re.fullmatch(nearest, err)
    rows = run("search", "where does the mountain queen bake", "--json")
    assert (rows.code, {row["weak"] for row in rows.rows}) == (1, {True})
    assert re.fullmatch(nearest.replace(": --min-relevance 0 shows it", ""), rows.err)  # JSON has it
    assert (
        run("search", "where does the mountain queen bake", "--min-relevance", 0, "--no-join").out.count("[weak]") == 9
    )
    assert run("search", "where does the mountain queen bake", "--min-relevance", 0.5) == (1, "", "")
    assert run("search", "cheese").code == 0  # the word is there
    assert "relevance  4% of everyday questions seem answered, 2% of the documents' own" in run("status").out


@pytest.mark.usefixtures("strict")
def test_a_search_without_an_answer_names_the_files_with_its_words_in_their_names(run):
    name = "binocle: the words are in the name of notes/guide/tasks.md\n"
    for query in ("the guides of task.md", "tasks guide md"):
        code, out, err = run("search", query, "--mode", "semantic")
        assert (code, out) == (1, "") and err.startswith(name)
    assert run("search", "tasks md", "--min-relevance", 1) == (1, "", name)
    assert name not in run("search", "tasks md", "--where", "type=pdf").err
    assert name not in run("search", "notes guide", "--mode", "semantic").err  # folders alone
    assert name not in run("search", "tasks md gone", "--mode", "semantic").err


def test_a_missing_option_is_explained(here: Path, run):
    problem = "Missing option '--reader': A trained reader: its folder, or its name on the hub."
    assert run("answer", "who ran", "README.md") == (2, "", f"binocle: {problem} (see 'binocle answer --help')\n")


def test_labelling_without_labels_says_how_to_name_some(here: Path, run):
    message = "binocle: nothing labels this index yet: give --head KEY=MODEL or --as 'KEY=NAME, NAME'\n"
    assert run("enrich") == (0, "", message)


def test_search_says_which_words_it_corrected(here: Path, run):
    code, out, err = run("search", "chese", "-k", 1)
    assert (code, err) == (
        0,
        "binocle: searched for 'cheese' instead of 'chese': put it in quotes to search it as it is\n",
    )
    assert out == run("search", "cheese", "-k", 1).out
    assert run("search", '"chese"', "-k", 1).code == 1


@pytest.mark.parametrize("words", [["search", "cancel"], ["search", "cancel", "--json"], ["similar", "README.md:1"]])
def test_filter_that_no_document_passes_is_explained(words: list[str], here: Path, run):
    types = "csv, html, markdown, python, text"
    said = f"binocle: no document passes type=markdwn and size>0 (types here: {types})\n"
    assert run(*words, "-w", "type=markdwn", "-w", "size>0") == (1, "", said)
    said = "binocle: no document passes path=/guide/**\n"
    assert run(*words, "notes", "-w", "path=/guide/**") == (1, "", said)
    (here / "empty").mkdir()
    assert run(*words, "empty") == (1, "", "binocle: no document in empty has passages in the index\n")


def test_a_hint_to_index_leads_to_the_index_that_lies_elsewhere(tmp_path: Path, run, write, tiny_model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "docs", {"a.txt": "The ship sails.\n", "empty.txt": ""})
    run("index", "docs", "--index", "i x", "--model", tiny_model)
    write(tmp_path / "docs", {"a.txt": ""})
    again = f"'binocle index {tmp_path}/docs --index '{tmp_path}/i x''"
    assert again in run("search", "ship", "i x").err
    assert run("index", "i x").err == f"binocle: i x is an index, not a folder of documents: expected {again}\n"
    assert run("index", "docs", "--index", "i x").code == 0
    listing = f"'binocle files {tmp_path}/docs --index '{tmp_path}/i x''"
    assert f"holds no passages, for the reasons that {listing} lists" in run("search", "ship", "i x").err
    assert "skipped  docs/a.txt  (no text in it)" in run(*shlex.split(listing[1:-1])[1:]).out
    assert not (tmp_path / "docs/.binocle").exists()


def test_search_warns_of_files_that_changed_after_indexing(here: Path, run, write):
    (here / "README.md").touch()
    assert run("search", "ship").err == ""
    hint = f"after indexing: 'binocle index {here}' brings the index up to date\n"
    write(here, {"README.md": "The ship is gone.\n"})
    assert run("search", "moon", "notes").err == ""
    message = f"binocle: one of these files was changed or removed {hint}"
    assert run("search", "ship").err == run("similar", "notes/cats.txt:1").err == message
    (here / "notes/cats.txt").unlink()
    assert run("search", "ship").err == f"binocle: 2 of these files were changed or removed {hint}"
    assert run("search", "ship", "--json").err == ""
    run("index", ".")
    assert run("search", "ship").err == ""


def test_search_warns_of_an_indexed_folder_that_is_gone(tmp_path: Path, run, write, tiny_model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"docs/a.txt": "The ship sails.\n"})
    run("index", "docs", "--index", "ix", "--model", tiny_model)
    (tmp_path / "docs").rename("moved")
    missing = f"the indexed folder {tmp_path}/docs is not there: is a disk not mounted?"
    remedy = "If it has moved, 'binocle index FOLDER --index ix' names its new place"
    assert run("search", "ship", "--index", "ix").err == f"binocle: {missing} {remedy}\n"
    assert run("search", "ship", "--index", "ix", "--json").err == ""
    run("index", "moved", "--index", "ix")
    assert run("search", "ship", "--index", "ix").err == ""


def test_search_warns_of_a_query_that_the_encoder_cannot_read_whole(run, here):
    query = "cat " * 400
    ran = run("search", query, here, "--mode", "semantic")
    assert re.search(r"the encoder reads only the first \d+ of the query's 400 tokens", ran.err), ran.err
    assert not run("search", query, here, "--mode", "lexical").err
    assert not run("search", "cat", here).err


@pytest.mark.parametrize("words", [["search", "cancel"], ["similar", "notes/cats.txt:1"]])
def test_filter_on_an_unknown_field_is_explained(words: list[str], here: Path, run):
    done = run(*words, "--where", "typ=pdf")
    said = (
        "binocle: no document has 'typ' (did you mean 'type'?): a filter may ask for path, type, modified, size, title"
    )
    assert (done.code, done.out, done.err[: len(said)]) == (2, "", said)


def test_search_gives_as_many_as_there_are_when_asked_for_more(here: Path, run):
    assert len(run("search", "cheese", "-k", 1_000_000, "--json").rows) == 9


@pytest.mark.parametrize(
    "query",
    ["🎉", "שלום עולם", "((", '"unclosed', "a AND b OR", "*", "\\", "%s", "w" * 5_000, "x\x1b[31m\x07", "e\u0301"],
)
def test_any_text_can_be_searched_for(query: str, here: Path, run):
    result = run("search", query, "-k", 2, "--json")
    assert (result.code, result.err) == (0, "")
    assert len(result.rows) == 2


def test_query_that_looks_like_an_option_goes_behind_two_dashes(here: Path, run):
    done = run("search", "-foo", ".")
    said = "No such option '-f'. A query that begins with - goes behind --, after all options"
    assert done == (2, "", f"binocle: {said} (see 'binocle search --help')\n")
    assert run("search", "--mode", "lexical", "--", "-cancel", ".").code == 0
    assert "goes behind" not in run("search", "cancel", "--mod", "lexical").err  # that was meant as an option
    error = run("search", "--release", ".").err  # an option of similar name does not hide the way
    assert "No such option '--release'." in error
    assert "A query that begins with - goes behind --, after all options" in error


def test_query_of_a_dash_is_read_from_standard_input(here: Path, run):
    typed = run("search", "cancel a task", "--json")
    assert run("search", "-", "--json", stdin=b"  cancel a task\n\n").rows == typed.rows
    assert run("search", "-", "-k", 1, stdin=b"caf\xe9 \xff\xfe cheese").code == 0
    lines = run("search", "cancel", "--fixed", "-c")
    assert run("search", "-", "--fixed", "-c", stdin=b"\xef\xbb\xbfcancel\n") == lines
    assert run("search", "-", "-k", 1, stdin=b"word " * 10_000).code == 0


def test_every_filter_must_pass(here: Path, run):
    def paths(*words: str) -> set[str]:
        arguments = [part for word in words for part in ("--where", word)]
        return {row["path"] for row in run("search", "the", "--json", *arguments).rows}

    assert paths("type=md") == {"README.md", "notes/taxes.md", "notes/guide/tasks.md"}
    assert paths("path=notes/**", "type=md") == {"notes/taxes.md", "notes/guide/tasks.md"}
    assert paths("path=notes/**", "type!=md") == {"notes/cats.txt"}
    day = time.strftime("%Y-%m-%d", time.localtime((here / "README.md").stat().st_mtime))
    assert paths(f"modified={day}") == paths() != paths("modified>=2024-01-01") == set()
    assert paths("size<50") == {"data/prices.csv"}


def test_folder_below_the_indexed_one_narrows_the_search(here: Path, run, monkeypatch):
    everywhere = run("search", "the", "--json").rows
    inside = [row["path"] for row in everywhere if row["path"].startswith("notes/guide/")]
    assert {row["path"] for row in run("search", "the", "notes/guide", "--json").rows} == set(inside)
    monkeypatch.chdir("notes/guide")
    assert {row["path"] for row in run("search", "the", ".", "--json").rows} == set(inside)
    assert run("search", "the", "--json").rows == everywhere
    assert run("search", "the", here, "--json").rows == everywhere


@pytest.mark.parametrize(
    "name", ["br [x] *", "!bang", "#hash", "back\\slash", "trailing ", "a:12", "-dash", "new\nline", "ü"]
)
def test_folder_of_any_name_is_taken_literally(name: str, here: Path, run, write):
    write(here / name, {"w.txt": "The walrus sat.\n"})
    run("index", ".")
    (row,) = run("search", "walrus", f"./{name}", "--json").rows
    assert row["path"] == f"{name}/w.txt"
    assert run("show", "--", f"{name}/w.txt:1").out == "The walrus sat.\n"
    assert run("similar", f"./{name}/w.txt:1", "-k", 1).code == 0
    assert run("forget", "--", f"{name}/w.txt").code == 0


def test_paths_are_printed_as_they_open_from_here(here: Path, run, monkeypatch):
    def cited() -> Path:
        path, _, _ = run("search", "cheese", here, "--mode", "lexical").out[4:].partition(":1 ")
        return Path(path)

    printed = {
        here: "web/bread.html",
        here.parent: "folder/web/bread.html",
        here / "web": "bread.html",
        here / "notes": str(here / "web/bread.html"),
    }
    for folder, path in printed.items():
        monkeypatch.chdir(folder)
        assert cited() == Path(path)
        assert cited().read_text() == (here / "web/bread.html").read_text()


def test_a_path_from_here_goes_before_the_same_path_in_the_index(here: Path, run, write, monkeypatch):
    write(here, {"notes/README.md": "The walrus sat.\n"})
    run("index", ".")
    monkeypatch.chdir("notes")
    assert run("search", "walrus", "--mode", "lexical").out.startswith(" 1  README.md:1")
    assert run("show", "README.md") == (0, "The walrus sat.\n\n", "")


def test_forget_takes_paths_as_files_and_verify_print_them(here: Path, run, write, monkeypatch):
    write(here, {"notes/README.md": "The walrus sat.\n", ".gitignore": "data/\n"})
    run("index", ".")
    monkeypatch.chdir("notes")
    listed = run("files").out
    assert "indexed  README.md  (1 passage, markdown)\n" in listed
    assert f"indexed  {here}/README.md  (" in listed
    assert f"skipped  {here}/data/  (ignored by .gitignore)\n" in listed
    two = "'README.md' means 'notes/README.md' of the index from here, and there is 'README.md' too"
    message = f"binocle: {two}: expected a whole path, such as '{here}/notes/README.md'\n"
    assert run("forget", "README.md") == (2, "", message)
    write(here, {"README.md": "Changed.\n"})
    assert f"document: {here}/README.md: has changed since it was indexed" in run("verify").out
    assert run("forget", here / "README.md").out == "1 document forgotten\n"
    assert run("show", "README.md").out == "The walrus sat.\n\n"
    assert run("forget", "./README.md").out == "1 document forgotten\n"


def test_index_folder_itself_can_be_searched(here: Path, run, monkeypatch):
    result = run("search", "cheese", "--json")
    assert run("search", "cheese", here / ".binocle", "--json") == result
    assert run("search", "cheese", "--index", here, "--json") == result
    monkeypatch.chdir(".binocle")
    assert run("search", "cheese", "--json") == result


def test_long_passage_is_cut_to_the_matching_words(here: Path, run, write):
    write(
        here, {"long.txt": "The sea and the moon and the sun. " * 6 + "A zeppelin! " + "The king and the queen. " * 3}
    )
    run("index", ".")
    shown = run("search", "zeppelin", "--mode", "lexical").out
    assert "zeppelin" in shown
    assert max(map(len, shown.splitlines())) <= 100
