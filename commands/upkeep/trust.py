"""`binocle trust`: allow an index that came from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...core.printable import printable_path
from ..index_lookup import open_index
from ..options import folder_argument, index_option
from ..output import echo

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@folder_argument
@index_option
def trust(folder: Path | None, index: Path | None) -> None:
    """Allow an index that came from elsewhere.

    An index that you did not make on this machine is opened read-only, and the encoder that it names is not loaded.
    After this command Binocle writes to it, and loads its encoder, from the hub if need be. So look at what it names.

    \b
    binocle trust ~/notes
    """
    retriever = open_index(folder, index)
    retriever.allow()
    encoder = retriever.snapshot().head.encoder
    model = "no encoder" if encoder.is_none else f"the encoder {encoder.model}"
    folders = [printable_path(str(folder)) for folder in retriever.folders]
    scope = f"of the folder{'s' * (len(folders) > 1)} {', '.join(folders) or '(none)'}"
    echo(f"trusted: {retriever.location}, {scope}, with {model}")
