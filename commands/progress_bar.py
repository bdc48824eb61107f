"""Show the progress of a command on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from ..core.printable import printable
from .output import echo

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from ..core.progress import Progress


class ProgressBar:
    """Show the events of a run: `with ProgressBar("reading the data") as on_progress: train(..., on_progress)`.

    On a terminal there is one bar, for the present stage. A stage of unknown length pulses and shows no percentage.

    :param first: the name of the stage before the first event.
    :param lines: the seconds between plain lines where stderr is no terminal; None prints no lines. An event without a
        total and the last one of a stage are always printed.
    :param silence: the seconds at the beginning without plain lines, so that a short run prints none.
    """

    def __init__(self, first: str = "", lines: float | None = None, silence: float = 0.0) -> None:
        self._first = first
        self._lines = lines
        self._first_line = time.monotonic() + silence
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._stage: str | None = None
        self._printed = -float("inf")  # the time of the last plain line

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bar = _rich_progress()
            self._bar.start()
            if self._first:
                self._task = self._bar.add_task(self._first, total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, event: Progress) -> None:
        """Show an event."""
        if self._bar:
            self._move(self._bar, event)
        elif self._lines is not None:
            self._print(event, self._lines)

    def _move(self, bar: RichProgress, event: Progress) -> None:
        text, total = describe(event), event.total or None
        if self._task is None or event.stage != self._stage:
            if self._task is not None:
                bar.remove_task(self._task)
            self._task, self._stage = bar.add_task(text, total=total), event.stage
        bar.update(self._task, description=text, completed=event.done, total=total)

    def _print(self, event: Progress, seconds: float) -> None:
        now = time.monotonic()
        if now < self._first_line:
            return
        if not event.total:
            echo(f"{describe(event)} …", err=True)
        elif event.done >= event.total or now - self._printed >= seconds:
            self._printed = now
            echo(describe(event), err=True)


def describe(event: Progress) -> str:
    """Describe an event in one line for people: its message, else its stage and numbers."""
    if event.message:
        return printable(event.message)
    stage = printable(event.stage)
    return f"{stage}: {event.done:,} of {event.total:,}" if event.total else stage


def _rich_progress() -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    percentage = TaskProgressColumn(text_format="{task.percentage:3.0f} %")
    text = TextColumn("{task.description}", markup=False)  # last, since a narrow terminal cuts the last column
    return Progress(BarColumn(), percentage, TimeRemainingColumn(), text, console=Console(stderr=True), transient=True)
