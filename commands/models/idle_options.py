"""Refuse options that have no effect beside others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options import is_typed, refuse_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def refuse_given_options(names: Iterable[str], reason: str) -> None:
    """Refuse these options on the command line: they would have no effect. The error names the first."""
    refuse_options(names, f"has no effect here: {reason}")


def refuse_idle_options(data: str | None = None, development: str | None = None) -> None:
    """Refuse options that would have no effect beside the others."""
    context = click.get_current_context()
    for name, is_idle, reason in (
        (
            "epochs",
            is_typed("steps") or context.get_parameter_source("steps") is click.core.ParameterSource.DEFAULT_MAP,
            "--steps or the recipe's steps say how long",
        ),
        ("held_out", development is not None, "the rows of --dev are held out"),
        ("patience", not development and not context.params["held_out"], "nothing is held out"),
        ("evaluations", not development and not context.params["held_out"], "nothing is held out"),
    ):
        if is_idle:
            refuse_given_options([name], reason)
    if data is not None:
        refuse_idle_split(data)


def refuse_idle_split(data: str) -> None:
    """Refuse --split for a file of rows."""
    if Path(data).is_file():
        refuse_given_options(["split"], f"{data} is a file without splits")


def refuse_idle_column(sources: Sequence[str]) -> None:
    """Refuse --column where each source of texts is an index, a folder or a document."""
    from ...training.data.unlabelled_texts import has_columns

    if not any(map(has_columns, sources)):
        refuse_given_options(["column"], f"no columns are in {', '.join(sources) or 'an index'}")
