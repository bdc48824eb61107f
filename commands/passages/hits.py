"""Print hits with their citations, or as JSON, and notes on them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.printable import printable, printable_path
from ...core.units import count_of
from ...retriever.search.results.snippet import blocks
from ...retriever.search.words.exact import parse
from ..index_lookup import command_hint, folder_filter, path_from_here
from ..options import EXIT_NEGATIVE
from ..output import echo, echo_coloured, echo_json, is_coloured
from .answer import answer_fields
from .places import document_url
from .retained import embedded_text, recovered
from .word_shares import shares_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...retriever.inversion.facts import RetainedFacts
    from ...retriever.models.encoder import Kind
    from ...retriever.retriever import Retriever
    from ...retriever.search.answers import Answer
    from ...retriever.search.results.hit import Hit
    from ...retriever.search.words.exact import ExactQuery


class PrintOptions(NamedTuple):
    """How hits are printed: the options of `binocle search`."""

    as_json: bool
    explain: bool = False
    copies: bool = False
    full: bool = False


def print_hits(
    hits: list[Hit],
    query: str,
    root: Path | None,
    options: PrintOptions,
    recover: Callable[[str, Kind], RetainedFacts] | None = None,
    shares_of: Callable[[Hit], dict[str, Any] | None] | None = None,
    answers: list[Answer] | None = None,
) -> None:
    """Print hits.

    :param root: the indexed folder; their paths are relative to it.
    :param recover: tells which words a vector keeps, to print them too.
    :param shares_of: splits the cosine of a hit between words, to print them too.
    :param answers: of a reader; JSON has the best one of each hit.
    """
    if options.as_json:
        for hit in hits:
            row = _hit_fields(hit, explain=options.explain)
            if shares_of and (shares := shares_of(hit)):
                row["explanation"] = row["explanation"] | {"words": shares}
            if recover:
                facts = {"query": recover(query.strip(), "query"), "passage": recover(embedded_text(hit), "document")}
                row["vector"] = {name: retained.as_dict() for name, retained in facts.items()}
            if answers is not None:
                row["answer"] = answer_fields(answers, [part.passage for part in hit.parts or (hit,)])
            echo_json(row)
    else:
        _print_blocks(hits, query, root, options, recover, shares_of)


def _print_blocks(
    hits: list[Hit],
    query: str,
    root: Path | None,
    options: PrintOptions,
    recover: Callable[[str, Kind], RetainedFacts] | None,
    shares_of: Callable[[Hit], dict[str, Any] | None] | None,
) -> None:
    """Print a block of lines for each hit."""
    printed = blocks(
        hits,
        query,
        path_of=path_from_here(root),
        url_of=lambda hit: document_url(hit, root),
        colour=is_coloured(),
        width=_width(),
        explain=options.explain,
        list_copies=options.copies,
        full=options.full,
    )
    for hit, block in zip(hits, printed, strict=True):
        shares = shares_of(hit) if shares_of else None
        lines = [shares_line(shares)] if shares else []
        lines += [printable(recovered(recover(embedded_text(hit), "document")))] if recover else []
        echo_coloured("\n    ".join([block.rstrip(), *lines]) + "\n" if lines else block)


def comment(
    hits: list[Hit],
    query: str,
    where: tuple[str, ...],
    folders: tuple[Path, ...],
    root: Path | None,
    retriever: Retriever,
    *,
    as_json: bool,
) -> int:
    """Print notes on the hits to stderr, and return the exit code.

    :param query: "" if there is none.
    """
    from ...retriever.store.locations.folder_location import writer_at

    if not as_json:
        _warn_of_changed_files(hits, root, retriever)
        if hits and (writer := writer_at(retriever.path)):
            writing = f"{writer} is writing the index{_progress(retriever)}"
            echo(f"binocle: {writing}: passages of new files may still be missing", err=True)
    if not hits:
        _explain_no_hits(query, where, folders, root, retriever)
    return 0 if hits else EXIT_NEGATIVE


def _warn_of_changed_files(hits: list[Hit], root: Path | None, retriever: Retriever) -> None:
    """Warn of cited files that were changed or removed after indexing, alone or with a whole folder."""
    from ...retriever.documents.scan import away, lies_in, written_since
    from ...retriever.store.root import held_below

    documents = list({hit.document_row for hit in hits if hit.source == "file"})
    if root is None or not documents:
        return
    if not root.is_dir():
        hint = command_hint("index", Path("FOLDER"), at=retriever.path)
        missing = f"the indexed folder {printable_path(str(root))} is not there: is a disk not mounted?"
        echo(f"binocle: {missing} If it has moved, {hint} names its new place", err=True)
        return
    columns = ["path", "size", "mtime_ns", "sha256"]
    snapshot = retriever.snapshot()
    rows = list(snapshot.documents_by_id(documents, columns).values())
    gone = away(root, held_below(snapshot.store))
    for folder in (folder for folder in gone if any(lies_in(row["path"], [folder]) for row in rows)):
        path = str(root / folder)
        hint = command_hint(f"index --drop {shlex.quote(path)}", root, at=retriever.path)
        missing = f"{printable_path(path)} of the collection is not there: is a disk not mounted?"
        echo(f"binocle: {missing} {hint} takes it out", err=True)
    if count := len(written_since(root, [row for row in rows if not lies_in(row["path"], gone)])):
        changed = "one of these files was" if count == 1 else f"{count:,} of these files were"
        hint = command_hint("index", root, at=retriever.path)
        echo(f"binocle: {changed} changed or removed after indexing: {hint} brings the index up to date", err=True)


def _explain_no_hits(
    query: str,
    where: tuple[str, ...],
    folders: tuple[Path, ...],
    root: Path | None,
    retriever: Retriever,
) -> None:
    """Say why nothing was found if the query is not the reason; on a terminal always say something."""
    from ...retriever.store.documents import ids_passing

    snapshot = retriever.snapshot()
    documents = retriever.documents()
    rows = [row for row in documents if row["chunks"]]
    inside = folder_filter(folders, root, retriever.location)
    below = ids_passing(snapshot, inside)
    if not rows:
        reason = _why_empty(retriever, root, has_documents=bool(documents))
    elif below.isdisjoint(row["id"] for row in rows):
        reason = f"no document in {', '.join(map(str, folders))} has passages in the index"
    elif where and ids_passing(snapshot, [*where, *inside]).isdisjoint(row["id"] for row in rows):
        types = {row["format"] for row in rows if row["id"] in below} if "type" in " ".join(where) else set()
        reason = f"no document passes {' and '.join(where)}{_listed(types)}"
    else:
        reason = _lacking(parse(query)) or "nothing found" * sys.stdout.isatty()
    if reason:
        echo(f"binocle: {printable(reason)}", err=True)


def _listed(types: set[str]) -> str:
    """The types of documents that are there, for a message; "" for none."""
    if not types:
        return ""
    return f" (types here: {', '.join(sorted(types)[:_LISTED_TYPES])}{', …' * (len(types) > _LISTED_TYPES)})"


def _why_empty(retriever: Retriever, root: Path | None, *, has_documents: bool) -> str:
    """Why an index holds no passages."""
    from ...retriever.store.locations.folder_location import writer_at

    index = retriever.location
    if writer := writer_at(retriever.path):
        return f"{writer} is making the index at {index}{_progress(retriever)}: search again when it is done"
    hint = command_hint("files" if has_documents else "index", root or Path("FOLDER"), at=retriever.path)
    if has_documents:
        return f"the index at {index} holds no passages, for the reasons that {hint} lists"
    return f"the index at {index} holds no passages yet: {hint} fills it"


def _progress(retriever: Retriever) -> str:
    """How far the index is that another process writes: ", 120 of about 3,000 files so far"."""
    from ...retriever.indexing.sync.estimate import estimate

    root, status = retriever.folder, retriever.snapshot().document_rows
    if root is None or not root.is_dir():
        return ""
    settings = retriever.snapshot().store.read_settings().settings
    within = [path.removeprefix("/") for path in settings.folders]
    total = estimate(root, leave_out=retriever.path, within=within, exclude=settings.exclude, seconds=_LOOK_SECONDS)
    columns = (status[name].to_pylist() for name in ("source", "state"))
    done = sum(source == "file" and state != "skipped" for source, state in zip(*columns, strict=True))
    about = "about" if total.is_whole else "more than"
    return f", {done:,} of {about} {count_of(total.files, 'file')} so far" if done < total.files else ""


def _lacking(parts: ExactQuery) -> str:
    """Say which quoted and excluded words of a query no passage satisfies; "" if it has none."""
    without = f" without {_quoted(parts.excluded, 'or')}" if parts.excluded else ""
    holding = f"no passage holds {_quoted(parts.required)}" if parts.required else "nothing found" * bool(without)
    return holding + without


def _quoted(literals: tuple[str, ...], joined: str = "and") -> str:
    return f" {joined} ".join(f'"{literal}"' for literal in literals)


def _width() -> int:
    import shutil

    return max(40, min(shutil.get_terminal_size((100, 24)).columns, 120))


_LOOK_SECONDS = 0.5  # to count the files of a folder that is being indexed
_LISTED_TYPES = 20  # most types that a message lists
_JSON_FIELDS = [
    "rank",
    "score",
    "scores",
    "path",
    "sha256",
    "char_start",
    "char_end",
    "line_start",
    "line_end",
    "page",
    "heading",
    "text",
    "hidden",
    "title",
    "metadata",
    "format",
    "source",
    "relevance",
    "weak",
]
_PART_FIELDS = [
    *("rank", "score", "scores", "char_start", "char_end", "line_start", "line_end", "page", "heading"),
    *("relevance", "weak"),
]
_COPY_FIELDS = ["path", "line_start", "line_end", "page", "heading"]


def _hit_fields(hit: Hit, *, explain: bool) -> dict[str, Any]:
    row = {name: getattr(hit, name) for name in _JSON_FIELDS}
    row["symbols"] = hit.symbols
    row["parts"] = [{name: getattr(part, name) for name in _PART_FIELDS} for part in hit.parts]
    row["copies"] = [{name: getattr(copy, name) for name in _COPY_FIELDS} for copy in hit.copies]
    return row | ({"explanation": hit.explanation} if explain else {})
