"""How far a training run is, for whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Update:
    """Given to a run's `progress` callback every few steps and after every evaluation."""

    step: int
    steps: int
    epoch: float
    loss: float | None  # mean since the last update
    metric_name: str | None
    metric: float | None  # of the held-out rows, as last measured
    texts_per_second: float  # since this process began to train
    seconds_left: float


def line(update: Update) -> str:
    """The update as one plain line."""
    parts = [f"step {update.step:,} of {update.steps:,}", f"epoch {update.epoch:.2f}"]
    if update.loss is not None:
        parts.append(f"loss {update.loss:.4f}")
    if update.metric is not None:
        parts.append(f"{update.metric_name} {update.metric:.4f}")
    parts.append(f"{update.texts_per_second:,.0f} texts/s")
    parts.append(f"{_duration(update.seconds_left)} left")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
