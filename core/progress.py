"""The progress event that every long run reports, and ways to pass it on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

_Item = TypeVar("_Item")
_INTERVAL = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run: its present stage, and the finished part of this stage."""

    stage: str  # the work under way, such as "embedding"
    done: int = 0  # items, of `total`
    total: int = 0  # 0 if it is not known
    message: str = ""  # one line for people, if the numbers do not say it all


OnProgress = Callable[[Progress], None]


def ignore(_event: Progress) -> None:
    """Report to nobody."""


def per_second(count: int, start: float, unit: str) -> str:
    """Format a rate, such as "1,234 passages/s".

    :param start: `time.monotonic()` at the start.
    """
    return f"{count / max(time.monotonic() - start, 1e-9):,.0f} {unit}/s"


def counted(items: Collection[_Item], on_progress: OnProgress, stage: str) -> Iterator[_Item]:
    """Yield each item, and report after it how many are done."""
    on_progress(Progress(stage, 0, len(items)))
    for done, item in enumerate(items, 1):
        yield item
        on_progress(Progress(stage, done, len(items)))


def within(on_progress: OnProgress, prefix: str) -> OnProgress:
    """Report the events of a part with `prefix` before each stage."""
    return lambda event: on_progress(replace(event, stage=f"{prefix}{event.stage}"))


def messages(on_progress: OnProgress, stage: str) -> Callable[[str], None]:
    """Return a function that reports lines for people as events of a stage."""
    return lambda line: on_progress(Progress(stage, message=line))


def at_intervals(on_progress: OnProgress) -> OnProgress:
    """Pass on at most one event in five seconds, for a part that cannot say how much is left."""
    last = time.monotonic()

    def pass_on(event: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= _INTERVAL:
            last = time.monotonic()
            on_progress(event)

    return pass_on
