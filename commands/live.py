"""A training run as it goes: a live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self

import click

from ..training.progress import line

if TYPE_CHECKING:
    from ..training.progress import Update

_SECONDS = 10  # between plain lines


class Live:
    """`with Live() as progress:` gives the callback that a run reports to. Everything goes to stderr."""

    def __enter__(self) -> Self:
        self._bar: Any = None
        self._task: Any = None
        self._said = 0.0
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                BarColumn(), TextColumn("{task.fields[what]}"), console=Console(stderr=True), transient=True
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=None, what="reading the data")
        return self

    def __call__(self, update: Update) -> None:
        if self._bar:
            self._bar.update(self._task, completed=update.step, total=update.steps, what=line(update))
        elif time.monotonic() - self._said > _SECONDS or update.step == update.steps:
            self._said = time.monotonic()
            click.echo(line(update), err=True)

    def tell(self, text: str) -> None:
        """What the run does before and after its steps."""
        if self._bar:
            self._bar.update(self._task, what=text)
        else:
            click.echo(f"{text} …", err=True)

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()
