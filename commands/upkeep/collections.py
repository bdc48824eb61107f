"""`binocle collections`: list the named collections, and remove one."""

from __future__ import annotations

import time

import click

from ...core.printable import printable, printable_path
from ..options import json_option
from ..output import echo, echo_json


@click.command()
@click.option("--remove", metavar="NAME", help="Remove the index of this collection. The files in its folders stay.")
@json_option
def collections(remove: str | None, as_json: bool) -> None:
    """List the named collections, with their folders.

    Also their size, and when they changed last.
    'binocle index FOLDER … --name NAME' makes one, 'binocle search QUERY -n NAME' searches it from anywhere.

    \b
    binocle collections
    """
    from dataclasses import asdict

    from ...core.units import format_bytes
    from ...retriever.store import collection as stored

    listed = [stored.remove_collection(remove)] if remove is not None else stored.collections()
    for collection in listed:
        if as_json:
            echo_json(asdict(collection))
            continue
        state = "cannot be read"
        if remove is not None:
            state = "removed; its files stay"
        elif collection.changed is not None:
            state = f"changed {time.strftime('%Y-%m-%d %H:%M', time.localtime(collection.changed))}"
        echo(f"{printable(collection.name)}  ({format_bytes(collection.bytes)}, {state})")
        for folder in collection.folders:
            echo(f"    {printable_path(folder)}")
        if collection.problem and remove is None:
            echo(f"    {printable(collection.problem)}")
    if not listed and not as_json:
        echo("there is no collection yet: 'binocle index FOLDER … --name NAME' makes one", err=True)
