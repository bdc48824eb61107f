"""`binocle switch, rollback`: change the encoder of an index, and change it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...core.units import count_of
from ..index_lookup import command_hint, open_index
from ..options import folder_argument, gpu_option, index_option, json_option, print_note, wait_option
from ..output import echo, echo_json
from ..progress_bar import ProgressBar

if TYPE_CHECKING:
    from pathlib import Path

    from ...retriever.indexing.switch import SwitchReport


@click.command()
@click.argument("model")
@folder_argument
@index_option
@gpu_option
@wait_option
@json_option
def switch(model: str, folder: Path | None, index: Path | None, gpu: bool, wait: float, as_json: bool) -> None:
    """Embed every passage again, with another encoder.

    MODEL is a sentence-transformers folder or hub name. It must split texts into the same tokens as the index's
    encoder, and read at least as many of a text; passages keep their length. The old encoder answers searches until the
    new vectors are complete, and 'binocle status' shows how many are. 'binocle rollback' brings it back. You may
    interrupt it: the next run continues there.

    \b
    binocle switch models/tuned docs
    """
    retriever = open_index(folder, index, wait=wait, gpu=gpu)
    with ProgressBar("loading the encoder") as progress:
        report = retriever.switch(model, progress=progress)
    print_note(report.note)
    if gpu and report.switched:
        print_note(f"passages were encoded by {retriever.encoded_by}")
    if as_json:
        echo_json(report.as_dict())
    elif report.switched:
        echo(f"{_summary(report)}; {command_hint('rollback')} brings {report.before} back")
    elif report.model != report.before:
        echo(f"the index has this encoder already, and finds it at {report.model} now, no longer at {report.before}")
    else:
        echo(f"the index has this encoder already: {report.model}")


@click.command()
@folder_argument
@index_option
@click.option("--model", metavar="NAME", help="Where the previous encoder is now, if it was moved.")
@wait_option
@json_option
def rollback(folder: Path | None, index: Path | None, model: str | None, wait: float, as_json: bool) -> None:
    """Bring back the encoder before the last switch.

    Passages from before the switch get their old vectors back. Newer passages are embedded again.

    \b
    binocle rollback ~/notes
    """
    retriever = open_index(folder, index, wait=wait)
    with ProgressBar("loading the encoder") as progress:
        report = retriever.rollback(model, progress=progress)
    print_note(report.note)
    if as_json:
        echo_json(report.as_dict())
    else:
        echo(_summary(report))


def _summary(report: SwitchReport) -> str:
    embedded = f"{report.embedded:,} embedded" if report.embedded else "none embedded"
    return f"{count_of(report.chunks, 'passage')} now of {report.model}, {embedded}, in {report.seconds:.1f} s"
