"""Progress events of training runs, and how often they are reported."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from ...core.errors import InputError
from ...core.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.progress import OnProgress

_SELDOM = 5.0  # seconds between two lines


def check_loss(loss: float, rate: float, step: int) -> None:
    """:raises InputError: if the loss is not finite: the weights would not be, from there on."""
    if not math.isfinite(loss):
        raise InputError(
            f"the loss is no number any more at step {step}: give a learning rate below {rate:g}, and another folder "
            "for the model"
        )


def training_step(
    step: int,
    steps: int,
    seconds_left: float,
    *,
    epoch: float,
    loss: float | None,
    metric: tuple[str, float] | None,
    texts_per_second: float,
) -> Progress:
    """Describe a step as an event, reported every few steps and after every evaluation.

    :param loss: mean since the last event.
    :param metric: name and value of the last evaluation on held-out rows.
    :param texts_per_second: since this process began to train.
    """
    parts = [f"step {step:,} of {steps:,}", f"{_duration(seconds_left)} left", f"epoch {epoch:.2f}"]
    if loss is not None:
        parts.append(f"loss {loss:.4f}")
    if metric is not None:
        name, value = metric
        digits = 4 if value < 100 else 0  # a perplexity can reach millions
        parts.append(f"{name} {value:,.{digits}f}")
    parts.append(f"{texts_per_second:,.0f} texts/s")
    return Progress("training", step, steps, ", ".join(parts))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def stepping(report: Callable[[str], None], stage: str) -> OnProgress:
    """Report the steps of a run as lines of a larger one, at most once in five seconds."""
    last = time.monotonic()

    def on_progress(event: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= _SELDOM:
            last = time.monotonic()
            report(f"{stage}, {', '.join(event.message.split(', ')[:2])}")

    return on_progress
