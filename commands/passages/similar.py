"""`binocle similar, show`: find passages like one, and print the text of a document."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ...core.errors import InputError, NoIndexError
from ..options import (
    find_document,
    folder_argument,
    folder_filter,
    index_option,
    is_document,
    json_option,
    k_option,
    open_index,
    parse_citation,
    where_option,
)
from ..output import echo
from .hits import PrintOptions, comment, print_hits

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...retriever.retriever import Retriever

_Cited = TypeVar("_Cited")


@click.command()
@click.argument("citation", metavar="FILE:LINE")
@folder_argument
@index_option
@k_option
@where_option
@json_option
def similar(
    citation: str, folder: Path | None, index: Path | None, k: int, where: tuple[str, ...], as_json: bool
) -> int:
    """Find passages like the one at FILE:LINE.

    FILE is a path as search prints it, or any path to the file. Without FOLDER, the index above FILE answers if the
    one here does not have it. Exit 1 when nothing is found.

    \b
    binocle similar guide/install.md:40 docs
    """
    retriever, (path, line) = _opened(citation, parse_citation, folder, index, narrow=True)
    root = retriever.folder
    hits = retriever.similar(path, line, k, where=[*where, *folder_filter(folder, root, retriever.path)])
    print_hits(hits, "", root, PrintOptions(as_json=as_json))
    return comment(hits, "", where, (folder,) if folder else (), root, retriever, as_json=as_json)


@click.command()
@click.argument("citation", metavar="FILE[:LINE[-LINE]]")
@folder_argument
@index_option
def show(citation: str, folder: Path | None, index: Path | None) -> None:
    """Print the text of a document, as the index read it.

    Prints the whole text, or only the lines of a citation. Without FOLDER, the index above FILE answers if the one here
    does not have it.

    \b
    binocle show report.pdf docs
    binocle show guide/install.md:40-60 docs
    """
    retriever, (path, lines) = _opened(citation, _cited_lines, folder, index)
    echo(retriever.text(path, lines=lines))


def _cited_lines(retriever: Retriever, citation: str) -> tuple[str, tuple[int, int] | None]:
    """The document's path in the index, and the lines of a citation if it names some."""
    match = re.fullmatch(r"(.+):([0-9]{1,99})(?:-([0-9]{1,99}))?", citation, re.DOTALL)
    if match is None or is_document(retriever, citation):
        return find_document(retriever, citation), None
    first = int(match[2])
    return find_document(retriever, match[1]), (first, int(match[3] or first))


def _opened(
    citation: str,
    locate: Callable[[Retriever, str], _Cited],
    folder: Path | None,
    index: Path | None,
    *,
    narrow: bool = False,
) -> tuple[Retriever, _Cited]:
    """Open the index that FOLDER and --index name, and locate the citation in it.

    If neither is given and the index of the current folder fails, the one above the cited file is tried.
    """
    retriever = None
    try:
        retriever = open_index(folder, index, narrow=narrow)
        return retriever, locate(retriever, citation)
    except (InputError, NoIndexError):
        above = None if folder or index else _index_above(citation)
        if above is None or (retriever is not None and retriever.path == above):
            raise
    click.get_current_context().params["index"] = above  # for hints
    retriever = open_index(None, above)
    return retriever, locate(retriever, citation)


def _index_above(citation: str) -> Path | None:
    """The nearest index above a cited file; None if there is none, or it cannot be read."""
    from ...retriever.documents.scan import find_index

    for folder in Path(citation).parents:
        with contextlib.suppress(OSError, ValueError):  # a name that is too long, a NUL, a folder of another user
            if folder.is_dir():
                return find_index(folder)
    return None
