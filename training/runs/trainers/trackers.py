"""Trackers of training runs, beside the log and the curves in the model's folder. Off unless one is named."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ....core.errors import InputError, MissingExtraError

if TYPE_CHECKING:
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
