"""`binocle similar, show`: find passages like one, and print the text of a document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ..documents import find_document, is_document, open_cited, parse_citation
from ..index_lookup import folder_filter
from ..options import folder_argument, index_option, json_option, k_option, where_option
from ..output import echo
from .hits import PrintOptions, comment, print_hits

if TYPE_CHECKING:
    from pathlib import Path

    from ...retriever.retriever import Retriever


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
    retriever, (path, line) = open_cited(citation, parse_citation, folder, index, narrow=True)
    root = retriever.folder
    hits = retriever.similar(path, line, k, where=[*where, *folder_filter(folder, root, retriever.location)])
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
    retriever, (path, lines) = open_cited(citation, _cited_lines, folder, index)
    echo(retriever.text(path, lines=lines))


def _cited_lines(retriever: Retriever, citation: str) -> tuple[str, tuple[int, int] | None]:
    """The document's path in the index, and the lines of a citation if it names some."""
    match = re.fullmatch(r"(.+):([0-9]{1,99})(?:-([0-9]{1,99}))?", citation, re.DOTALL)
    if match is None or is_document(retriever, citation):
        return find_document(retriever, citation), None
    first = int(match[2])
    return find_document(retriever, match[1]), (first, int(match[3] or first))
