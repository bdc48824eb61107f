"""Which connections Binocle makes: none, unless an option names a hub's model, a bucket or a cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

COMMANDS = """
import sys
from binocle.cli import main

for words in {commands}:
    sys.argv = ["binocle", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words

from binocle import Retriever
print(Retriever.open({folder!r}).context("cat").text)
"""
SENT = re.compile(r"\b(connect|sendto|sendmsg|sendmmsg)\(.*AF_INET")


def connections(program: str, tmp_path, *arguments: str) -> list[str]:
    """The lines of strace that show a program, or a child of it, sending to an internet address or asking a DNS."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    lines, home = tmp_path / "lines", tmp_path / "home"
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    trace = [strace, "-f", "--seccomp-bpf", "-qq", "-e", "trace=%network", "-o", lines]  # other calls do not stop
    command = [*trace, sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env={**environment, "HOME": str(home)}, capture_output=True, text=True, check=False)
    if "PTRACE" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr[:100]}")
    assert done.returncode == 0, done.stderr
    assert not (home / "intel").exists()  # where OpenVINO's telemetry identifies a user
    (tmp_path / "printed").write_text(done.stdout + done.stderr, "utf-8")
    return [line for line in lines.read_text("utf-8", "replace").splitlines() if SENT.search(line)]


def test_a_connection_is_seen(tmp_path):
    """Else the tests below prove nothing."""
    program = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))"
    assert len(connections(program, tmp_path)) == 1


def test_no_command_on_a_local_index_connects_to_anything(folder, tiny_model, make_model, tmp_path):
    index = [str(folder)]
    commands = [
        ["index", *index, "--model", str(tiny_model)],
        ["search", "cat", *index],
        ["similar", "notes/cats.txt:1", *index],
        ["status", *index],
        ["files", *index],
        ["show", "notes/cats.txt", *index],
        ["verify", "--deep", *index],
        ["optimize", *index, "--recall", "0.5", "--kind", "flat"],
        ["switch", str(make_model(tmp_path / "other", seed=1)), *index],
        ["rollback", *index],
        ["forget", "README.md", *index],
        ["index", "--retry", *index],
    ]
    assert connections(COMMANDS.format(commands=commands, folder=str(folder)), tmp_path) == []


LIBRARIES = "lance tokenizers huggingface_hub safetensors faiss rich lxml.etree pypdfium2 filelock"
TRAINING = "torch transformers sentence_transformers datasets accelerate peft matplotlib.pyplot lancedb"


def importing(names: str) -> str:
    own = "from binocle.retriever.models.bert.openvino import import_openvino; import_openvino()"
    return f"import importlib\n{own}\nfor name in {names.split()}: importlib.import_module(name)"


def test_no_library_that_a_search_imports_reports_home_or_prints(tmp_path):
    assert connections(importing(LIBRARIES), tmp_path) == []
    assert (tmp_path / "printed").read_text("utf-8") == ""


@pytest.mark.slow
def test_no_library_that_training_imports_reports_home_or_prints(tmp_path):
    assert connections("import warnings; warnings.simplefilter('ignore')\n" + importing(TRAINING), tmp_path) == []
    assert (tmp_path / "printed").read_text("utf-8") == ""
