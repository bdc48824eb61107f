"""`binocle watch`: keep an index in line with its folder."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import MissingExtraError
from ..core.printable import printable_path
from .index import index_above, is_collection, own_folder, summary
from .options import FOLDER, FloatRange, index_option, json_option, print_note, print_waiting, wait_option
from .output import echo, echo_json

if TYPE_CHECKING:
    from ..retriever.servers.watch import Update


@click.command()
@click.argument("folder", type=FOLDER, required=False)
@index_option
@click.option(
    "--poll",
    metavar="SECONDS",
    type=FloatRange(min=0.1),
    help="Look at the files this often, where the system reports no changes. Default: only on network shares.",
)
@wait_option
@json_option
def watch(folder: Path | None, index: Path | None, poll: float | None, wait: float, as_json: bool) -> None:
    """Keep the index of FOLDER up to date until you press Ctrl-C.

    It indexes FOLDER as 'binocle index' does, with the same default, and again whenever files change; a burst of
    changes is one run. If FOLDER vanishes, its documents stay, and the watch goes on when FOLDER is back. Other
    programs may search meanwhile. --name follows all folders of a collection.

    \b
    binocle watch ~/notes
    binocle watch docs --json
    """
    try:
        from ..retriever.servers.watch import watch as updates_of
    except ImportError as error:
        raise MissingExtraError("watchfiles", "watch", "binocle watch") from error
    from ..retriever.documents.scan import INDEX_NAME
    from ..retriever.retriever import Retriever

    above = index_above() if folder is None and index is None else None
    retriever = Retriever.open(above or index or (folder or Path()) / INDEX_NAME, wait=wait, on_wait=print_waiting)
    if folder is None and not is_collection(retriever):
        folder = (own_folder(retriever) if above or index else None) or Path()
    updates = updates_of(retriever, folder, poll=poll)
    signal.signal(signal.SIGTERM, _interrupt)  # a service manager may end it, as Ctrl-C does: a sync may stop anywhere
    watched = ", ".join(printable_path(str(path)) for path in ([folder] if folder else retriever.folders))
    print_note(f"watching {watched}; Ctrl-C ends it")
    note = ""  # of the last run: a note is printed once while it stays the same
    with contextlib.suppress(KeyboardInterrupt):
        for update in updates:
            _print(update, note, as_json=as_json)
            note = update.report.note if update.report else ""


def _print(update: Update, note: str, *, as_json: bool) -> None:
    if update.report is None:
        print_note(f"binocle: {update.problem}")
        return
    if update.report.note != note:
        print_note(update.report.note)
    if as_json:
        echo_json(update.report.as_dict())
    else:
        echo(f"{time.strftime('%H:%M:%S')}  {summary(update.report)}")


def _interrupt(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt
