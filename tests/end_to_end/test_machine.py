"""The description of a run in the results of `benchmarks/`."""

import importlib.util
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest


@pytest.fixture
def machine(tmp_path, monkeypatch):
    file = Path(__file__).parents[2] / "benchmarks" / "machine.py"
    spec = importlib.util.spec_from_file_location("machine", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return module


def git(folder, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_result_names_its_commit_date_and_arguments(machine, tmp_path, monkeypatch, capsys):
    arguments = ["--vectors", "/data/real.npy", "--folder=/home/me/docs/", "a/b,../c", "--recalls", "0.95,0.99"]
    monkeypatch.setattr(sys, "argv", ["/work/benchmarks/vectors/filters.py", *arguments])
    monkeypatch.setattr(machine, "COMMIT", "c0ffee1")
    machine.save("it", {"x": 1}, seed=7)
    assert json.loads(capsys.readouterr().out) == {"x": 1}
    saved = json.loads((tmp_path / "results" / "it.json").read_text("utf-8"))
    assert (saved["results"], saved["seed"], saved["commit"]) == ({"x": 1}, 7, "c0ffee1")
    assert saved["arguments"] == ["--vectors", "real.npy", "--folder=docs", "b,c", "--recalls", "0.95,0.99"]
    assert timedelta(0) <= datetime.now(UTC) - datetime.fromisoformat(saved["date"]) < timedelta(minutes=1)
    assert "binocle" not in saved["machine"]["versions"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_uncommitted_code_makes_a_result_dirty_and_another_result_does_not(machine, tmp_path):
    assert machine.commit(tmp_path) is None
    git(tmp_path, "init", "-q")
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    (tmp_path / "code.py").write_text("a = 1\n", "utf-8")
    (results / "it.json").write_text("{}", "utf-8")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    name = git(tmp_path, "rev-parse", "--short", "HEAD")
    (results / "it.json").write_text("[]", "utf-8")
    assert machine.commit(tmp_path) == name
    (tmp_path / "code.py").write_text("a = 2\n", "utf-8")
    assert machine.commit(tmp_path) == f"{name}-dirty"
