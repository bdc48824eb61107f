"""`binocle status, files`: show the contents of an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...core.printable import printable, printable_path
from ...core.units import count_of
from ..configuration import FILE
from ..enrich import label_counts
from ..index_lookup import command_hint, folder_filter, open_index, path_from_here
from ..options import EXIT_NEGATIVE, folder_argument, index_option, json_option
from ..output import echo, echo_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ...retriever.integrity.status import Status
    from ...retriever.retriever import Retriever


@click.command()
@folder_argument
@index_option
@json_option
def status(folder: Path | None, index: Path | None, as_json: bool) -> None:
    """Show the contents of an index and how it was built.

    \b
    binocle status ~/notes
    """
    from dataclasses import asdict

    retriever = open_index(folder, index)
    status = retriever.status()
    if as_json:
        echo_json(asdict(status))
        return
    for name, value in [*_contents(status), *_storage(status, retriever)]:
        echo(f"{name:<10} {printable(str(value))}")


def _contents(status: Status) -> Iterator[tuple[str, object]]:
    from ...retriever.search.words.documents_language import note_on

    yield "index", status.path
    for folder in status.folders or ["none: added documents only"]:
        yield "folder", printable_path(folder)
    if status.exclude:
        yield "excluded", f"{', '.join(status.exclude)} ('binocle index --no-exclude' undoes it)"
    if status.ocr:
        yield "pictures", f"read in {status.ocr} ('binocle index --no-ocr' undoes it)"
    yield "documents", _documents(status)
    yield "passages", f"{status.chunks:,}"
    yield "encoder", _encoder(status)
    if prompts := [f"{prompt!r} before each {kind}" for kind, prompt in (status.prompts or {}).items() if prompt]:
        yield "prompts", " and ".join(prompts)
    if status.unread_language:
        yield "language", note_on(status.unread_language)
    if status.switching:
        yield "switching", _switching(status.switching)
    if status.previous:
        yield "previous", _previous_encoder(status, status.previous)
    yield "vectors", _vectors(status)
    yield from _benchmark(status)
    yield "relevance", _relevance(status)
    for row in status.labels:
        yield "labels", label_counts(row)


def _storage(status: Status, retriever: Retriever) -> Iterator[tuple[str, object]]:
    from ...core.units import format_bytes

    if status.damage:
        yield "damage", f"{status.damage}; {_repair(retriever)}"
    if status.erase_by:
        yield "deleted", f"to be erased from the disk by {status.erase_by}"
    yield "size", format_bytes(status.bytes)
    if configuration := click.get_current_context().meta.get(FILE):
        yield "defaults", configuration
    if not retriever.trusted:
        yield "trust", f"none, so it is read-only: {command_hint('trust')} allows it"


def _documents(status: Status) -> str:
    """The number of documents in each state; of forgotten ones only if there are some."""
    counts = {state: count for state, count in status.documents.items() if count or state != "forgotten"}
    parts = {"indexed": f" ({status.in_part:,} in part)" if status.in_part else ""}
    return ", ".join(f"{count:,} {state}{parts.get(state, '')}" for state, count in counts.items())


def _vectors(status: Status) -> str:
    vectors = "none yet" if status.vector_index is None else _vector_index(status)
    if status.newer_rows or status.deleted_rows:
        vectors += f" ({status.newer_rows:,} newer rows searched exactly, {status.deleted_rows:,} deleted ones masked)"
    return vectors


def _repair(retriever: Retriever) -> str:
    """The command that repairs the index; for an untrusted index, first the command that allows it."""
    repair = f"{command_hint('verify --repair')} rebuilds it"
    if retriever.trusted:
        return repair
    return f"if you know where the index comes from, {command_hint('trust')} allows a repair, then {repair}"


def _vector_index(status: Status) -> str:
    """The kind of vector index, and its parameters: `ivf_int8 (nlist 64, nprobe 8, k_factor 4), 1.2 MB`."""
    from ...core.units import format_bytes

    published = status.vector_kind
    if published is None:
        return "damaged"
    parameters = {**published["build"], **published["search"]}
    values = ", ".join(f"{name} {value}" for name, value in parameters.items())
    size = format_bytes(published["bytes"])
    return f"{published['kind']}{f' ({values})' * bool(values)}, {size}, {status.vector_index}"


def _relevance(status: Status) -> str:
    """How often the index is wrong about having an answer."""
    answered, refused = status.relevance["answered"], status.relevance["refused"]
    if answered is None or refused is None:
        return "not measured with this encoder yet: no search is refused"
    if not status.relevance["passages"]:
        errors = f"{answered:.0%} of questions without an answer show hits, {refused:.0%} of those with one are refused"
        return f"not measured here; on other collections, {errors}"
    return f"{answered:.0%} of everyday questions seem answered, {refused:.0%} of the documents' own sentences do not"


def _benchmark(status: Status) -> list[tuple[str, str]]:
    """The measurements of `optimize`, if it chose the vector index."""
    from ...indexes.tuning.benchmark import BenchmarkResult
    from .optimize import proof

    result = BenchmarkResult.from_dict(status.vector_kind["measured"]) if status.vector_kind else None
    return [] if result is None else proof(result)


def _encoder(status: Status) -> str:
    if not status.model:
        return f"none: the vectors, of {status.dim} dimensions, came with the documents"
    name = f"{status.model}, an adapter of {status.base}" if status.base else status.model
    length = f", passages of up to {status.passage_tokens:,} of its tokens" if status.passage_tokens else ""
    return f"{name}, {status.dim} dimensions, fingerprint {status.fingerprint[:8]}{length}"


def _switching(switching: dict[str, Any]) -> str:
    model = switching["model"] or f"fingerprint {switching['fingerprint'][:8]}"
    done = f"{switching['embedded']:,} of {count_of(switching['texts'], 'text')} embedded"
    return f"to {model}, {done}; if it was stopped, 'binocle switch' goes on there"


def _previous_encoder(status: Status, previous: dict[str, Any]) -> str:
    from ...core.units import format_bytes

    storage = f"{count_of(previous['vectors'], 'vector')} kept, {format_bytes(previous['bytes'])}"
    return (
        f"{previous['model']}, {previous['dim']} dimensions, fingerprint {previous['fingerprint'][:8]}: "
        f"{command_hint('rollback')} brings it back; {'nothing is embedded' if status.base else storage}"
    )


@click.command()
@folder_argument
@index_option
@click.option("--state", type=click.Choice(["indexed", "skipped", "failed"]), help="List only files in this state.")
@json_option
def files(folder: Path | None, index: Path | None, state: str | None, as_json: bool) -> int:
    """List every file: indexed, skipped or failed, and why. For a file read in part, it says which parts are missing.

    A FOLDER below the indexed one lists the files there. Paths open from the current folder; JSON has them relative to
    the indexed folder. Exit 1 when there are none.

    \b
    binocle files ~/notes --state failed
    """
    from ...retriever.store.documents import ids_passing

    retriever = open_index(folder, index, narrow=True)
    root = retriever.folder
    inside = folder_filter(folder, root, retriever.location)
    below = ids_passing(retriever.snapshot(), inside)
    rows = [row for row in retriever.documents() if state in (None, row["state"]) and row["id"] in below]
    from_here = path_from_here(root)
    names = ("path", "state", "reason", "format", "chunks", "size", "sha256", "title", "source")
    for row in rows:
        if as_json:
            echo_json({name: row[name] for name in names})
        else:
            detail = _detail(row)
            path = from_here(row["path"]) if row["source"] == "file" else row["path"]
            echo(f"{row['state']:<8} {printable_path(path)}  ({printable(detail)})")
    if not inside and state in (None, "skipped"):
        _count_forgotten(len(retriever.snapshot().tombstones))
    return 0 if rows else EXIT_NEGATIVE


def _detail(row: dict[str, Any]) -> str:
    """Return the note of `files` on a file: its passages and format, why it has none, or its unread parts."""
    from ...retriever.documents.document import is_in_part

    if row["reason"] and row["state"] != "indexed":
        return str(row["reason"])
    part = f", {'in part: ' * is_in_part(row)}{row['reason']}" if row["reason"] else ""
    return f"{count_of(row['chunks'], 'passage')}, {row['format']}{part}"


def _count_forgotten(count: int) -> None:
    """Say on stderr how many files were forgotten; the index does not have their names."""
    if count:
        files, them = ("file was", "it") if count == 1 else ("files were", "them")
        hint = f"{command_hint('index --retry')} reads {them} again"
        echo(f"binocle: {count:,} {files} forgotten: {hint}", err=True)
