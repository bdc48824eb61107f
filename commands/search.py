"""`binocle search, similar, show`: passages, and the text that they cite."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError
from ..retriever.search.snippet import blocks, printable
from .options import (
    FOLDER,
    NOTHING,
    as_from_here,
    check_rerank_options,
    folder_argument,
    index_option,
    is_known,
    json_option,
    k_option,
    known,
    only_answers,
    open_index,
    parse_citation,
    ray_option,
    rerank_depth_option,
    rerank_option,
    typed,
    where_option,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..retriever.inversion.facts import RetainedFacts
    from ..retriever.models.encoder import Kind
    from ..retriever.retriever import Retriever
    from ..retriever.search.query import Hit, Mode


class _Asking(click.Command):
    """Says how to ask for what looks like an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            hint = "A query that begins with - goes behind --, after all options"
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None


@click.command(cls=_Asking)
@click.argument("query")
@folder_argument
@index_option
@k_option
@click.option("--mode", type=click.Choice(["hybrid", "semantic", "lexical"]), default="hybrid", show_default=True)
@where_option
@rerank_option
@rerank_depth_option
@click.option("--rerank-seconds", metavar="S", type=float, help="Rerank for about this long, the best passages first.")
@click.option("--explain", is_flag=True, help="Show what each stage contributed.")
@click.option("--inverter", metavar="DIR", type=FOLDER, help="With --explain: also what vectors have kept and lost.")
@click.option("--model", metavar="NAME", help="Where the index's encoder is now, if it has moved.")
@ray_option
@json_option
def search(
    query: str,
    folder: Path | None,
    index: Path | None,
    k: int,
    mode: Mode,
    where: tuple[str, ...],
    rerank: str | None,
    rerank_depth: int,
    rerank_seconds: float | None,
    explain: bool,
    inverter: Path | None,
    model: str | None,
    ray: str | None,
    as_json: bool,
) -> int:
    """Find the passages that answer QUERY.

    Looks in FOLDER, or in the whole index found here or above. QUERY "-" is read from standard input. Paths are
    printed as they open from here; JSON has them as the index does, relative to the indexed folder. Exit 1 when nothing
    is found.

    With --rerank a cross-encoder reads the best passages again together with the query, and its order counts.

    \b
    binocle search "lifetime of a borrowed value" docs
    binocle search "invoice march" --where type=pdf --where 'modified>=2026-01-01' --json
    binocle search "how to install it" docs --rerank models/reranker --rerank-seconds 2
    """
    check_rerank_options(used=rerank is not None, by="--rerank")
    if query == "-":
        if sys.stdin is None:
            raise InputError("the query is to be read from standard input, but that is closed")
        query = sys.stdin.buffer.read().decode("utf-8", "replace")
    retriever = open_index(folder, index, model, ray)
    reading = _reading(inverter, retriever, explain=explain)
    with only_answers(ray):
        hits = retriever.search(
            query,
            k,
            mode=mode,
            where=[*where, *within(retriever, folder)],
            rerank=rerank,
            rerank_depth=rerank_depth,
            rerank_seconds=rerank_seconds,
        )
    if reading and not as_json:
        click.echo(f"query: {_said(reading(query.strip(), 'query'))}\n")
    _print_hits(hits, query, as_from_here(retriever), explain=explain, as_json=as_json, reading=reading)
    if mode != "lexical":
        _tell_cut(query, retriever)
    if not as_json:
        _tell_written(hits, retriever)
    if not hits:
        _tell_nothing(where, folder, retriever)
    return 0 if hits else NOTHING


@click.command()
@click.argument("place", metavar="FILE:LINE")
@folder_argument
@index_option
@k_option
@where_option
@json_option
def similar(place: str, folder: Path | None, index: Path | None, k: int, where: tuple[str, ...], as_json: bool) -> int:
    """Find passages like the one at FILE:LINE.

    FILE is a path as search prints it, or of the file itself. Exit 1 when nothing is found.

    \b
    binocle similar guide/install.md:40 docs
    """
    retriever = open_index(folder, index)
    path, line = parse_citation(retriever, place)
    hits = retriever.similar(path, line, k, where=[*where, *within(retriever, folder)])
    _print_hits(hits, "", as_from_here(retriever), explain=False, as_json=as_json)
    if not as_json:
        _tell_written(hits, retriever)
    if not hits:
        _tell_nothing(where, folder, retriever)
    return 0 if hits else NOTHING


@click.command()
@click.argument("place", metavar="FILE[:LINE[-LINE]]")
@folder_argument
@index_option
def show(place: str, folder: Path | None, index: Path | None) -> None:
    """Print the text read from a document.

    The whole of it, or the lines of a citation.

    \b
    binocle show report.pdf docs
    binocle show guide/install.md:40-60 docs
    """
    retriever = open_index(folder, index)
    match = re.fullmatch(r"(.+):([0-9]{1,99})(?:-([0-9]{1,99}))?", place, re.DOTALL)
    if match and not is_known(retriever, place):
        first = int(match[2])
        text = retriever.lines(known(retriever, match[1]), first, int(match[3] or first))
    else:
        text = retriever.text(known(retriever, place))
    if sys.stdout.isatty():
        text = "\n".join(map(printable, text.split("\n")))
    click.echo(text)


def _tell_cut(query: str, retriever: Retriever) -> None:
    """Say so where a query has more tokens than its vector is made of."""
    most = retriever.encoder.max_tokens
    if len(query) > most and (count := len(retriever.encoder.offsets([query])[0])) > most:
        click.echo(
            f"binocle: of the query's {count:,} tokens the encoder reads the first {most:,}; its words are all "
            "looked for in mode hybrid or lexical",
            err=True,
        )


def _print_hits(
    hits: list[Hit],
    query: str,
    place: Callable[[str], str],
    *,
    explain: bool,
    as_json: bool,
    reading: Callable[[str, Kind], RetainedFacts] | None = None,
) -> None:
    if as_json:
        for hit in hits:
            row = _as_json(hit, explain=explain)
            if reading:
                told = {"query": reading(query.strip(), "query"), "passage": reading(_embedded(hit), "document")}
                row["vector"] = {name: found.as_dict() for name, found in told.items()}
            click.echo(json.dumps(row, ensure_ascii=False))
        return
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    shown = blocks(hits, query, place=place, colour=colour, width=_width(), explain=explain)
    for hit, block in zip(hits, shown, strict=True):
        said = printable(_said(reading(_embedded(hit), "document"))) if reading else ""
        click.echo(f"{block.rstrip()}\n    {said}\n" if reading else block)


def _tell_written(hits: list[Hit], retriever: Retriever) -> None:
    """Say so where a line that was cited may no longer be there."""
    from ..retriever.documents.scan import written_since

    root = retriever.folder
    documents = list({hit.document for hit in hits if hit.source == "file"})
    if root is None or not documents or not root.is_dir():
        return
    columns = ["path", "size", "mtime_ns", "sha256"]
    rows = retriever.read(lambda snapshot: snapshot.documents_by_id(documents, columns))
    if written := len(written_since(root, rows.values())):
        which = "one of these files was" if written == 1 else f"{written:,} of these files were"
        again = typed("index", root, at=retriever.path)
        click.echo(f"binocle: {which} changed or removed after indexing: {again} brings the index up to date", err=True)


def _tell_nothing(where: tuple[str, ...], folder: Path | None, retriever: Retriever) -> None:
    """Why nothing was found, where that lies not in the query; on a terminal always something."""
    from ..retriever.store.filters import parse, unknown, unmet

    rows = [row for row in retriever.documents() if row["chunks"]]
    inside = parse(within(retriever, folder))
    below = [row for row in rows if inside is None or inside.passes(row)]
    if not rows:
        filling = typed("index", retriever.folder or Path("FOLDER"), at=retriever.path)
        said = f"the index at {retriever.path} holds no passages yet: {filling} fills it"
    elif not below:
        said = f"no document in {folder} has passages in the index"
    else:
        said = unknown(where, rows) or unmet(where, below) or "nothing found" * sys.stdout.isatty()
    if said:
        click.echo(f"binocle: {printable(said)}", err=True)


def _reading(
    inverter: Path | None, retriever: Retriever, *, explain: bool
) -> Callable[[str, Kind], RetainedFacts] | None:
    """What reads a text back from its vector, where that is asked for."""
    if inverter is None:
        return None
    if not explain:
        raise click.UsageError("--inverter goes with --explain")
    from functools import cache

    from ..retriever.inversion.facts import retained_facts
    from ..retriever.inversion.inverter import EmbeddingInverter

    loaded = EmbeddingInverter.load(inverter, encoder=retriever.encoder)
    return cache(lambda text, kind: retained_facts(text, loaded, kind=kind))


def _embedded(hit: Hit) -> str:
    """The text that a passage's vector was made of."""
    return "\n".join([" > ".join(hit.heading)] * bool(hit.heading) + [hit.text])


def _said(found: RetainedFacts) -> str:
    lost = f"; lost: {', '.join(found.lost)} (only its words find these)" if found.lost else ""
    kept = f"; kept: {', '.join(found.kept)}" if found.kept else ""
    return f"its vector still says: {', '.join(found.words) or 'nothing'}{kept}{lost}"


def _width() -> int:
    import shutil

    return max(40, min(shutil.get_terminal_size((100, 24)).columns, 120))


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
    "title",
    "metadata",
    "format",
    "source",
]


def _as_json(hit: Hit, *, explain: bool) -> dict[str, Any]:
    row = {name: getattr(hit, name) for name in _JSON_FIELDS}
    return row | ({"explanation": hit.explanation} if explain else {})
