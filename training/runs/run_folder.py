"""A training run: the folder that it lives in until the model takes its place, and its steps from where it is."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, ModelNotFoundError
from ...core.files import write_atomic
from . import environment
from . import model_card as cards
from .checkpoints import last_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from filelock import FileLock

    from .model_card import Card


@dataclass(frozen=True, slots=True)
class StepsResult:
    """What taking the steps came to."""

    steps: int  # of the whole run
    seconds: float  # of this process, as all that follows
    texts_per_second: float
    resumed_from: int | None
    history: list[dict[str, Any]]


class RunFolder:
    """What a run was asked, its data and checkpoints. Killed, the same call opens it again and goes on."""

    def __init__(self, out: Path, asked: Mapping[str, Any], *, kind: str = "model") -> None:
        """
        :param asked: all that the result follows from, as JSON.
        :param kind: what `out` is to hold.
        """
        self.out, self.kind = out, kind
        self.asked: dict[str, Any] = json.loads(json.dumps(asked))
        self.folder = folder_of(out)
        self.checkpoints = self.folder / "checkpoints"
        self.ready = self.folder / "model"  # what will be moved to `out`

    def open(self) -> None:
        """Make the folder, or go on with the same run in it.

        :raises InputError: when something else is there.
        """
        check_out(self.out, self.kind)
        file = self.folder / "asked.json"
        if file.is_file():
            known = json.loads(file.read_text("utf-8"))
            if known != self.asked:
                files = known | {"files": self.asked.get("files")} == self.asked
                other = "on data that changed since then" if files else "with other settings"
                raise InputError(f"{self.out} holds an unfinished run {other}: remove it or give another folder")
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            if environment.is_main_process():
                write_atomic(file, json.dumps(self.asked))

    def alone(self) -> FileLock:
        """For what one process does for all that train together."""
        from filelock import FileLock

        return FileLock(self.folder / "lock")

    def forget(self) -> None:
        """As if it had never been asked for, unless something of it is worth keeping."""
        if last_checkpoint(self.checkpoints) is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # it is not empty, or another process has removed it
                self.out.rmdir()

    @contextlib.contextmanager
    def unless_wrong(self) -> Iterator[None]:
        """Forget the run where what was asked cannot be done, so that it can be asked for in another way."""
        try:
            yield
        except (InputError, ModelNotFoundError):
            self.forget()
            raise

    def begin(self, module: Any) -> None:
        """Give a module the weights that the run began with: a new head is drawn once."""
        from safetensors.torch import load_file, save_file

        with self.alone():
            file = self.folder / "begin.safetensors"
            if file.is_file():
                module.load_state_dict(load_file(str(file)), strict=False)
                return
            parts = _unshared(module.state_dict())
            aside = file.with_suffix(".part")
            save_file({name: tensor.clone().contiguous() for name, tensor in parts.items()}, str(aside))
            aside.replace(file)

    def train(self, trainer: Any, *, patience: int | None, texts: int) -> StepsResult:
        """Take the steps that are left, which are none where all were taken or the run had no patience left.

        :param trainer: of `checkpoints.resumable`.
        :param texts: of one step.
        """
        checkpoint = last_checkpoint(self.checkpoints)
        began = time.monotonic()
        if checkpoint is not None and _has_stopped(checkpoint, patience):
            trainer.recall(checkpoint)
        else:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        seconds = time.monotonic() - began
        first = int(checkpoint.name.rsplit("-", 1)[1]) if checkpoint else None
        state = trainer.state
        rate = (state.global_step - (first or 0)) * texts / max(seconds, 1e-9)
        return StepsResult(state.global_step, seconds, rate, first, list(state.log_history))

    def average(self, module: Any, share: float) -> None:
        """Weights between those at the beginning and those now (Wortsman et al. 2022, arXiv:2109.01903)."""
        import torch
        from safetensors.torch import load_file

        begin = load_file(str(self.folder / "begin.safetensors"))
        begin = {name.replace(".base_layer.", "."): value for name, value in begin.items()}  # adapters are merged now
        with torch.no_grad():
            for name, value in module.state_dict().items():
                if name in begin and value.is_floating_point():
                    value.mul_(1 - share).add_(begin[name].to(value), alpha=share)

    def finish(self, card: Card, history: list[dict[str, Any]], metric: str | None) -> None:
        """Put what is in `ready` in the run's place, with its card."""
        if self.ready.is_dir():
            cards.finish(self.ready, self.out, card, history, metric)
        gone = self.folder.with_name(".run")  # a half of it would look like a run to go on with
        shutil.rmtree(gone, ignore_errors=True)
        self.folder.replace(gone)
        shutil.rmtree(gone)


def check_out(out: Path, kind: str = "model") -> None:
    """:raises InputError: unless `out` is free, or holds a run."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: expected a folder for the {kind}")
    begun = (folder_of(out) / "asked.json").is_file()
    if not begun and out.exists() and any(path != folder_of(out) for path in out.iterdir()):
        raise InputError(f"{out} is not empty: give another folder for the {kind}")


def folder_of(out: Path) -> Path:
    """Where below its output a run lives."""
    return out / "run"


def files_of(*sources: Any) -> list[tuple[str, int, int]]:
    """Path, size and time of change of each file of data, by which a run sees that they are those it began with."""
    found = []
    for source in sources:
        path = Path(source) if isinstance(source, (str, Path)) else None
        if path is not None and path.is_dir():  # a collection or a Lance table
            found += sorted(file for part in ("*.jsonl", "qrels/*", "_versions/*") for file in path.glob(part))
        elif path is not None and path.is_file():
            found.append(path)
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in found]


def _has_stopped(checkpoint: Path, patience: int | None) -> bool:
    """Whether a run that has come this far was at its end or had no patience left."""
    state = json.loads((checkpoint / "trainer_state.json").read_text("utf-8"))
    if state["global_step"] >= state["max_steps"]:
        return True
    stopping = state.get("stateful_callbacks", {}).get("EarlyStoppingCallback")
    waited = stopping["attributes"]["early_stopping_patience_counter"] if stopping else 0
    return patience is not None and waited >= patience


def _unshared(state: Mapping[str, Any]) -> dict[str, Any]:
    """Each tensor once, under its first name: safetensors keeps no two names for one."""
    seen: dict[int, str] = {}
    return {name: seen.setdefault(t.data_ptr(), name) and t for name, t in state.items() if t.data_ptr() not in seen}
