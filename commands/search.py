"""`binocle search, similar, show`: find passages, and print the text that they cite."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError, UntrustedError
from ..core.printable import printable
from ..retriever.search.exact import parse
from ..retriever.search.snippet import blocks
from .index import open_or_make
from .lines import check_line_options, line_options, print_lines
from .options import (
    EXIT_NEGATIVE,
    FOLDER,
    check_rerank_options,
    command_hint,
    find_document,
    folder_argument,
    folder_filter,
    folders_argument,
    index_option,
    is_document,
    json_option,
    k_option,
    open_index,
    parse_citation,
    path_from_here,
    ray_option,
    rerank_depth_option,
    rerank_option,
    stdout_for_answers,
    where_option,
)
from .output import echo, echo_coloured, echo_json, is_coloured
from .places import document_url, open_in_editor
from .remarks import corrected, say_language, say_nothing, say_too_long
from .retained import embedded_text, recovered, recovery

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..retriever.inversion.facts import RetainedFacts
    from ..retriever.models.encoder import Kind
    from ..retriever.retriever import Retriever
    from ..retriever.search.hit import Hit
    from ..retriever.search.query import Mode
    from ..retriever.store.filters.filter import Filter


class _QueryCommand(click.Command):
    """Explain how to pass a query that looks like an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            hint = "A query that begins with - goes behind --, after all options"
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None


@click.command(cls=_QueryCommand)
@click.argument("query")
@folders_argument
@index_option
@k_option
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "semantic", "lexical"]),
    default="hybrid",
    show_default=True,
    help="Match meaning (semantic), words (lexical) or both.",
)
@where_option
@click.option("--files", metavar="GLOB", help="Search only these files: the same as --where path=GLOB.")
@line_options
@rerank_option
@rerank_depth_option
@click.option("--rerank-seconds", metavar="S", type=float, help="Rerank for about S seconds, the best passages first.")
@click.option(
    "--per-document",
    metavar="N",
    type=click.IntRange(min=0),
    help="Print at most N passages of a document; 0: any number. Default: 3, and more where others have none.",
)
@click.option("--copies", is_flag=True, help="List the places of the copies of each passage.")
@click.option("--full", is_flag=True, help="Print whole passages.")
@click.option("--open", "open_first", is_flag=True, help="Open the first passage in $VISUAL or $EDITOR, at its line.")
@click.option(
    "--min-relevance",
    metavar="X",
    type=click.FloatRange(0, 1),
    help="Print passages from this relevance, 0 to 1. By default all, but none if the best is below 0.5.",
)
@click.option("--explain", is_flag=True, help="Show what each stage contributed to the score.")
@click.option(
    "--inverter",
    metavar="DIR",
    type=FOLDER,
    help="With --explain, also show which words the vectors keep and lose: the folder of a trained inverter.",
)
@click.option("--model", metavar="NAME", help="Where the index's encoder is now, if it was moved.")
@ray_option
@json_option
def search(
    query: str,
    folder: tuple[Path, ...],
    index: Path | None,
    k: int,
    mode: Mode,
    where: tuple[str, ...],
    files: str | None,
    regex: bool,
    fixed: bool,
    rerank: str | None,
    rerank_depth: int,
    rerank_seconds: float | None,
    per_document: int | None,
    copies: bool,
    full: bool,
    open_first: bool,
    min_relevance: float | None,
    explain: bool,
    inverter: Path | None,
    model: str | None,
    ray: str | None,
    as_json: bool,
    **lines: Any,
) -> int:
    """Find the passages that answer QUERY.

    Searches FOLDER, which may also be a file, a glob, or several of these in one index. Without it, searches the whole
    index of the current folder or of the nearest one above it. The QUERY "-" is read from standard input. Paths open
    from the current folder; JSON has them relative to the indexed folder. Exit 1 when nothing is found, or nothing that
    answers QUERY.

    Passages that hold an identifier of QUERY literally (max_size, BadParameter, 1.2.3, #2809, src/main.rs) come first,
    definitions before uses; in a sentence, of plain names only the definitions. "Words in quotes" and +word must be in
    every passage. Words with a minus at the end of QUERY (-word) must not.

    With --regex or --fixed it prints the lines that match QUERY in the stored texts, as grep does, for PDF and office
    files too.

    A word that no passage has is corrected to the nearest word of the index, unless it is in quotes.

    With --rerank a cross-encoder reads the best passages again, together with the query, and orders them.

    \b
    binocle search '"invoice of march" -draft' docs
    binocle search "lifetime of a borrowed value" docs
    binocle search "how to install it" docs/guide/*.md docs/report.pdf
    binocle search "invoice march" --where type=pdf --where 'modified>=2026-01-01' --json
    binocle search --regex "install (the|a) " docs --files "*.md" -i -C 2
    binocle search "how to install it" docs --rerank models/reranker --rerank-seconds 2
    """
    check_line_options(regex=regex, fixed=fixed)
    check_rerank_options(used=rerank is not None, by="--rerank")
    where = where if files is None else (*where, f"path={files}")
    if query == "-":
        if sys.stdin is None:
            raise InputError("the query '-' is read from standard input, but that is closed")
        query = sys.stdin.buffer.read().decode("utf-8", "replace")
    retriever = open_or_make(next(iter(folder), None), index, model, ray)
    if regex or fixed:
        scope: list[str | Filter] = [*where, *folder_filter(folder, retriever.folder, retriever.path)]
        return print_lines(retriever, query, scope, fixed=fixed, as_json=as_json, **lines)
    recover, root = recovery(inverter, retriever, explain=explain), retriever.folder
    mode = _allowed_mode(mode, retriever)
    with stdout_for_answers(ray):
        hits = retriever.search(
            query,
            k,
            mode=mode,
            where=[*where, *folder_filter(folder, root, retriever.path)],
            rerank=rerank,
            rerank_depth=rerank_depth,
            rerank_seconds=rerank_seconds,
            per_document=per_document,
            min_relevance=min_relevance,
        )
    query = corrected(query, hits)
    if recover and not as_json:
        echo(f"query: {recovered(recover(query.strip(), 'query'))}\n")
    is_refused = bool(hits) and not hits.answerable and min_relevance is None
    shown = [] if is_refused and not as_json else hits
    _print_hits(shown, query, root, explain=explain, as_json=as_json, recover=recover, copies=copies, full=full)
    if mode != "lexical":
        say_too_long(query, retriever)
        say_language(query, retriever)
    if is_refused:
        say_nothing(hits, path_from_here(root))
        return EXIT_NEGATIVE
    if open_first and hits:
        open_in_editor(hits[0], root)
    return _comment(hits, where, folder, root, retriever, as_json=as_json, required=parse(query).required)


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

    FILE is a path as search prints it, or any path to the file. Exit 1 when nothing is found.

    \b
    binocle similar guide/install.md:40 docs
    """
    retriever = open_index(folder, index, narrow=True)
    path, line = parse_citation(retriever, citation)
    root = retriever.folder
    hits = retriever.similar(path, line, k, where=[*where, *folder_filter(folder, root, retriever.path)])
    _print_hits(hits, "", root, explain=False, as_json=as_json)
    return _comment(hits, where, (folder,) if folder else (), root, retriever, as_json=as_json)


@click.command()
@click.argument("citation", metavar="FILE[:LINE[-LINE]]")
@folder_argument
@index_option
def show(citation: str, folder: Path | None, index: Path | None) -> None:
    """Print the text of a document, as the index read it.

    Prints the whole text, or only the lines of a citation.

    \b
    binocle show report.pdf docs
    binocle show guide/install.md:40-60 docs
    """
    retriever = open_index(folder, index)
    match = re.fullmatch(r"(.+):([0-9]{1,99})(?:-([0-9]{1,99}))?", citation, re.DOTALL)
    if match and not is_document(retriever, citation):
        first = int(match[2])
        text = retriever.text(find_document(retriever, match[1]), lines=(first, int(match[3] or first)))
    else:
        text = retriever.text(find_document(retriever, citation))
    echo(text)


def _allowed_mode(mode: Mode, retriever: Retriever) -> Mode:
    """Search by words alone, with a note, where the index names an encoder and the user has not allowed that."""
    if mode != "hybrid" or retriever.trusted:
        return mode
    try:
        _ = retriever.encoder
    except UntrustedError as error:
        echo(f"binocle: searched by words alone: {error}", err=True)
        return "lexical"
    return mode


def _print_hits(
    hits: list[Hit],
    query: str,
    root: Path | None,
    *,
    explain: bool,
    as_json: bool,
    recover: Callable[[str, Kind], RetainedFacts] | None = None,
    copies: bool = False,
    full: bool = False,
) -> None:
    if as_json:
        for hit in hits:
            row = _hit_fields(hit, explain=explain)
            if recover:
                facts = {"query": recover(query.strip(), "query"), "passage": recover(embedded_text(hit), "document")}
                row["vector"] = {name: retained.as_dict() for name, retained in facts.items()}
            echo_json(row)
        return
    printed = blocks(
        hits,
        query,
        path_of=path_from_here(root),
        url_of=lambda hit: document_url(hit, root),
        colour=is_coloured(),
        width=_width(),
        explain=explain,
        list_copies=copies,
        full=full,
    )
    for hit, block in zip(hits, printed, strict=True):
        facts_line = printable(recovered(recover(embedded_text(hit), "document"))) if recover else ""
        echo_coloured(f"{block.rstrip()}\n    {facts_line}\n" if recover else block)


def _comment(
    hits: list[Hit],
    where: tuple[str, ...],
    folders: tuple[Path, ...],
    root: Path | None,
    retriever: Retriever,
    *,
    as_json: bool,
    required: tuple[str, ...] = (),
) -> int:
    """Print notes on the hits to stderr, and return the exit code."""
    from ..retriever.store.locations.folder_location import writer_at

    if not as_json:
        _warn_of_changed_files(hits, root, retriever)
        if hits and (writer := writer_at(retriever.path)):
            echo(f"binocle: {writer} is writing the index: passages of new files may still be missing", err=True)
    if not hits:
        _explain_no_hits(where, folders, root, retriever, required)
    return 0 if hits else EXIT_NEGATIVE


def _warn_of_changed_files(hits: list[Hit], root: Path | None, retriever: Retriever) -> None:
    """Warn of cited files that were changed or removed after indexing: their lines may have moved."""
    from ..retriever.documents.scan import written_since

    documents = list({hit.document for hit in hits if hit.source == "file"})
    if root is None or not documents or not root.is_dir():
        return
    columns = ["path", "size", "mtime_ns", "sha256"]
    rows = retriever.snapshot().documents_by_id(documents, columns)
    if count := len(written_since(root, rows.values())):
        changed = "one of these files was" if count == 1 else f"{count:,} of these files were"
        hint = command_hint("index", root, at=retriever.path)
        echo(f"binocle: {changed} changed or removed after indexing: {hint} brings the index up to date", err=True)


def _explain_no_hits(
    where: tuple[str, ...],
    folders: tuple[Path, ...],
    root: Path | None,
    retriever: Retriever,
    required: tuple[str, ...],
) -> None:
    """Say why nothing was found if the query is not the reason; on a terminal always say something."""
    from ..retriever.store.documents import ids_passing
    from ..retriever.store.locations.folder_location import writer_at

    snapshot = retriever.snapshot()
    rows = [row for row in retriever.documents() if row["chunks"]]
    inside = folder_filter(folders, root, retriever.path)
    below = ids_passing(snapshot, inside)
    if not rows:
        hint = command_hint("index", root or Path("FOLDER"), at=retriever.path)
        writer = writer_at(retriever.path)
        reason = f"the index at {retriever.path} holds no passages yet: {hint} fills it"
        reason = f"{writer} is making the index at {retriever.path}: search again when it is done" if writer else reason
    elif below.isdisjoint(row["id"] for row in rows):
        reason = f"no document in {', '.join(map(str, folders))} has passages in the index"
    elif where and ids_passing(snapshot, [*where, *inside]).isdisjoint(row["id"] for row in rows):
        types = sorted({row["format"] for row in rows if row["id"] in below}) if "type" in " ".join(where) else []
        more = ", …" * (len(types) > _LISTED_TYPES)
        here = f" (types here: {', '.join(types[:_LISTED_TYPES])}{more})" if types else ""
        reason = f"no document passes {' and '.join(where)}{here}"
    else:
        reason = (required and f"no passage holds {_quoted(required)}") or "nothing found" * sys.stdout.isatty()
    if reason:
        echo(f"binocle: {printable(reason)}", err=True)


def _quoted(literals: tuple[str, ...]) -> str:
    return " and ".join(f'"{literal}"' for literal in literals)


def _width() -> int:
    import shutil

    return max(40, min(shutil.get_terminal_size((100, 24)).columns, 120))


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
_COPY_FIELDS = ["path", "line_start", "line_end", "page", "heading"]


def _hit_fields(hit: Hit, *, explain: bool) -> dict[str, Any]:
    row = {name: getattr(hit, name) for name in _JSON_FIELDS}
    row["copies"] = [{name: getattr(copy, name) for name in _COPY_FIELDS} for copy in hit.copies]
    return row | ({"explanation": hit.explanation} if explain else {})
