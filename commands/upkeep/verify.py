"""`binocle verify`: check an index against its documents, and repair it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...core.printable import printable, printable_path
from ...core.units import count_of
from ..index_lookup import command_hint, open_index, path_from_here
from ..options import EXIT_NEGATIVE, folder_argument, index_option, json_option, print_note, wait_option
from ..output import echo, echo_json
from ..progress_bar import ProgressBar

if TYPE_CHECKING:
    from pathlib import Path

    from ...retriever.integrity.fault import Fault
    from ...retriever.integrity.verify import Verification
    from ...retriever.retriever import Retriever


@click.command()
@folder_argument
@index_option
@click.option("--deep", is_flag=True, help="Also check vectors: embed the texts again where a vector does not fit.")
@click.option("--repair", is_flag=True, help="Repair faults: read changed files again, rebuild from the store.")
@wait_option
@json_option
def verify(folder: Path | None, index: Path | None, deep: bool, repair: bool, wait: float, as_json: bool) -> int:
    """Check every passage against its document of today.

    Also checks that the indexes agree with the store. Exit 0 when there is no fault, else 1.

    --deep checks vectors too. A vector that lies far from where the words of its passage would put it is embedded
    again, and so is a random sample of the rest. The command prints how many wrong ones it can have missed.

    With --repair, exit 0 when every fault was repaired. JSON says for each fault whether it was repaired.

    \b
    binocle verify ~/notes
    binocle verify ~/notes --deep
    """
    from dataclasses import asdict

    retriever = open_index(folder, index, wait=wait)
    with ProgressBar("checking documents") as progress:
        result = retriever.repair(deep=deep, progress=progress) if repair else None
        verification = retriever.verify(deep=deep and not repair, progress=progress)
    for note in result.notes if result else ():
        print_note(note)
    _print_remarks(verification)
    vectors = result.vectors if result else verification.vectors
    if deep and vectors:
        echo(vectors.as_text(), err=True)
    remaining = verification.faults
    unrepaired = set(remaining)
    repaired = [fault for fault in result.faults if fault not in unrepaired] if result else []
    if repaired:
        echo(f"{count_of(len(repaired), 'fault')} mended", err=True)
    if as_json:
        for fault in [*repaired, *remaining]:
            echo_json(asdict(fault) | ({"mended": fault not in unrepaired} if repair else {}))
    elif remaining:
        _print_faults(remaining, retriever)
    else:
        echo("clean")
    return EXIT_NEGATIVE if remaining else 0


def _print_remarks(verification: Verification) -> None:
    """Count the documents with hidden text, and the documents that an earlier version of their reader read."""
    if hidden := verification.hidden.passages:
        documents = count_of(verification.hidden.documents, "document")
        echo(f"{count_of(hidden, 'passage')} of {documents} with text that a person does not see there", err=True)
    if verification.outdated:
        documents, them = ("document was", "it") if verification.outdated == 1 else ("documents were", "them")
        hint = f"{command_hint('index')} reads {them} again"
        echo(f"{verification.outdated:,} {documents} read by an earlier version of the reader: {hint}", err=True)


def _print_faults(faults: list[Fault], retriever: Retriever) -> None:
    from_here = path_from_here(retriever.folder)
    files = {row["path"] for row in retriever.documents() if row["source"] == "file"}
    for fault in faults:
        path = from_here(fault.path) if fault.path in files else fault.path
        echo(": ".join(filter(None, (fault.kind, printable_path(path), printable(fault.problem)))))
    echo(count_of(len(faults), "fault"), err=True)
