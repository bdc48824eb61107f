"""`binocle rank` orders lines by how well they answer, and changes none."""

from __future__ import annotations

import numpy as np
import pytest

from binocle import load_encoder
from binocle.retriever.models.load import load_reranker

LINES = ["src/a.py:12:    the cat sat on the mat", "b.md:3:7:income tax is due", "7:the ship sails", "a dog ran"]
TEXTS = ["the cat sat on the mat", "income tax is due", "the ship sails", "a dog ran"]
FOUND = "\n--\n".join(LINES).encode() + b"\r\n\n"


@pytest.fixture
def best(tiny_model):
    encoder = load_encoder(tiny_model)
    order = np.argsort(-(encoder.encode(TEXTS) @ encoder.encode(["cat tax"], kind="query")[0]), kind="stable")
    return [LINES[position] for position in order]


def test_lines_come_as_they_were_those_that_answer_first(run, tiny_model, best, tmp_path):
    (tmp_path / "found.txt").write_bytes(FOUND)
    shown = run("rank", "cat tax", tmp_path / "found.txt", "--model", tiny_model)
    assert (shown.code, shown.out.splitlines(), shown.err) == (0, best, "")
    assert run("rank", "cat tax", "--model", tiny_model, "-k", 2, stdin=FOUND).out.splitlines() == best[:2]
    rows = run("rank", "cat tax", "-", "--model", tiny_model, "--json", stdin=FOUND).rows
    assert [row["text"] for row in rows] == best
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)


def test_a_cross_encoder_ranks_too(run, make_reranker, tmp_path):
    model = str(make_reranker(tmp_path / "reranker"))
    order = np.argsort(-load_reranker(model).score("cat", TEXTS), kind="stable")
    shown = run("rank", "cat", "--model", model, stdin=FOUND)
    assert shown.out.splitlines() == [LINES[position] for position in order]


def test_no_line_is_exit_code_1_and_other_bytes_do_no_harm(run, tiny_model, tmp_path):
    assert run("rank", "cat", "--model", tiny_model, stdin=b"--\n \n") == (1, "", "")
    shown = run("rank", "cat", "--model", tiny_model, stdin=b"\x1b[31mcat \xff\n")
    assert (shown.code, shown.out) == (0, "␛[31mcat \ufffd\n")
    assert "nowhere" in run("rank", "cat", tmp_path / "nowhere", "--model", tiny_model).err


@pytest.mark.parametrize("command", [["rank"], ["answer", "--reader", "nowhere"]], ids=lambda command: command[0])
def test_an_empty_query_is_an_error(command, run):
    assert run(*command, " ", stdin=FOUND) == (2, "", "binocle: the query is empty: say what to look for\n")


def test_a_folder_is_refused_with_the_command_that_reads_it(run, tmp_path):
    asked = run("answer", "who", tmp_path, "--reader", "missing")
    message = f"{tmp_path} is a folder: expected a file; 'binocle search --answer' reads an indexed folder"
    assert (asked.code, asked.out, asked.err) == (2, "", f"binocle: {message}\n")
    ranked = run("rank", "who", tmp_path)
    message = f"{tmp_path} is a folder: expected a file of lines; 'binocle search' ranks an indexed folder"
    assert (ranked.code, ranked.out, ranked.err) == (2, "", f"binocle: {message}\n")
