"""One process and one thread train in a folder, and a resumed run knows its earlier measures."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from binocle.core.errors import InputError, LockedError
from binocle.training.encoders.config import EncoderConfig
from binocle.training.runs.training_run import TrainingRun


def test_the_time_of_measuring_the_base_is_known_to_a_resumed_run(tmp_path):
    def start():
        run = TrainingRun(tmp_path / "out", "base", EncoderConfig())
        run.open({})
        return run

    first, second = start(), start()
    assert first.measuring_seconds is None
    assert first.measure_once(lambda: 0.5) == second.measure_once(lambda: 0.7) == 0.5
    assert first.measuring_seconds == second.measuring_seconds > 0


@pytest.mark.thorough
def test_one_process_at_a_time_trains_in_a_folder(tmp_path, monkeypatch):
    run = TrainingRun(tmp_path / "out", "base", EncoderConfig())
    program = (
        "import sys\nfrom binocle.core.errors import LockedError\n"
        "from binocle.training.encoders.config import EncoderConfig\n"
        "from binocle.training.runs.training_run import TrainingRun\n"
        "try:\n    TrainingRun(sys.argv[1], 'base', EncoderConfig()).open({})\n"
        "except LockedError as error:\n    print(error)"
    )

    def other() -> str:
        command = [sys.executable, "-c", program, str(tmp_path / "out")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    run.open({})
    message = f"another process trains in {tmp_path / 'out'}: wait until it has finished, or give another folder"
    assert other() == message
    again = TrainingRun(tmp_path / "out", "base", EncoderConfig())
    again.open({})  # this process goes on after an interruption
    again._release_process()
    with monkeypatch.context() as patch:
        patch.setenv("RANK", "1")  # beside the main process
        assert other() == ""
    with pytest.raises(KeyboardInterrupt), run.release_on_error():
        raise KeyboardInterrupt
    assert other() == ""
    run.open({})
    assert other() == message
    run.discard()
    assert not (tmp_path / "out").exists() and other() == ""


def test_one_thread_at_a_time_trains_in_a_folder(tmp_path):
    def attempt() -> str:
        run = TrainingRun(tmp_path / "out", "base", EncoderConfig())
        try:
            run.open({})
        except LockedError as error:
            return str(error)
        run._release_process()
        return ""

    def other() -> str:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(attempt).result()

    run = TrainingRun(tmp_path / "out", "base", EncoderConfig())
    run.open({})
    assert other() == f"another thread trains in {run.out}: wait until it has finished, or give another folder"
    assert attempt() == ""  # this thread goes on after an interruption
    run.open({})
    run._release_process()
    assert other() == ""


def test_a_run_that_was_killed_in_its_last_moment_is_finished_and_tidied(tmp_path, monkeypatch):
    def killed(path, **_options):
        if path.exists():
            raise KeyboardInterrupt

    out = tmp_path / "out"
    run = TrainingRun(out, "base", EncoderConfig())
    run.open({})
    (out / "model.safetensors").touch()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            run.finish(None, [], None)
    run._release_process()
    again = TrainingRun(out, "base", EncoderConfig())
    with pytest.raises(InputError, match="out holds the finished model already: give another folder for a new one"):
        again.open({})
    assert [path.name for path in out.iterdir()] == ["model.safetensors"]
