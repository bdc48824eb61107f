"""Refuse options that have no effect beside others."""

from __future__ import annotations

from pathlib import Path

import click


def refuse_idle_options(data: str | None = None, development: str | None = None) -> None:
    """Refuse options that would have no effect beside the others."""
    context = click.get_current_context()

    def is_given(name: str) -> bool:
        return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE

    for name, is_idle, reason in (
        ("epochs", is_given("steps"), "--steps says how long"),
        ("held_out", development is not None, "the rows of --dev are held out"),
        ("patience", not development and not context.params["held_out"], "nothing is held out"),
        ("evaluations", not development and not context.params["held_out"], "nothing is held out"),
        ("split", data is not None and Path(data).is_file(), f"{data} is a file without splits"),
    ):
        if is_given(name) and is_idle:
            raise click.UsageError(f"--{name.replace('_', '-')} has no effect here: {reason}", context)
