"""The dependencies of Binocle: files by checksum, licences that let anyone use them."""

from __future__ import annotations

import re
import runpy
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LICENCES = ROOT / ".ci/licences.py"
pytestmark = pytest.mark.skipif(not LICENCES.is_file(), reason="only a checkout has .ci")
PIN = re.compile(r"([a-z0-9-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()[1:]
    matches = [PIN.fullmatch(line) for line in lines]
    assert None not in matches
    return {match[1]: match[2] for match in matches if match}


def test_each_locked_file_has_a_checksum_and_the_version_of_the_constraints():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    constraints = {normal(line.split("==")[0]): line.split("==")[1] for line in lines if "==" in line}
    assert {name: constraints[name] for name in pins()} == pins()


def test_the_lock_has_all_that_a_search_needs():
    needed = [
        normal(re.split(r"[^\w.-]", line)[0]) for line in distribution("binocle").requires or [] if "extra" not in line
    ]
    assert set(needed) <= set(pins())


def test_every_dependency_has_a_licence_that_lets_anyone_use_it():
    licences = runpy.run_path(str(LICENCES))
    packages = licences["dependencies"]("binocle")
    assert {"numpy", "pylance", "huggingface-hub", "rich"} <= packages.keys()
    assert licences["refused"](packages) == {}


class Licensed(Distribution):
    """A distribution with these lines of metadata."""

    def __init__(self, lines: str) -> None:
        self._lines = lines

    def read_text(self, filename: str) -> str | None:
        return self._lines if filename == "METADATA" else None

    def locate_file(self, path):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("lines", "licence"),
    [
        ("License-Expression: GPL-3.0-only", "GPL-3.0-only"),
        ("License-Expression: MIT AND AGPL-3.0-only", "MIT AND AGPL-3.0-only"),
        ("Classifier: License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)", "GNU Lesser .*"),
        ("License: Proprietary", "Proprietary"),
        ("License: free for research, MIT", "free for research, MIT"),
        ("Name: x", "none"),
    ],
)
def test_another_licence_is_refused(lines, licence):
    (text,) = runpy.run_path(str(LICENCES))["refused"]({"x": Licensed(lines + "\n")}).values()
    assert re.fullmatch(licence, text)


def test_a_choice_of_licences_is_allowed_if_one_of_them_is():
    assert runpy.run_path(str(LICENCES))["refused"]({"x": Licensed("License-Expression: GPL-2.0-only OR MIT\n")}) == {}
