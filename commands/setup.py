"""`binocle doctor`: this installation."""

from __future__ import annotations

import json

import click

from .places import NOTHING, json_option


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Check this installation.

    Versions, processor, encoder. Exit 0 when an index can be made and searched.

    \b
    binocle doctor
    """
    from ..retriever.doctor import checks

    found = list(checks())
    for check in found:
        if as_json:
            click.echo(json.dumps({"name": check.name, "ok": check.ok, "detail": check.detail}))
        else:
            click.echo(f"{'ok ' if check.ok else 'BAD'}  {check.name:<12} {check.detail}")
    return 0 if all(check.ok for check in found) else NOTHING
