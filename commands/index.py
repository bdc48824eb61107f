"""`binocle index, switch, rollback, status, files, verify, forget`: what is in an index, and keeping it so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError, StoreError
from ..retriever.search.snippet import printable, printable_path
from .options import (
    FOLDER,
    INDEX,
    NOTHING,
    as_from_here,
    folder_argument,
    index_option,
    json_option,
    known,
    only_answers,
    open_index,
    ray_option,
    typed,
    within,
)
from .progress_bar import ProgressBar

if TYPE_CHECKING:
    from pathlib import Path

    from ..retriever.indexing.report import Report
    from ..retriever.indexing.switch import SwitchReport
    from ..retriever.integrity.status import Status
    from ..retriever.integrity.verify import Fault
    from ..retriever.integrity.wrong_vectors import VectorCheck


@click.command()
@click.argument("folder", type=FOLDER)
@click.option(
    "--index",
    "index",
    metavar="DIR",
    type=INDEX,
    envvar="BINOCLE_INDEX",
    help="A folder, or s3://BUCKET/PREFIX. Default: .binocle in FOLDER.",
)
@click.option("--model", metavar="NAME", help="Encoder for a new index: a sentence-transformers folder or hub name.")
@click.option("--retry", is_flag=True, help="Read again what failed before or was forgotten.")
@ray_option
@json_option
def index(folder: Path, index: Path | None, model: str | None, retry: bool, ray: str | None, as_json: bool) -> None:
    """Index FOLDER, or bring its index up to date.

    Only what is new or changed is read and embedded. Interrupt it when you like: it goes on where it stopped.

    \b
    binocle index ~/notes
    binocle index docs --index /tmp/docs-index --json
    """
    from ..retriever.documents.scan import INDEX_NAME, is_index
    from ..retriever.retriever import Retriever
    from ..retriever.store.open_location import is_s3

    if is_index(folder):
        at = folder.resolve()
        meant = typed("index", Retriever.open(at).folder or at.parent, at=at)
        raise InputError(f"{folder} is an index, not a folder of documents: expected {meant}")
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}" if not folder.exists() else f"{folder} is a file, not a folder")
    retriever = Retriever.open(index or folder / INDEX_NAME, model=model, ray=ray)
    inside = index and not is_s3(index) and retriever.path == index.expanduser().resolve() / INDEX_NAME
    if inside and not is_index(retriever.path):
        raise StoreError(f"{index} is not empty and not a whole index: give another folder with --index")
    with only_answers(ray), ProgressBar("looking through the folder") as progress:
        report = retriever.sync(folder, retry=retry, progress=progress)
    _tell(report.note)
    click.echo(json.dumps(report.as_dict()) if as_json else _summary(report))


def _tell(note: str) -> None:
    if note:
        click.echo(note, err=True)


def _summary(report: Report) -> str:
    from ..retriever.indexing.report import FILE_STATES

    counts = [f"{getattr(report, name):,} {name}" for name in FILE_STATES if getattr(report, name)]
    embedded = f"{report.embedded:,} embedded" if report.embedded else "none embedded"
    passages = f"{report.chunks_total:,} passage{'s' * (report.chunks_total != 1)}"
    return f"{', '.join(counts) or 'no files'}; {passages}, {embedded}, in {report.seconds:.1f} s" + (
        f"; {typed('files --state failed')} says why" if report.failed else ""
    )


@click.command()
@click.argument("model")
@folder_argument
@index_option
@json_option
def switch(model: str, folder: Path | None, index: Path | None, as_json: bool) -> None:
    """Embed an index anew with another encoder.

    MODEL is a sentence-transformers folder or hub name, such as one fine-tuned from the index's own: it must cut texts
    into the same passages. Searches are answered by the old encoder until all is done, and by the new one from then
    on; 'binocle rollback' brings the old one back. Interrupt it when you like: it goes on where it stopped.

    \b
    binocle switch models/tuned docs
    """
    retriever = open_index(folder, index)
    with ProgressBar("loading the encoder") as progress:
        report = retriever.switch(model, progress=progress)
    _tell(report.note)
    if as_json:
        click.echo(json.dumps(report.as_dict()))
    elif report.switched:
        click.echo(f"{_switched(report)}; {typed('rollback')} brings {report.before} back")
    else:
        click.echo(f"the index has this encoder already: {report.model}")


@click.command()
@folder_argument
@index_option
@click.option("--model", metavar="NAME", help="Where the previous encoder is now, if it has moved.")
@json_option
def rollback(folder: Path | None, index: Path | None, model: str | None, as_json: bool) -> None:
    """Bring back the encoder before the last switch.

    Passages that were there before the switch get their vectors of then; those indexed since are embedded anew.

    \b
    binocle rollback ~/notes
    """
    retriever = open_index(folder, index)
    with ProgressBar("loading the encoder") as progress:
        report = retriever.rollback(model, progress=progress)
    _tell(report.note)
    click.echo(json.dumps(report.as_dict()) if as_json else _switched(report))


def _switched(report: SwitchReport) -> str:
    passages = f"{report.chunks:,} passage{'s' * (report.chunks != 1)}"
    embedded = f"{report.embedded:,} embedded" if report.embedded else "none embedded"
    return f"{passages} now of {report.model}, {embedded}, in {report.seconds:.1f} s"


@click.command()
@folder_argument
@index_option
@json_option
def status(folder: Path | None, index: Path | None, as_json: bool) -> None:
    """Show what an index holds and what it was made with.

    \b
    binocle status ~/notes
    """
    from dataclasses import asdict

    from ..core.units import format_bytes

    found = open_index(folder, index).status()
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    states = ", ".join(f"{count:,} {state}" for state, count in found.documents.items())
    vectors = "none yet" if found.vector_index is None else _vectors(found)
    if found.newer_rows or found.deleted_rows:
        vectors += f" ({found.newer_rows:,} newer rows searched exactly, {found.deleted_rows:,} deleted ones masked)"
    for name, value in (
        ("index", found.path),
        ("folder", found.folder or "none: added documents only"),
        ("documents", states),
        ("passages", f"{found.chunks:,}"),
        ("encoder", f"{found.model}, {found.dim} dimensions, fingerprint {found.fingerprint[:8]}"),
        *([("previous", _previous(found.previous))] if found.previous else []),
        ("vectors", vectors),
        *_proof(found),
        *([("damage", f"{found.damage}; {typed('verify --repair')} builds it anew")] if found.damage else []),
        ("size", format_bytes(found.bytes)),
    ):
        click.echo(f"{name:<10} {value}")


def _vectors(found: Status) -> str:
    """The kind of vector index, and its parameters: `ivf_int8 (nlist 64, nprobe 8, k_factor 4), 1.2 MB`."""
    from ..core.units import format_bytes

    made = found.vector_kind
    if made is None:
        return "damaged"
    chosen = {**made["build"], **made["search"]}
    values = ", ".join(f"{name} {value}" for name, value in chosen.items())
    return f"{made['kind']}{f' ({values})' * bool(values)}, {format_bytes(made['bytes'])}, {found.vector_index}"


def _proof(found: Status) -> list[tuple[str, str]]:
    """What `optimize` measured, if it did."""
    from ..indexes.tuning.benchmark import BenchmarkResult
    from .optimize import proof

    measured = BenchmarkResult.of(found.vector_kind["measured"]) if found.vector_kind else None
    return [] if measured is None else proof(measured)


def _previous(before: dict[str, Any]) -> str:
    from ..core.units import format_bytes

    return (
        f"{before['model']}, {before['dim']} dimensions, fingerprint {before['fingerprint'][:8]}: {typed('rollback')} "
        f"brings it back; {before['vectors']:,} vectors kept, {format_bytes(before['bytes'])}"
    )


@click.command()
@folder_argument
@index_option
@click.option("--state", type=click.Choice(["indexed", "skipped", "failed"]), help="Only files in this state.")
@json_option
def files(folder: Path | None, index: Path | None, state: str | None, as_json: bool) -> int:
    """List every file and what became of it.

    Indexed, skipped or failed, and why; with FOLDER below the indexed one, the files there. Paths are printed as they
    open from here; JSON has them as the index does. Exit 1 when there are none.

    \b
    binocle files ~/notes --state failed
    """
    from ..retriever.store.filters import parse

    retriever = open_index(folder, index)
    passing = parse(within(retriever, folder))
    rows = [
        row
        for row in retriever.documents()
        if state in (None, row["state"]) and (passing is None or passing.passes(row))
    ]
    place = as_from_here(retriever)
    names = ("path", "state", "reason", "format", "chunks", "size", "sha256", "title", "source")
    for row in rows:
        if as_json:
            click.echo(json.dumps({name: row[name] for name in names}, ensure_ascii=False))
        else:
            detail = row["reason"] or f"{row['chunks']} passage{'s' * (row['chunks'] != 1)}, {row['format']}"
            path = place(row["path"]) if row["source"] == "file" else row["path"]
            click.echo(f"{row['state']:<8} {printable_path(path)}  ({printable(detail)})")
    return 0 if rows else NOTHING


@click.command()
@folder_argument
@index_option
@click.option(
    "--deep", is_flag=True, help="Also check vectors against their texts: those that look wrong, by encoding."
)
@click.option("--repair", is_flag=True, help="Mend what is found: rebuild from the store, read changed files again.")
@json_option
def verify(folder: Path | None, index: Path | None, deep: bool, repair: bool, as_json: bool) -> int:
    """Check passages against their documents.

    Every passage of the index is held to its document as it is now, and the index to the store. Exit 0 when clean.

    With --deep also the vectors to the texts: those that lie far from where the words of their passage put them are
    encoded anew, and so is a random sample of the others, which says how many can have been missed.

    With --repair exit 0 when all that was found is mended; JSON says of each fault whether it is.

    \b
    binocle verify ~/notes
    binocle verify ~/notes --deep
    """
    from dataclasses import asdict

    searched: list[VectorCheck] = []
    before: list[Fault] = []
    notes: list[str] = []
    retriever = open_index(folder, index)
    with ProgressBar("checking documents") as progress:
        if repair:
            faults = before.extend
            retriever.repair(deep=deep, found=searched.append, faults=faults, progress=progress, tell=notes.append)
        found = retriever.verify(deep=deep and not repair, found=searched.append, progress=progress)
    for note in notes:
        _tell(note)
    if deep:
        click.echo(searched[-1].as_text(), err=True)
    left = set(found)
    mended = [fault for fault in before if fault not in left]
    if mended:
        click.echo(f"{_faults(mended)} mended", err=True)
    if as_json:
        for fault in [*mended, *found]:
            click.echo(json.dumps(asdict(fault) | ({"mended": fault not in left} if repair else {})))
    else:
        place = as_from_here(retriever)
        listed = {row["path"] for row in retriever.documents() if row["source"] == "file"} if found else ()
        for fault in found:
            path = place(fault.path) if fault.path in listed else fault.path
            click.echo(": ".join(filter(None, (fault.kind, printable_path(path), printable(fault.problem)))))
        click.echo(_faults(found) if found else "clean", err=bool(found))
    return NOTHING if found else 0


def _faults(found: list[Fault]) -> str:
    return f"{len(found):,} fault{'s' * (len(found) != 1)}"


@click.command()
@click.argument("path")
@folder_argument
@index_option
def forget(path: str, folder: Path | None, index: Path | None) -> int:
    """Take a document or a folder out and erase it.

    What the index stored of it is erased from the disk; the file itself is not touched.

    A file that is still there stays out until 'binocle index --retry'.

    \b
    binocle forget private/diary.md ~/notes
    """
    retriever = open_index(folder, index)
    path = known(retriever, path, folders=True)
    count = retriever.delete(path, path + "/", tell=_tell)
    click.echo(f"{count:,} document{'s' * (count != 1)} forgotten" if count else f"{path} was forgotten already")
    return 0 if count else NOTHING
