"""A command that the process in the background answers prints the same bytes as the program itself."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import binocle
from binocle import Retriever
from binocle.commands.background import client, kept


@pytest.fixture
def place(monkeypatch):
    """A short path for the socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        for name, value in (("OPENBLAS_NUM_THREADS", "1"), ("OMP_WAIT_POLICY", "passive"), ("LANCE_LOG", "error")):
            monkeypatch.setenv(name, value)  # which the program would set for good
        use_environment(monkeypatch)
        yield Path(folder)


def use_environment(monkeypatch):
    """The present environment is that of the start of this process."""
    monkeypatch.setattr(client, "ENVIRONMENT", dict(os.environb))


@pytest.fixture
def start(place):
    """`start("search", "cat", seconds=60)`: a process in the background, ready to answer."""
    processes = []

    def starting(*words, seconds=60):
        (place / "binocle").mkdir(exist_ok=True)
        command = [sys.executable, "-P", "-m", "binocle", client.STAY, str(seconds), *words]
        processes.append(subprocess.Popen(command, env=client.ENVIRONMENT))
        until(is_there)
        return processes[-1]

    yield starting
    for process in processes:
        process.kill()
        process.wait()


def is_there():
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(client.address()) == 0


def until(condition):
    for _ in range(2_000):
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("it did not come")


@pytest.fixture
def warm(capfd):
    """`warm("search", "cat")`: the exit code, the output and the errors as the process in the background has them."""

    def asking(*words):
        capfd.readouterr()
        code = client.ask([str(word) for word in words])
        return code, *map(timeless, capfd.readouterr())

    return asking


def cold(run, *words):
    ran = run(*words)
    return ran.code, timeless(ran.out), timeless(ran.err)


def timeless(text):
    return re.sub(r"[0-9.]+ ms", "… ms", text)


SEARCHES = """
search cat
search cat -k 2 --full
search cat --json
search cat --json --mode semantic
search cat notes
search cat notes/cats.txt --where type=txt
search cat --files *.md --copies
search walrusses --mode lexical
search "sat on" --no-join
search catt --explain
search nothingofthiskind -k 1 --mode lexical
search cat --min-relevance 0.9
search cat --per-document 1 -k 3
search --regex c.t -i -C 1
search --fixed cat -c
search cat --no-such-option
search cat elsewhere
search cat -k 0
similar notes/cats.txt:1
similar notes/cats.txt:1 --json -k 2
similar none:1
show notes/cats.txt
show notes/cats.txt:1-2
show nothing
""".strip().splitlines()


@pytest.mark.thorough
def test_every_search_prints_the_same_bytes(start, here, run, warm, monkeypatch, tmp_path):
    start("search", "cat")
    expected = [cold(run, *line.replace('"', "").split(" ")) for line in SEARCHES]
    assert {code for code, *_ in expected} == {0, 1, 2}
    for _ in range(2):  # the second time all is open
        assert [warm(*line.replace('"', "").split(" ")) for line in SEARCHES] == expected

    monkeypatch.chdir(here / "notes")  # paths are printed as they open from here
    assert warm("search", "cat") == cold(run, "search", "cat") != expected[0]
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config/binocle").mkdir(parents=True)
    (tmp_path / "config/binocle/config.toml").write_text("[search]\nk = 1\n")
    use_environment(monkeypatch)
    assert warm("search", "cat") == cold(run, "search", "cat")
    assert len(warm("search", "cat", "--json")[1].splitlines()) == 1


@pytest.mark.thorough
def test_index_its_model_and_what_the_user_allows_are_those_of_now(
    place, start, run, warm, tiny_model, monkeypatch, tmp_path
):
    monkeypatch.delenv("BINOCLE_TRUST")
    use_environment(monkeypatch)
    model, folder = shutil.copytree(tiny_model, tmp_path / "model"), tmp_path / "own"
    folder.mkdir()
    (folder / "cats.md").write_text("The cat sat.\n")
    Retriever.open(folder, model=model).sync()
    start("search", "cat", str(folder))
    assert warm("search", "zebra", folder, "--mode", "lexical")[0] == 1
    (folder / "new.md").write_text("The zebra eats.\n")
    Retriever.open(folder).sync()
    assert "new.md" in warm("search", "zebra", folder)[1]
    shutil.move(model, tmp_path / "moved")
    assert warm("search", "zebra", folder) == cold(run, "search", "zebra", folder)
    assert warm("search", "zebra", folder)[0] == 2
    file = folder / ".binocle/settings.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "id": "0" * 32}))  # as made by another user
    assert warm("search", "zebra", folder) == cold(run, "search", "zebra", folder)
    assert "searched by words alone" in warm("search", "zebra", folder)[2]


def test_model_that_changed_after_the_first_search_is_loaded_again(tiny_model, tmp_path):
    model = shutil.copytree(tiny_model, tmp_path / "model")
    index = tmp_path / "index"
    with Retriever.open(index, model=model) as made:
        made.add([{"id": "cat", "text": "the cat sat"}])
    retrievers = kept.Retrievers(60)
    retriever = retrievers.get(index, None)
    retriever.search("cat")
    retrievers.end_command()
    os.utime(model / "model.safetensors", ns=(1, 1))
    another = retrievers.get(index, None)
    assert another is not retriever
    another.search("cat")
    retrievers.end_command()
    assert retrievers.get(index, None) is another


@pytest.mark.thorough
def test_index_that_is_removed_is_gone(start, here, run, warm):
    start("search", "cat")
    assert warm("search", "cat")[0] == 0
    shutil.rmtree(here / ".binocle")
    assert warm("search", "cat") == cold(run, "search", "cat")
    assert "no index" in warm("search", "cat")[2]
    (here / "cats.txt").write_text("Only this.\n")
    Retriever.open(here, model=None).sync()
    assert warm("search", "this") == cold(run, "search", "this")


def test_what_needs_a_process_of_its_own_is_not_answered(start, here, warm, monkeypatch, tmp_path):
    start("search", "cat")
    for words in (["search", "-"], ["search", "cat", "--open"], ["search", "cat", "--ray", "local"], ["status"], []):
        assert warm(*words) == (None, "", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("EDITOR", "true")
    (tmp_path / "config/binocle").mkdir(parents=True)
    (tmp_path / "config/binocle/config.toml").write_text("[search]\nopen = true\n")
    use_environment(monkeypatch)
    assert warm("search", "cat") == (None, "", "")
    monkeypatch.setenv("BINOCLE_PRECISION", "float32")  # read once in a process
    use_environment(monkeypatch)
    assert warm("search", "cat") == (None, "", "")


def test_home_of_another_environment_is_another_index(tmp_path, tiny_model, monkeypatch):
    open_indexes = kept.Retrievers(60)
    for name in ("ada", "bob"):
        monkeypatch.setenv("HOME", str(tmp_path / name))
        Retriever.open(tmp_path / name / "notes", model=tiny_model).add([{"id": name, "text": "The cat sat."}])
        assert [hit.path for hit in open_indexes.get(Path("~/notes"), None).search("cat")] == [name]
        assert open_indexes.get(Path("~/notes"), None) is open_indexes.get(tmp_path / name / "notes", None)


# Sockets that do not answer


@pytest.fixture
def listener(place):
    """A socket at the address, where nobody answers yet."""
    (place / "binocle").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(client.address())
        os.chmod(client.address(), 0o600)
        listening.listen()
        yield listening


def answering(listener, answer):
    """Answer one request with these bytes."""

    def answer_one():
        connection, _ = listener.accept()
        with connection:
            size = int.from_bytes(connection.recv(8), "big")
            while size > 0:
                size -= len(connection.recv(size))
            connection.sendall(answer)

    thread = threading.Thread(target=answer_one)
    thread.start()
    return thread


def frame(stream, content):
    return bytes([stream]) + len(content).to_bytes(8, "big") + content


def test_answer_that_ends_in_the_middle_is_not_printed(listener, warm):
    whole = frame(1, b"a hit\n") + frame(2, b"a note\n") + frame(0, b"1")
    for length in (0, 5, len(frame(1, b"a hit\n")), len(whole) - 1):
        thread = answering(listener, client.ACCEPTED + whole[:length])
        assert warm("search", "cat") == (None, "", "")
        thread.join()
    thread = answering(listener, client.ACCEPTED + whole)
    assert warm("search", "cat") == (1, "a hit\n", "a note\n")
    thread.join()


def test_socket_that_is_busy_dead_or_of_another_user_is_not_asked(listener, warm, monkeypatch, place):
    assert warm("search", "cat") == (None, "", "")  # nobody accepts
    os.chmod(client.address(), 0o666)
    assert warm("search", "cat") == (None, "", "")
    os.chmod(client.address(), 0o600)
    monkeypatch.setattr(client.os, "getuid", lambda: 12_345)
    assert warm("search", "cat") == (None, "", "")
    monkeypatch.undo()
    listener.close()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    assert warm("search", "cat") == (None, "", "")  # stale
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"{place}/{'long/' * 30}")
    assert warm("search", "cat") == (None, "", "")


def test_another_version_has_another_socket_and_is_refused(start, here, warm, monkeypatch):
    start("search", "cat")
    path = client.address()
    monkeypatch.setattr(client, "__version__", "0.0.9")
    assert client.address() != path
    monkeypatch.setattr(client, "address", lambda: path)
    assert warm("search", "cat") == (None, "", "")


def test_a_path_of_the_interpreter_with_dots_has_the_same_socket(place, monkeypatch):
    path, folder = client.address(), Path(sys.executable).parent
    monkeypatch.setattr(sys, "executable", f"{folder}/../{folder.name}/{Path(sys.executable).name}")
    assert client.address() == path


@pytest.mark.slow
def test_process_in_the_background_replaces_a_dead_one_and_ends_by_itself(listener, start, here, warm):
    listener.close()
    first = start("search", "cat")
    assert start("search", "cat").wait() == 0  # one is enough
    assert warm("search", "cat")[0] == 0
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert warm("search", "cat") == (None, "", "")
    second = start("search", "cat", seconds=2)
    assert second.wait() == 0
    assert not os.path.exists(client.address())


def test_search_leaves_a_process_behind_and_ends_it(place, here, run, warm):
    first = cold(run, "search", "cat", "--stay", "30s")
    until(lambda: warm("search", "cat") == first)  # on a busy machine it may need some time to accept
    assert warm("search", "cat", "--stay", "0") == first
    until(lambda: not os.path.exists(client.address()))
    assert "'soon' is no time: expected one such as 90s" in run("search", "cat", "--stay", "soon").err


def test_a_process_that_is_still_starting_is_ended_too(place, here, run):
    assert run("search", "cat", "--stay", "0").code == 0  # none is there
    (place / "binocle").mkdir()
    command = [sys.executable, "-P", "-m", "binocle", client.STAY, "3600", "search", "cat"]
    process = subprocess.Popen(command, env=client.ENVIRONMENT)
    try:
        until(lambda: any((place / "binocle").iterdir()))
        assert run("search", "cat", "--stay", "0").code == 0
        until(lambda: process.poll() is not None)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_full_output_device_is_one_line_and_exit_2(start, here):
    start("search", "cat")
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-P", "-m", "binocle", "search", "cat"]
        process = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, env=client.ENVIRONMENT, check=False)
    assert (process.returncode, process.stderr) == (2, b"binocle: standard output: No space left on device\n")


@pytest.mark.slow
def test_terminal_sees_the_same_colours_and_width(start, here, monkeypatch):
    def shown(words, *prefix):
        """The output in a terminal of 50 columns."""
        main, side = pty.openpty()
        import fcntl
        import struct
        import termios

        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
        words = [sys.executable, "-P", *prefix, "search", words]
        with subprocess.Popen(words, stdin=side, stdout=side, stderr=side, env=client.ENVIRONMENT) as process:
            os.close(side)
            parts = []
            try:
                while part := os.read(main, 65_536):
                    parts.append(part)
            except OSError:  # the end, as Linux says it
                pass
        os.close(main)
        return process.returncode, b"".join(parts)

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    use_environment(monkeypatch)
    start("search", "cat")
    program = "import sys; sys.argv[0] = 'binocle'; from binocle.cli import main; main()"
    for word in ("cat", "--help"):
        by_server = shown(word, "-m", "binocle")
        assert by_server == shown(word, "-c", program)
        assert by_server[0] == 0 and (b"\x1b[" in by_server[1]) == (word == "cat")


def test_program_asks_before_it_imports_anything_heavy(place, tmp_path):
    code = (
        "import sys; sys.argv = ['binocle', 'search', 'cat']; import binocle.__main__ as program;"
        "program.ask(sys.argv[1:]); import json;"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules if not name.startswith('_')})))"
    )
    (tmp_path / "binocle").symlink_to(Path(binocle.__file__).parent)  # the checkout may have any name
    ran = subprocess.run(
        [sys.executable, "-ISc", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"], stdout=-1
    )
    assert not {"click", "numpy", "socket", "subprocess", "pathlib", "typing", "lance"} & set(json.loads(ran.stdout))
