"""Callbacks of a transformers trainer: report progress, keep the log, and stop at a loss that is not finite."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from ....core.files import json_or_make
from ..checkpoints import worse_evaluations
from ..run_folder import write_log
from ..run_progress import check_loss, training_step

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ....core.progress import OnProgress, Progress


class ProgressCallback(TrainerCallback):
    """Report every logged step, and write the run's log."""

    def __init__(self, on_progress: OnProgress, *, texts: int, metric: str | None, log: Path | None = None) -> None:
        """
        :param texts: encoded in one step.
        :param metric: name of the held-out measure, without "eval_".
        :param log: file of the history, one JSON object a line.
        """
        self._on_progress, self._texts, self._name, self._log = on_progress, texts, metric, log
        self._start, self._first_step = time.monotonic(), 0
        self._metric: tuple[str, float] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Start the clock; a resumed run counts its steps from the checkpoint."""
        self._start, self._first_step = time.monotonic(), state.global_step

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **trainer: Any) -> None:  # noqa: ARG002
        """Set the epoch of the row order, on every process."""
        _set_epoch(trainer.get("train_dataloader"), int((state.epoch or 0.0) + 1e-6))

    def on_log(self, args: Any, state: Any, control: Any, **trainer: Any) -> None:  # noqa: ARG002
        """Write the log and report progress, on the main process alone.

        :raises InputError: on every process, when the loss is not finite.
        """
        logs = trainer.get("logs") or {}
        for name in ("loss", "train_loss"):  # of the last steps, and of all
            check_loss(logs.get(name, 0.0), args.learning_rate, state.global_step)
        value = logs.get(f"eval_{self._name}")
        if self._name is not None and value is not None:
            self._metric = self._name, float(value)
        if not state.is_world_process_zero:
            return
        if self._log:
            write_log(self._log, state.log_history)
        if "loss" in logs or value is not None:
            self._on_progress(self._event(state, logs.get("loss")))

    def _event(self, state: Any, loss: float | None) -> Progress:
        done = state.global_step - self._first_step
        seconds = max(time.monotonic() - self._start, 1e-9)
        return training_step(
            state.global_step,
            state.max_steps,
            (state.max_steps - state.global_step) * seconds / done if done else 0.0,
            epoch=state.epoch or 0.0,
            loss=loss,
            metric=self._metric,
            texts_per_second=done * self._texts / seconds,
        )


class EvaluateSome(TrainerCallback):
    """Evaluate as many checkpoints as time allows, evenly spread, and always the last one.

    At the first checkpoint the number is decided and saved, so that a resumed run evaluates at the same steps as an
    uninterrupted one.
    """

    def __init__(
        self,
        evaluations: int,
        file: Path,
        *,
        share: float | None = None,
        cost: Callable[[], float | None] = lambda: None,
    ) -> None:
        """
        :param evaluations: at most.
        :param file: of the number that was decided.
        :param share: of the run's time that all evaluations may take; None: no limit, so no number is saved.
        :param cost: returns the seconds of one evaluation, if they are known.
        """
        self._evaluations, self._file, self._share, self._cost = evaluations, file, share, cost
        self._start, self._first_step = time.monotonic(), 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Start the clock."""
        self._start, self._first_step = time.monotonic(), state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Drop the evaluations between, and evaluations that would take too long."""
        if control.should_evaluate:
            interval = int(args.eval_steps)
            total, number = max(1, state.max_steps // interval), state.global_step // interval
            count = min(total, self._count(state))
            control.should_evaluate = number * count // total > (number - 1) * count // total

    def _count(self, state: Any) -> int:
        """Return the number of evaluations of the whole run."""
        share = self._share
        if share is None:
            return self._evaluations
        return int(json_or_make(self._file, lambda: self._affordable(state, share)))

    def _affordable(self, state: Any, share: float) -> int:
        """Return how many evaluations fit into their share of the time, if all steps take as long as the first ones.

        A single one would be of the last weights: there is no other to compare it with.
        """
        cost = self._cost()
        if cost is None:
            return self._evaluations
        step = (time.monotonic() - self._start) / max(1, state.global_step - self._first_step)
        count = int(share / (1 - share) * step * state.max_steps / max(cost, 1e-9))
        return 0 if count < 2 else min(self._evaluations, count)


class StopWhenWorse(TrainerCallback):
    """Stop a run after evaluations in a row that are worse than the best one before them by more than chance."""

    def __init__(self, patience: int) -> None:
        self._patience = patience

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Count in the history, which a resumed run has too."""
        if worse_evaluations(state.log_history) >= self._patience:
            control.should_training_stop = True


def _set_epoch(loader: Any, epoch: int) -> None:
    """Set the epoch of the row order: accelerate does not find it in a resumed run of several processes."""
    inner = getattr(loader, "batch_sampler", None)
    while inner is not None:
        if hasattr(inner, "set_epoch"):
            inner.set_epoch(epoch)
        inner = getattr(inner, "batch_sampler", None) or getattr(inner, "sampler", None)
