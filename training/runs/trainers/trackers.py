"""Trackers of training runs, beside the log and the curves in the model's folder. Off unless one is named."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ....core.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TENSORBOARD = "tensorboard"  # also the folder of its files, beside the model
TRACKERS = (TENSORBOARD, "wandb", "trackio")  # packages, and extras of the same name


def check(name: str | None) -> None:
    """Check that a tracker exists and is installed, without importing it.

    :raises InputError: for an unknown name.
    :raises MissingExtraError: if its package is not installed.
    """
    if name is None:
        return
    if name not in TRACKERS:
        raise InputError(f"there is no tracker {name!r}: expected one of {', '.join(TRACKERS)}")
    if find_spec(name) is None:
        raise MissingExtraError(name, name, f"reporting a run to {name}")


def callbacks(name: str | None, out: Path) -> list[Any]:
    """Return the trainer's callbacks for a tracker: transformers' own, with their environment variables.

    :param out: folder of the model; TensorBoard's files go to `tensorboard/` in it.
    """
    if name is None:
        return []
    from transformers import integrations as modules

    integrations: Any = modules  # its classes are neither exported nor typed
    if name != TENSORBOARD:
        return [{"wandb": integrations.WandbCallback, "trackio": integrations.TrackioCallback}[name]()]
    callback = integrations.TensorBoardCallback()
    callback.logging_dir = str(out / TENSORBOARD)
    return [callback]


@contextmanager
def reporting(name: str | None, out: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that reports a row of a history to a tracker, for runs without transformers' trainer.

    A row has a `step`, an `epoch` and numbers. Without a tracker, the function does nothing.
    """
    followers = callbacks(name, out)
    if not followers:
        yield lambda _: None
        return
    from transformers import TrainerControl, TrainerState, TrainingArguments

    arguments = TrainingArguments(output_dir=str(out), run_name=out.name, report_to="none")
    state, control = TrainerState(), TrainerControl()

    def call(event: str, **values: Any) -> None:
        for follower in followers:
            getattr(follower, event)(arguments, state, control, model=None, **values)

    def report(row: dict[str, Any]) -> None:
        state.global_step, state.epoch = row["step"], row["epoch"]
        call("on_log", logs={key: value for key, value in row.items() if key != "step"})

    call("on_train_begin")
    try:
        yield report
    finally:
        call("on_train_end")
