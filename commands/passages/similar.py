"""`binocle similar, show`: find passages like one, and print the text of a document."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

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

    FILE is a path as search prints it, or any path to the file. Without FOLDER, and without an index here, the index
    above FILE answers. Exit 1 when nothing is found.

    \b
    binocle similar guide/install.md:40 docs
    """
    retriever = _open_index_of(citation, folder, index, narrow=True)
    path, line = parse_citation(retriever, citation)
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

    Prints the whole text, or only the lines of a citation. Without FOLDER, and without an index here, the index above
    FILE answers.

    \b
    binocle show report.pdf docs
    binocle show guide/install.md:40-60 docs
    """
    retriever = _open_index_of(citation, folder, index)
    match = re.fullmatch(r"(.+):([0-9]{1,99})(?:-([0-9]{1,99}))?", citation, re.DOTALL)
    if match and not is_document(retriever, citation):
        first = int(match[2])
        text = retriever.text(find_document(retriever, match[1]), lines=(first, int(match[3] or first)))
    else:
        text = retriever.text(find_document(retriever, citation))
    echo(text)


def _open_index_of(citation: str, folder: Path | None, index: Path | None, *, narrow: bool = False) -> Retriever:
    """Open the index that FOLDER and --index name, or that of the current folder, or else that of the cited file."""
    from ...retriever.documents.scan import find_index

    if folder is None and index is None and find_index(Path.cwd()) is None:
        index = next(filter(None, map(find_index, filter(_is_folder, Path(citation).parents))), None)
        click.get_current_context().params["index"] = index  # for hints
    return open_index(folder, index, narrow=narrow)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that is too long, or a NUL
        return False
