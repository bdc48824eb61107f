"""Every state that a killed writer can leave, made from the calls of one traced run; and calls that fail.

`python -m benchmarks.trust.crash_states` does the same for all operations and all regimes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.trust.replay import Call, Disk, cut, killed

ROOT = Path(__file__).parents[3]


def calls(*texts: str) -> list[Call]:
    """Calls such as "W a/b text" and "R a b"."""
    parts = [text.split(" ") for text in texts]
    return [
        Call(kind, path, rest[0] if kind in "RL" else "", 0, rest[0].encode() if kind == "W" else b"")
        for kind, path, *rest in parts
    ]


def test_a_kill_leaves_all_that_was_done_and_perhaps_half_of_a_write():
    states = list(killed({"a": b"old"}, calls("C .a", "W .a new!", "R .a a")))
    assert [state.files for state in states] == [
        {"a": b"old"},
        {"a": b"old", ".a": b""},
        {"a": b"old", ".a": b"ne"},
        {"a": b"old", ".a": b"new!"},
        {"a": b"new!"},
    ]


def test_a_power_cut_may_lose_contents_and_names_that_were_not_synced():
    def after(*texts: str) -> list[dict[str, bytes | None]]:
        return [state.files for state in cut({"a": b"old"}, calls(*texts)) if state.label.startswith("end")]

    unsynced = after("C .a", "W .a new", "R .a a")
    assert {"a": b""} in unsynced
    assert {"a": b"old"} in unsynced
    synced_contents = after("C .a", "W .a new", "S .a", "R .a a")
    assert {"a": b""} not in synced_contents
    assert {"a": b"old"} in synced_contents
    assert after("C .a", "W .a new", "S .a", "R .a a", "S .") == [{"a": b"new"}]


def test_the_names_in_a_renamed_folder_stay_synced():
    disk = Disk({})
    for call in calls("M d", "C d/f", "W d/f x", "S d/f", "S d", "R d e", "S ."):
        disk.run(call)
    assert disk.state("", all_unsynced="names").files == {"e": None, "e/f": b"x"}


def run(*arguments: str) -> dict:
    if not sys.platform.startswith("linux") or not shutil.which("cc"):
        pytest.skip("calls are traced on Linux with a C compiler")
    command = [sys.executable, "-m", "benchmarks.trust.crash_states", "--print", *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.thorough
def test_no_state_of_a_killed_sync_loses_anything():
    result = run("--operations", "edit", "--regimes", "kill", "--every", "100")["edit"]
    assert result["exit"] == 0
    assert result["kill"]["checked"] > 40
    assert result["kill"]["examples"] == []


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["index", "sync", "forget", "switch", "build_index"])
def test_no_kill_power_cut_or_failing_call_loses_anything(operation):
    result = run("--operations", operation, "--every", "20")[operation]
    assert result["exit"] == 0
    assert result["process_ended_by"] == []
    assert {regime: result[regime]["examples"] for regime in ("kill", "power", "fail")} == {
        "kill": [],
        "power": [],
        "fail": [],
    }
