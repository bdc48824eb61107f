"""What a trainer calls as it goes: tells how far the run is, keeps its log and stops where the loss is no number."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.files import write_atomic
from .progress import Update

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .progress import Progress


def watcher(progress: Progress | None, *, texts: int, metric: str | None, log: Path | None = None) -> Any:
    """A trainer callback that tells `progress` and keeps the log.

    :param texts: encoded in one step.
    :param metric: name of the held-out measure, without "eval_".
    :param log: where the run's history is kept, one JSON object a line.
    """
    from transformers import TrainerCallback

    class Watcher(TrainerCallback):
        def __init__(self) -> None:
            self.began, self.first = time.monotonic(), 0
            self.metric: float | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            self.began, self.first = time.monotonic(), state.global_step

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
            _tell_epoch(given.get("train_dataloader"), int((state.epoch or 0.0) + 1e-6))

        def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
            logs = given.get("logs") or {}
            _check_loss(logs, args.learning_rate, state.global_step)
            if f"eval_{metric}" in logs:
                self.metric = float(logs[f"eval_{metric}"])
            if not state.is_world_process_zero:
                return
            if log:
                write_log(log, state.log_history)
            if progress and ("loss" in logs or f"eval_{metric}" in logs):
                progress(self._update(state, logs.get("loss")))

        def _update(self, state: Any, loss: float | None) -> Update:
            done = state.global_step - self.first
            seconds = max(time.monotonic() - self.began, 1e-9)
            left = (state.max_steps - state.global_step) * seconds / done if done else 0.0
            return Update(
                step=state.global_step,
                steps=state.max_steps,
                epoch=state.epoch or 0.0,
                loss=loss,
                metric_name=metric,
                metric=self.metric,
                texts_per_second=done * texts / seconds,
                seconds_left=left,
            )

    return Watcher()


def _check_loss(logs: Mapping[str, Any], rate: float, step: int) -> None:
    """:raises InputError: when the loss is no number, nor will the weights be from there on."""
    if not all(math.isfinite(logs.get(name, 0.0)) for name in ("loss", "train_loss")):  # so far, and at the end of all
        raise InputError(
            f"the loss is no number any more at step {step}: give a learning rate below {rate:g}, and another folder "
            "for the model"
        )


def _tell_epoch(loader: Any, epoch: int) -> None:
    """Tell the order of rows which epoch begins: a resumed run of several processes hides it from accelerate."""
    inner = getattr(loader, "batch_sampler", None)
    while inner is not None:
        if hasattr(inner, "set_epoch"):
            inner.set_epoch(epoch)
        inner = getattr(inner, "batch_sampler", None) or getattr(inner, "sampler", None)


def write_log(file: Path, history: list[dict[str, Any]]) -> None:
    """The whole history: a resumed run then has each step once."""
    write_atomic(file, "".join(json.dumps(_plain(row)) + "\n" for row in history))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}
