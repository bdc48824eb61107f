"""How far a training run is, for whoever watches it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    Tell = Callable[[str], None]
    Progress = Callable[["Update"], None]

_SELDOM = 5.0  # seconds


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


def seldom(tell: Tell) -> Tell:
    """A `tell` for what moves all the time: of five seconds it passes on the first."""
    last = time.monotonic()

    def told(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _SELDOM:
            last = time.monotonic()
            tell(text)

    return told


def within(tell: Tell, what: str) -> Tell:
    """For a part, which tells now and then how far it is."""
    return seldom(lambda text: tell(f"{what}: {text}"))


def counted(items: Collection[Any], tell: Tell, what: str) -> Iterator[Any]:
    """Each item; `tell` hears now and then which share of them is done."""
    told = within(tell, what)
    for done, item in enumerate(items):
        if done:
            told(f"{done / len(items):.0%} done")
        yield item


def stepping(tell: Tell, what: str) -> Callable[[Update], None]:
    """A run's `progress`, told in the words of a larger one that it is a part of."""
    told = seldom(tell)
    return lambda at: told(f"{what}, step {at.step:,} of {at.steps:,}, {_duration(at.seconds_left)} left")


def line(update: Update) -> str:
    """The update as one plain line, of which a narrow terminal shows what comes first."""
    left = _duration(update.seconds_left)
    parts = [f"step {update.step:,} of {update.steps:,}", f"{left} left", f"epoch {update.epoch:.2f}"]
    if update.loss is not None:
        parts.append(f"loss {update.loss:.4f}")
    if update.metric is not None:
        digits = 4 if update.metric < 100 else 0  # a perplexity may be of millions
        parts.append(f"{update.metric_name} {update.metric:,.{digits}f}")
    parts.append(f"{update.texts_per_second:,.0f} texts/s")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
