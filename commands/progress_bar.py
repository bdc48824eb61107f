"""How far a command is: a bar on a terminal, for some a plain line now and then elsewhere. All goes to stderr."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self

import click

from ..training.runs.progress import line

if TYPE_CHECKING:
    from ..retriever.indexing.report import Progress
    from ..retriever.indexing.switch import Switched
    from ..training.runs.progress import Update


class _Bar:
    """On a terminal there is a bar for as long as `with` lasts; of its tasks the last is the one that moves.

    :param first: what is done before anything can be counted.
    """

    def __init__(self, first: str = "") -> None:
        self._first = first
        self._bar: Any = None
        self._said = 0.0  # when the last plain line was

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(*self._columns(), console=Console(stderr=True), transient=True)
            self._bar.start()
            if self._first:
                self._bar.add_task(self._first, total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def _columns(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def _move(self, what: str, **at: int) -> None:
        self._bar.update(self._bar.tasks[-1].id, description=what, **at)

    def _say(self, text: str, every: float) -> None:
        """A plain line, if the last one is so many seconds ago."""
        if time.monotonic() - self._said >= every:
            self._said = time.monotonic()
            click.echo(text, err=True)


class Live(_Bar):
    """`with Live() as live:` gives the callback that a training run reports to."""

    def __init__(self) -> None:
        super().__init__("reading the data")

    def _columns(self) -> tuple[Any, ...]:
        from rich.progress import BarColumn, TextColumn

        return BarColumn(), TextColumn("{task.description}")

    def __call__(self, update: Update) -> None:
        if self._bar:
            self._move(line(update), completed=update.step, total=update.steps)
        else:
            self._say(line(update), 0 if update.step == update.steps else 10)

    def tell(self, text: str) -> None:
        """What the run does before and after its steps."""
        if self._bar:
            self._bar.remove_task(self._bar.tasks[-1].id)  # which may stand at its end
            self._bar.add_task(text, total=None)
        else:
            click.echo(f"{text} …", err=True)


class Moving(_Bar):
    """`with Moving("...") as progress:` gives the callback that indexing reports to; nothing is said elsewhere."""

    def _columns(self) -> tuple[Any, ...]:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

        text, percentage = TextColumn("{task.description}"), TextColumn("{task.percentage:3.0f} %")
        return text, BarColumn(), percentage, TimeRemainingColumn()

    def __call__(self, at: Progress | Switched) -> None:
        from ..retriever.indexing.report import Progress

        if not self._bar:
            return
        elapsed = self._bar.tasks[0].elapsed or 1e-9
        if isinstance(at, Progress):
            rate = f"{at.chunks / elapsed:,.0f} passages/s" if at.chunks else "reading"
            what = f"{at.files_done:,} of {at.files_total:,} files, {rate}"
            done, total = at.bytes_done, at.bytes_total
        else:
            what = f"{at.done:,} of {at.total:,} passages, {at.done / elapsed:,.0f} passages/s"
            done, total = at.done, at.total
        self._move(what, completed=done, total=max(1, total))


class Counting(_Bar):
    """`with Counting() as progress:` gives the callback that mining reports to: one bar after another."""

    def __enter__(self) -> Self:
        self._said = time.monotonic()
        return super().__enter__()

    def _columns(self) -> tuple[Any, ...]:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

        return TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()

    def __call__(self, what: str, done: int, total: int) -> None:
        if not self._bar:
            self._say(f"{what}: {done:,} of {total:,}", 15)
            return
        if not self._bar.tasks or self._bar.tasks[-1].description != what:
            self._bar.add_task(what, total=total)
        self._move(what, completed=done, total=total)
