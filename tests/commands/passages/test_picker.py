"""The picker, driven by keys through a pipe, over a real index; and the command in a pseudo-terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("prompt_toolkit")

from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from binocle import InputError
from binocle.commands.passages.picker import Picker, Search

PATIENCE = 60.0  # seconds until a test gives up: no test needs them


class Pause(threading.Event):
    """A search that waits until it is let go."""

    def __init__(self, retriever):
        super().__init__()
        self.retriever, self.queries = retriever, []

    def search(self, query):
        self.queries.append(query)
        assert self.wait(PATIENCE)
        return self.retriever.search(query, 5)


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def pick(retriever, *keys, size=(40, 160), query=""):
    """Run the picker; each item of `keys` is pressed when the answer to the last is there. Returns place and screen."""
    screen = io.StringIO()
    output = Vt100_Output(screen, lambda: Size(rows=size[0], columns=size[1]), term="xterm")
    picker = Picker(lambda text: retriever.search(text, 10), retriever.folder, str, query)
    with create_pipe_input() as source:

        def press():
            typed = query
            for key in (*keys, "\t"):
                until(lambda typed=typed: picker.answers.query == typed and picker.app and picker.app.is_running)
                source.send_text(key)
                typed += "" if key.startswith("\x1b") else key

        thread = threading.Thread(target=press)
        thread.start()
        place = picker.run(source, output)
        thread.join(PATIENCE)
    return place, screen.getvalue()


def test_what_is_typed_is_searched_and_tab_gives_the_place(retriever):
    place, screen = pick(retriever, "cancel a task")
    best = retriever.search("cancel a task", 1)[0]
    assert place == f"{best.path}:{best.line_start}"
    assert "passages, " in screen


def test_arrows_choose_another_passage(retriever):
    hits = retriever.search("cancel a task", 10)
    place, _ = pick(retriever, "cancel a task", "\x1b[B", "\x1b[B", "\x1b[A")
    assert place == f"{hits[1].path}:{hits[1].line_start}"


@pytest.mark.parametrize("size", [(40, 160), (24, 70), (8, 40)])
def test_the_chosen_passage_is_shown_in_windows_of_any_size(retriever, size):
    place, screen = pick(retriever, size=size, query="cancel a task")
    assert place
    assert "> " in screen


def test_escape_leaves_without_a_place(retriever):
    picker = Picker(lambda text: retriever.search(text, 3), retriever.folder, str)
    with create_pipe_input() as source:
        source.send_text("\x03")
        assert picker.run(source, Vt100_Output(io.StringIO(), lambda: Size(24, 80), term="xterm")) is None


@pytest.mark.parametrize("keys", ["\x03\x03", "\x04\x03\t"])
def test_a_key_after_the_one_that_leaves_does_no_harm(retriever, keys):
    picker = Picker(lambda text: retriever.search(text, 3), retriever.folder, str)
    with create_pipe_input() as source:
        source.send_text(keys)
        assert picker.run(source, Vt100_Output(io.StringIO(), lambda: Size(24, 80), term="xterm")) is None


def test_enter_opens_the_passage_in_the_editor(retriever, folder, tmp_path, monkeypatch):
    opened = tmp_path / "opened"
    editor = tmp_path / "vim"
    editor.write_text(f'#!/bin/sh\nprintf "%s " "$@" >{opened}.part && mv {opened}.part {opened}\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    best = retriever.search("cancel a task", 10)[0]
    picker = Picker(lambda text: retriever.search(text, 10), retriever.folder, str, "cancel a task")
    with create_pipe_input() as source:

        def press():
            until(lambda: picker.answers.query == "cancel a task" and picker.app and picker.app.is_running)
            source.send_text("\r")
            until(opened.exists)
            source.send_text("\t")

        thread = threading.Thread(target=press)
        thread.start()
        assert picker.run(source, Vt100_Output(io.StringIO(), lambda: Size(40, 160), term="xterm"))
        thread.join(PATIENCE)
    assert opened.read_text().split() == [f"+{best.line_start}", str(folder / best.path)]


def test_an_answer_to_an_earlier_text_is_dropped(retriever):
    pause = Pause(retriever)
    answers = Search(pause.search)
    answers.want("cancel")
    until(lambda: pause.queries == ["cancel"])
    answers.want("refund")
    pause.set()
    until(lambda: answers.query == "refund")
    assert pause.queries == ["cancel", "refund"]
    answers.close()


def test_a_query_that_is_refused_is_one_line(retriever):
    def refuse(_):
        raise InputError("expected another query")

    answers = Search(refuse)
    answers.want("x")
    until(lambda: answers.query == "x")
    assert (list(answers.hits), answers.status) == ([], "expected another query")
    answers.close()


def test_text_of_documents_cannot_steer_the_terminal(retriever, folder):
    (folder / "evil.md").write_text("zebra \x1b]0;owned\x07 \x1b[2J \x9b31m stripes")
    retriever.sync()
    _, screen = pick(retriever, "zebra stripes")
    assert "\x1b]0;owned" not in screen
    assert "\x9b" not in screen


def test_the_command_prints_the_place_to_a_pipe_and_draws_on_the_terminal(folder, retriever):
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "binocle.cli", "pick", str(folder), "--query", "cancel a task"]
    process = subprocess.Popen(
        command, stdin=slave, stderr=slave, stdout=subprocess.PIPE, env={**os.environ, "TERM": "xterm"}, text=True
    )
    os.close(slave)
    screen = b""
    end = time.monotonic() + PATIENCE
    while b"passage" not in screen and time.monotonic() < end:
        if select.select([master], [], [], 0.1)[0]:
            screen += os.read(master, 65_536)
            if screen.endswith(b"\x1b[6n"):  # it asks where the cursor is
                os.write(master, b"\x1b[1;1R")
    os.write(master, b"\t")
    out, _ = process.communicate(timeout=PATIENCE)
    os.close(master)
    assert process.returncode == 0
    assert re.fullmatch(r"\S+:\d+\n", out)


def test_without_a_terminal_it_says_what_to_use(folder, retriever):
    command = [sys.executable, "-m", "binocle.cli", "pick", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert result.returncode == 2
    assert result.stderr == "binocle: binocle pick needs a terminal: 'binocle search QUERY' prints passages anywhere\n"
