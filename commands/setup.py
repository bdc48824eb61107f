"""`binocle doctor, completion`: this installation, and the shell it is used from."""

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


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    binocle completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    maker = get_completion_class(shell)
    assert maker is not None
    click.echo(maker(context.find_root().command, {}, "binocle", "_BINOCLE_COMPLETE").source())
