"""`binocle evaluate, compare`: quality, measured, and which differences are real."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError
from ..retriever.search.snippet import printable
from .options import FOLDER, PATH, check_rerank_options, json_option, print_step, rerank_depth_option, rerank_option

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..training.evaluation.comparison import Cell, Comparison
    from ..training.evaluation.result import JudgedRowsResult
    from ..training.evaluation.retrieval import Evaluation

_MODE = click.Choice(["hybrid", "semantic", "lexical"])
_per_query_option = click.option("--per-query", is_flag=True, help="With JSON: the values of each query or row too.")


@click.command()
@click.argument("data", type=PATH)
@click.option("--mode", type=_MODE, default="hybrid", show_default=True)
@click.option("--split", default="test", show_default=True, help="The judgements to use: qrels/SPLIT.tsv.")
@click.option("--queries", metavar="FILE", type=PATH, help="Queries of your own: {_id, text} or id, tab, text a line.")
@click.option("--qrels", metavar="FILE", type=PATH, help="Judgements of your own: query, document, grade a line.")
@click.option("--model", metavar="NAME", help="Encoder: a sentence-transformers folder or hub name.")
@click.option("--index", "index", metavar="DIR", type=FOLDER, help="Keep the index here, for the next mode.")
@rerank_option
@rerank_depth_option
@click.option("--run", "run_file", metavar="FILE", help="Write the rankings as a TREC run.")
@_per_query_option
@json_option
@click.pass_context
def evaluate(
    context: click.Context,
    /,
    data: Path,
    model: str | None,
    run_file: str | None,
    per_query: bool,
    as_json: bool,
    **of_collections: Any,
) -> None:
    """Measure quality on judged data, with 95 % intervals.

    DATA is a test collection in BEIR's layout (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv), any folder of documents
    with --queries and --qrels of your own, or a .jsonl, .csv, .tsv or .parquet file whose columns say what it holds:
    sentence1, sentence2 and score (similarity); text1, text2 and label (same or not); query, positive and negative
    (reranking).

    \b
    binocle evaluate scifact --mode semantic --run scifact.run
    binocle evaluate notes --queries questions.tsv --qrels answers.tsv
    binocle evaluate sts.tsv --model models/tuned
    """
    progress = print_step if sys.stderr.isatty() else None
    found: Evaluation | JudgedRowsResult
    if data.is_file() or (data.suffix and not data.exists()):
        _refuse(context, of_collections, data)
        from ..training.evaluation.judged_rows import evaluate_file

        found = evaluate_file(data, model=model, run_file=run_file)
        heading = f"{found.data}: {found.rows:,} rows, {found.kind}, {printable(found.model)}"
        ending = f"scored in {found.seconds:.1f} s"
    else:
        check_rerank_options(used=of_collections["rerank"] is not None, by="--rerank")
        from ..training.evaluation.retrieval import evaluate as measure

        found = measure(data, model=model, run_file=run_file, progress=progress, **of_collections)
        heading = (
            f"{found.collection} {found.split}: {found.queries:,} queries, {found.documents:,} documents, {found.mode}"
            + (f", reranked by {found.reranker}" if found.reranker else "")
        )
        ending = f"indexed in {found.index_seconds:.1f} s, {found.query_milliseconds:.1f} ms a query"
    if as_json:
        click.echo(json.dumps(found.as_dict(per_query=per_query)))
        return
    click.echo(printable(heading))
    for line in _measures(found):
        click.echo(line)
    click.echo(ending)


def _refuse(context: click.Context, options: Mapping[str, Any], data: Path) -> None:
    """Options that a file of judged rows has no use for."""
    for name in options:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = name.replace("_", "-")
            raise InputError(f"--{option} is for collections of documents, but {data} is a file of judged rows")


def _measures(found: Evaluation | JudgedRowsResult) -> list[str]:
    at = getattr(found, "thresholds", {})
    lines = []
    for name, value in found.measures.items():
        low, high = found.intervals[name]
        where = f"  at {at[name]:.4f} and above" if name in at else ""
        lines.append(f"{name:<11} {value:.4f}  [{low:.4f}, {high:.4f}]{where}")
    return lines


@click.command()
@click.argument("contenders", metavar="CONTENDER...", nargs=-1, required=True)
@click.option(
    "--data", "-d", metavar="DATA", multiple=True, required=True, type=PATH, help="As for evaluate. Repeatable."
)
@click.option(
    "--mode", "modes", multiple=True, type=_MODE, help="Of models without @MODE. Default: semantic. Repeatable."
)
@click.option("--baseline", metavar="CONTENDER", help="What the others are compared to. Default: the first.")
@click.option(
    "--measure", "measures", metavar="NAME", multiple=True, help="Such as MAP. Default: the main one. Repeatable."
)
@click.option("--split", default="test", show_default=True, help="The judgements to use: qrels/SPLIT.tsv.")
@rerank_depth_option
@click.option("--indexes", metavar="DIR", type=FOLDER, help="Keep the indexes here, for the next comparison.")
@click.option("--out", metavar="DIR", type=FOLDER, help="Write the table, JSON, TREC runs and plots into this folder.")
@click.option(
    "--plots", type=click.Choice(["svg", "png", "none"]), default="svg", show_default=True, help="With --out."
)
@_per_query_option
@json_option
def compare(
    contenders: tuple[str, ...],
    data: tuple[Path, ...],
    modes: tuple[str, ...],
    baseline: str | None,
    measures: tuple[str, ...],
    split: str,
    rerank_depth: int,
    indexes: Path | None,
    out: Path | None,
    plots: str,
    per_query: bool,
    as_json: bool,
) -> None:
    """Set models or modes side by side and test differences.

    CONTENDER is MODEL, MODEL@MODE, MODEL@MODE+RERANKER, or 'lexical' for BM25 alone; MODE is semantic, lexical or
    hybrid. Every value has its 95 % interval, every difference to the baseline a p by Fisher's randomisation test,
    corrected where several contenders are compared.

    \b
    binocle compare models/base models/tuned --data sts.tsv --data scifact
    binocle compare models/tuned@hybrid models/tuned@semantic lexical --data scifact --out comparison --plots none
    """
    from ..training.evaluation.compare import compare as measure
    from ..training.evaluation.contenders import parse

    modes = modes or ("semantic",)
    check_rerank_options(used=any(one.reranker for one in parse(contenders, modes)), by="a contender MODEL+RERANKER")
    found = measure(
        contenders,
        data,
        modes=modes,
        baseline=baseline,
        measures=measures,
        split=split,
        rerank_depth=rerank_depth,
        indexes=indexes,
        out=out,
        picture=None if plots == "none" else plots,
        per_query=per_query,
        progress=print_step if sys.stderr.isatty() else None,
    )
    if as_json:
        click.echo(json.dumps(found.as_dict(per_query=per_query)))
    elif sys.stdout.isatty():
        _show(found)
    else:
        click.echo("\n".join(map(printable, found.text().splitlines())))


def _show(found: Comparison) -> None:
    """The comparison on a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    console.print(Text(found.title() + "\n"))
    for columns in found.blocks(console.width - 2):
        table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
        table.add_column()
        for column in columns:
            table.add_column(Text(f"{column.data}\n{column.measure}\n"), no_wrap=True)
        for name in found.contenders:
            label, same = found.label(name)
            cells = [_cell(found.cells[name, column], found.lines(name, column)) for column in columns]
            table.add_row(Text.assemble((label, "bold"), "\n", (same, "dim")), *cells)
        console.print(table, "")
    for line in found.statements():
        console.print(Text(line))
    console.print(Text(found.note(), "dim"))


def _cell(cell: Cell | None, lines: tuple[str, str]) -> Any:
    from rich.text import Text

    style = {"better": "green", "worse": "red"}.get(cell.verdict if cell else "", "dim")
    return Text.assemble(lines[0], "\n", (lines[1], style))
