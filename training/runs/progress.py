"""Progress events of training runs, and how often they are reported."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...core.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from ...core.progress import OnProgress

    Tell = Callable[[str], None]

_SELDOM = 5.0  # seconds


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


def lines(on_progress: OnProgress) -> Tell:
    """Return a function that reports a line of text as a stage."""
    return lambda text: on_progress(Progress(text))


def seldom(tell: Tell) -> Tell:
    """Pass on a line of text at most once in five seconds."""
    last = time.monotonic()

    def pass_on(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _SELDOM:
            last = time.monotonic()
            tell(text)

    return pass_on


def within(tell: Tell, stage: str) -> Tell:
    """Pass on the lines of one stage, with its name before them."""
    return seldom(lambda text: tell(f"{stage}: {text}"))


def counted(items: Collection[Any], tell: Tell, stage: str) -> Iterator[Any]:
    """Yield each item, and report the share done at most once in five seconds."""
    pass_on = within(tell, stage)
    for done, item in enumerate(items):
        if done:
            pass_on(f"{done / len(items):.0%} done")
        yield item


def stepping(tell: Tell, stage: str) -> OnProgress:
    """Report the steps of a run as lines of a larger one."""
    pass_on = seldom(tell)
    return lambda event: pass_on(f"{stage}, {', '.join(event.message.split(', ')[:2])}")
