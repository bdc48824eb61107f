"""`binocle index, forget`: put documents into an index and take them out."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError, NoIndexError, StoreError
from ..core.files import expand_home
from ..core.printable import path_as_printed, printable_path
from ..core.units import count_of
from .documents import find_document, is_forgotten, open_cited
from .index_lookup import command_hint, current_folder, folder_above, open_index
from .options import (
    EXIT_NEGATIVE,
    PATH,
    folder_argument,
    gpu_option,
    index_option,
    is_interactive,
    json_option,
    print_note,
    print_waiting,
    ray_option,
    stdout_for_answers,
    wait_option,
)
from .output import echo, echo_json
from .progress_bar import ProgressBar

if TYPE_CHECKING:
    from ..retriever.indexing.report import Report
    from ..retriever.retriever import Retriever


@click.command()
@click.argument("folder", nargs=-1, type=PATH)
@index_option
@click.option("--drop", multiple=True, metavar="FOLDER", type=PATH, help="Take FOLDER out of the collection.")
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave out files, by a pattern as in .gitignore, such as '*.log' or 'build/'. The index remembers it.",
)
@click.option("--no-exclude", is_flag=True, help="Forget the patterns of earlier runs.")
@click.option("--model", metavar="NAME", help="Encoder for a new index: a sentence-transformers folder or hub name.")
@click.option(
    "--precision",
    type=click.Choice(["auto", "fp32", "bf16", "int8"]),
    help="Precision in which a new index encodes documents. int8: faster if the processor multiplies int8. auto: int8 "
    "if a check on some of the files finds it faster, with nearly the same ranking. fp32, bf16: in "
    "this run. Default: bf16 if the processor has it, else float32.",
)
@click.option(
    "--ocr/--no-ocr",
    default=None,
    help="Also read the text in images, scanned pages and pictures, with Tesseract. The index remembers it.",
)
@click.option(
    "--ocr-language",
    metavar="NAMES",
    help="Read that text in these languages, such as deu+eng. Text from other languages is read again. Implies --ocr. "
    "Default: those of the last run, at first those of the locale and English.",
)
@click.option("--retry", is_flag=True, help="Also read files that failed before or were forgotten.")
@click.option(
    "--no-durable",
    "durable",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not wait for the disk: a power cut soon after may damage the whole index.",
)
@click.option("--yes", is_flag=True, help="Drop the documents of missing files, however many.")
@gpu_option
@wait_option
@ray_option
@json_option
def index(
    folder: tuple[Path, ...],
    index: Path | None,
    drop: tuple[Path, ...],
    exclude: tuple[str, ...],
    no_exclude: bool,
    model: str | None,
    precision: str | None,
    ocr: bool | None,
    ocr_language: str | None,
    retry: bool,
    durable: bool,
    yes: bool,
    gpu: bool,
    wait: float,
    ray: str | None,
    as_json: bool,
) -> int:
    """Index FOLDER, or bring its index up to date.

    Without FOLDER, it updates the index of --index, or the index of the current folder or of the nearest folder above
    it. If there is none, it indexes the current folder. Only new and changed files are read and embedded. You may
    interrupt it: the next run continues there.

    --name makes a collection of folders and files, searched from anywhere by 'binocle search QUERY -n NAME'. With
    FOLDER, it adds FOLDER to the collection; without, it updates the collection.

    If more than half of the documents are missing, or all below a folder that is now empty, a disk may not be mounted.
    The index then keeps them, and the exit code is 1. --yes drops them; on a terminal, the command asks.

    \b
    binocle index ~/notes
    binocle index docs --index /tmp/docs-index --json
    binocle index ~/notes docs/report.pdf --name all --exclude "*.log"
    """
    from ..core.runtime.arrow import leave_out_pandas

    leave_out_pandas()  # before the modules that import pyarrow
    from ..core.runtime.freed_memory import return_freed_memory
    from ..retriever.retriever import Retriever

    return_freed_memory()
    path, folders = _index_and_folders(folder, index)
    if precision:
        from .precision import model_in_precision

        model = model_in_precision(precision, model, path, folder or [Path()], exclude)
    retriever = Retriever.open(path, model=model, ray=ray, gpu=gpu, durable=durable, wait=wait, on_wait=print_waiting)
    _check_free(retriever, index)
    if is_collection(retriever):
        folders = list(folder) or None

    options = {"exclude": exclude, "exclude_anew": no_exclude, "retry": retry, "ocr": ocr, "ocr_language": ocr_language}
    report = _sync(retriever, folders, ray, as_json=as_json, drop=drop, drop_missing=yes, **options)
    if report.missing and is_interactive() and click.confirm("Drop them from the index?", err=True):
        report = _sync(retriever, folders, ray, as_json=as_json, drop_missing=True, **options)
    if gpu and report.embedded:
        print_note(f"passages were encoded by {retriever.encoded_by}")
    return EXIT_NEGATIVE if report.missing else 0


def _sync(
    retriever: Retriever, folders: Path | list[Path] | None, ray: str | None, *, as_json: bool, **options: Any
) -> Report:
    """Run `Retriever.sync` with these options, and print its report."""
    with stdout_for_answers(ray), ProgressBar("looking through the folder") as progress:
        report = retriever.sync(folders, progress=progress, **options)
    print_note(report.note)
    if as_json:
        echo_json(report.as_dict())
    else:
        echo(summary(report))
    return report


def _index_and_folders(folders: tuple[Path, ...], index: Path | None) -> tuple[Path, Path | list[Path] | None]:
    """Return the path of the index, and the folders to sync: one, several of a collection, or None for its own."""
    from ..retriever.documents.scan import INDEX_NAME, is_index
    from ..retriever.retriever import Retriever
    from ..retriever.store.collection import existing_collection, is_collection_path

    is_named = index is not None and is_collection_path(index)
    if index is not None and is_named:
        if not folders:
            existing_collection(index.name)
        return index, list(folders) or None
    if index is None and not folders and (above := index_above()):
        return above, None
    if index is not None and not folders and own_folder(Retriever.open(index)):
        return index, None
    folder = folders[0] if folders else Path()
    if is_index(folder):
        path = folder.resolve()
        hint = command_hint("index", Retriever.open(path).folder or path.parent, at=path)
        raise InputError(f"{folder} is an index, not a folder of documents: expected {hint}")
    if index is not None and (len(folders) > 1 or folder.is_file()):
        return index, list(folders)
    if len(folders) > 1:
        raise InputError("several folders make a collection: give it a name with --name NAME")
    if not folder.is_dir():
        message = f"{folder} is a file, not a folder: --name NAME makes a collection of files and folders"
        raise InputError(f"there is no folder {folder}" if not folder.exists() else message)
    return index or folder / INDEX_NAME, folder


def own_folder(retriever: Retriever) -> Path | None:
    """The indexed folder; None if there is no index, if it has only added documents, or if the folder is missing."""
    with contextlib.suppress(NoIndexError):
        folder = retriever.folder
        return folder if folder and folder.is_dir() else None
    return None


def index_above() -> Path | None:
    """The index of a folder above that a search in the current folder takes, with a note on it; None if it has none."""
    from ..retriever.documents.scan import find_index
    from ..retriever.retriever import Retriever

    start = current_folder()
    path = find_index(start)
    if path is None or path.parent == start.resolve() or (folder := Retriever.open(path).folder) is None:
        return None
    here = "'binocle index .' makes one of the current folder alone"
    print_note(f"binocle: this is the index of {printable_path(str(folder))}, the nearest above; {here}")
    return path


def is_collection(retriever: Retriever) -> bool:
    """Whether the index is there and holds several folders, wherever it lies."""
    with contextlib.suppress(NoIndexError):
        return retriever.folders != [retriever.folder] and bool(retriever.folders)
    return False


def _check_free(retriever: Retriever, index: Path | None) -> None:
    """Refuse to put an index into a folder with other files."""
    from ..retriever.documents.scan import INDEX_NAME, is_index
    from ..retriever.store.collection import is_collection_path
    from ..retriever.store.locations.open_location import is_s3

    inside = index and not is_s3(index) and retriever.path == expand_home(index).resolve() / INDEX_NAME
    if inside and not is_index(retriever.path):
        hint = "another --name" if is_collection_path(str(index)) else "another folder with --index"
        raise StoreError(f"{index} is not empty and not a whole index: give {hint}")


def open_or_make(folder: Path | None, at: Path | None, model: str | None, ray: str | None) -> Retriever:
    """Open an index to search; if there is none, ask the user on a terminal whether to make it.

    :param at: the index that --index names.
    """
    try:
        return open_index(folder, at, model, ray, narrow=True)
    except NoIndexError:
        missing = folder_above(folder or Path())
        if at or not missing.is_dir() or not is_interactive() or not click.confirm(_question(missing), err=True):
            raise
    with contextlib.redirect_stdout(sys.stderr):
        click.get_current_context().find_root().invoke(index, folder=(missing,), model=model, ray=ray)
    return open_index(folder, at, model, ray)


def _question(folder: Path) -> str:
    from ..retriever.indexing.sync.estimate import estimate

    return f"There is no index of {printable_path(str(folder))} yet. Index it now ({estimate(folder)})?"


def summary(report: Report) -> str:
    """The last line of a run over a folder."""
    from ..retriever.indexing.report import FILE_STATES

    parts = {"indexed": f" ({report.in_part:,} in part)" if report.in_part else ""}
    counts = {state: getattr(report, state) for state in FILE_STATES}
    files = [f"{count:,} {state}{parts.get(state, '')}" for state, count in counts.items() if count]
    embedded = f"{report.embedded:,} embedded" if report.embedded else "none embedded"
    passages = count_of(report.chunks_total, "passage")
    return f"{', '.join(files) or 'no files'}; {passages}, {embedded}, in {report.seconds:.1f} s" + (
        f"; {command_hint('files --state failed')} says why" if report.failed else ""
    )


def _find_unless_forgotten(retriever: Retriever, path: str) -> str | None:
    """The path in the index of a document or folder; None if it was forgotten."""
    return None if is_forgotten(retriever, path) else find_document(retriever, path, folders=True)


@click.command()
@click.argument("path")
@folder_argument
@index_option
@wait_option
def forget(path: str, folder: Path | None, index: Path | None, wait: float) -> int:
    """Take a document or a folder out of the index and erase it.

    Its texts, its vectors and its name are erased from the index on the disk. The file itself is not touched; it stays
    out until 'binocle index --retry'. Without FOLDER, the command uses the index above PATH if the index of the
    current folder lacks PATH. Exit 1 when it was forgotten already.

    \b
    binocle forget private/diary.md ~/notes
    """
    retriever, document = open_cited(path, _find_unless_forgotten, folder, index, wait=wait)
    if document is None:
        if retriever.snapshot().head.erase:
            print_note(retriever.delete(path).note)  # a write finishes the erasure that an earlier run began
            print_note("what an earlier run had left on the disk is erased now")
        echo(f"{printable_path(path_as_printed(path))} was forgotten already")
        return EXIT_NEGATIVE
    report = retriever.delete(document, folder=document, erase=True)
    print_note(report.note)
    index_above = click.get_current_context().params["index"] if index is None else None  # of PATH, if it was taken
    source = f" from {printable_path(str(index_above))}" if index_above else ""
    echo(f"{count_of(report.removed, 'document')} forgotten{source}")
    return 0
