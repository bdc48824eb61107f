"""`binocle pick`: search as you type, and open a passage in the editor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...core.errors import InputError, MissingExtraError
from ..index import open_or_make
from ..index_lookup import folder_filter, path_from_here
from ..options import EXIT_NEGATIVE, folders_argument, index_option, is_interactive
from ..output import echo

if TYPE_CHECKING:
    from pathlib import Path

    from ...retriever.search.results.hits import Hits


@click.command()
@folders_argument
@index_option
@click.option("--query", metavar="TEXT", default="", help="The text that the field has at first.")
@click.option("-k", default=30, show_default=True, metavar="N", type=click.IntRange(1), help="Show at most N passages.")
def pick(folder: tuple[Path, ...], index: Path | None, query: str, k: int) -> int:
    """Search as you type, and open a passage.

    Each key updates the list of passages that answer the text; beside it is the whole chosen passage. Enter opens it in
    $VISUAL or $EDITOR at its line. Tab prints its path and line, and leaves. Exit 1 when nothing was chosen.

    \b
    binocle pick ~/notes
    code -g "$(binocle pick ~/notes)"
    """
    if not is_interactive():
        raise InputError("binocle pick needs a terminal: 'binocle search QUERY' prints passages anywhere")
    try:
        from prompt_toolkit.output import create_output

        from .picker import Picker
    except ImportError as error:
        raise MissingExtraError("prompt_toolkit", "pick", "binocle pick") from error
    retriever = open_or_make(next(iter(folder), None), index, None, None)
    root = retriever.folder
    scope = folder_filter(folder, root, retriever.location)

    def search(text: str) -> Hits:
        return retriever.search(text, k, where=scope)

    search("warm up")  # the encoder and the indexes are loaded before the first key
    screen = create_output(always_prefer_tty=True)  # standard output is for the citation
    citation = Picker(search, root, path_from_here(root), query).run(output=screen)
    if citation is None:
        return EXIT_NEGATIVE
    echo(citation)
    return 0
