"""`binocle evaluate, compare`: measure quality, and test which differences are real."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError
from ..core.printable import printable
from ..core.units import count_of
from .models.idle_options import refuse_given_options
from .options import (
    FOLDER,
    PATH,
    check_rerank_options,
    is_typed,
    json_option,
    rerank_depth_option,
    rerank_option,
)
from .output import echo, echo_json
from .progress_bar import ProgressBar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..training.evaluation.comparison.table import Cell, Comparison
    from ..training.evaluation.result import JudgedRowsResult, RetrievalResult

_MODE = click.Choice(["hybrid", "semantic", "lexical"])
_NO_JUDGEMENTS = "DATA has no judgements, so its queries are made from its documents, in a temporary index"
_per_query_option = click.option("--per-query", is_flag=True, help="With JSON: the values of each query or row too.")


@click.command()
@click.argument("data", type=PATH)
@click.option("--mode", type=_MODE, default="hybrid", show_default=True)
@click.option("--split", default="test", show_default=True, help="The judgements to use: qrels/SPLIT.tsv.")
@click.option("--queries", metavar="FILE", type=PATH, help="Queries of your own: {_id, text} or id, tab, text a line.")
@click.option(
    "--qrels",
    metavar="FILE",
    type=PATH,
    help="Judgements of your own: query, document, grade a line; or TREC's.",
)
@click.option("--model", metavar="NAME", help="Encoder, classifier, tagger or reader: a folder or hub name.")
@click.option("--index", "index", metavar="DIR", type=FOLDER, help="Keep the index here, for the next mode.")
@rerank_option
@rerank_depth_option
@click.option("--run", "run_file", metavar="FILE", help="Write the rankings as a TREC run.")
@_per_query_option
@json_option
def evaluate(
    data: Path,
    model: str | None,
    run_file: str | None,
    per_query: bool,
    as_json: bool,
    **of_collections: Any,
) -> None:
    """Measure quality on judged data, with 95 % intervals.

    DATA is a test collection in BEIR's layout (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv), any folder of documents
    with --queries and --qrels of your own, or a .jsonl, .csv, .tsv or .parquet file. Without judgements, queries are
    made from the documents of an indexed folder: titles, headings and sentences, each taken out of its document in a
    copy of up to 5,000 passages. They compare models and modes; people's questions differ. Columns of a file tell its
    kind:
    sentence1, sentence2 and score (similarity); text1, text2 and label (same or not); query, positive and negative
    (reranking). Rows of a head, which --model names: text and label (a classifier); text and entities, tokens and tags,
    or CoNLL's columns (a tagger); question, context and answers, or SQuAD's JSON (a reader).

    \b
    binocle evaluate scifact --mode semantic --run scifact.run
    binocle evaluate notes
    binocle evaluate notes --queries questions.tsv --qrels answers.tsv
    binocle evaluate sts.tsv --model models/tuned
    """
    result: RetrievalResult | JudgedRowsResult
    is_generated = False
    if data.is_file() or (data.suffix and not data.exists()):
        _refuse(of_collections, data)
        from ..training.evaluation.evaluate_file import evaluate_file

        result = evaluate_file(data, model=model, run_file=run_file)
    else:
        result, is_generated = _evaluate_collection(data, model, run_file, of_collections)
    if as_json:
        echo_json(result.as_dict(per_query=per_query))
        return
    for line in _lines(result):
        echo(line)
    if is_generated:
        echo("the queries are titles, headings and sentences of these documents; people's questions differ")


def _evaluate_collection(
    data: Path, model: str | None, run_file: str | None, options: dict[str, Any]
) -> tuple[RetrievalResult, bool]:
    """Evaluate a search of a collection. Return the result, and whether the queries were made from the documents."""
    check_rerank_options(used=options["rerank"] is not None, by="--rerank")
    if options["qrels"] is not None:
        refuse_given_options(["split"], "--qrels names the judgements")
    from ..training.evaluation.retrieval import evaluate as evaluate_collection

    encoder = None
    with ProgressBar() as progress, tempfile.TemporaryDirectory(prefix="binocle-") as temporary:
        if options["queries"] is None and options["qrels"] is None:
            data, encoder = _with_judgements(data, Path(temporary), options["split"])
        if encoder is not None:
            refuse_given_options(["split", "index"], _NO_JUDGEMENTS)
            model = model or encoder
            if not model:
                raise InputError("this index has no encoder, only vectors: name an encoder with --model")
        result = evaluate_collection(data, model=model, run_file=run_file, progress=progress, **options)
    return result, encoder is not None


def _with_judgements(data: Path, temporary: Path, split: str) -> tuple[Path, str | None]:
    """Return a test collection itself; for an indexed folder without judgements, build one from its documents.

    :returns: the collection, and the encoder of that index; None if no collection was built.
    """
    from ..retriever.documents.scan import INDEX_NAME, index_at
    from ..training.data.beir import is_collection

    index = None if is_collection(data) else index_at(data)
    if index is None:
        return data, None
    from ..retriever.retriever import Retriever
    from ..training.tuning import generated_collection

    name = (index.parent if index.name == INDEX_NAME else index).resolve().name
    folder = Path(tempfile.mkdtemp(dir=temporary)) / f"{name}-generated"
    with Retriever.open(index) as retriever:
        generated_collection.write(retriever.snapshot(), folder, split=split)
        return folder, retriever.encoder.name


def _refuse(options: Mapping[str, Any], data: Path) -> None:
    """:raises InputError: for an option that a file of judged rows cannot use."""
    for name in options:
        if is_typed(name):
            option = name.replace("_", "-")
            raise InputError(f"--{option} is for collections of documents, but {data} is a file of judged rows")


def _lines(result: RetrievalResult | JudgedRowsResult) -> list[str]:
    """Lay out a result: the data, a line for each measure, the time."""
    from ..training.evaluation.result import JudgedRowsResult
    from ..training.evaluation.significance import bounds

    heading, ending = _of_rows(result) if isinstance(result, JudgedRowsResult) else _of_collection(result)
    thresholds = getattr(result, "thresholds", {})
    lines, width = [heading], max(11, *map(len, result.measures))
    for name, value in result.measures.items():
        low, high = result.intervals[name]
        threshold = f"  at {thresholds[name]:.4f} and above" if name in thresholds else ""
        lines.append(f"{name:<{width}} {value:.4f}  [{bounds(value, low, high)}]{threshold}")
    return [*lines, ending]


def _of_rows(result: JudgedRowsResult) -> tuple[str, str]:
    return (
        f"{result.data}: {count_of(result.rows, 'row')}, {result.kind}, {result.model}",
        f"scored in {result.seconds:.1f} s",
    )


def _of_collection(result: RetrievalResult) -> tuple[str, str]:
    size = f"{count_of(result.queries, 'query')}, {count_of(result.documents, 'document')}"
    reranker = f", reranked by {result.reranker}" if result.reranker else ""
    return (
        f"{result.collection} {result.split}: {size}, {result.mode}{reranker}",
        f"indexed in {result.index_seconds:.1f} s, {result.query_milliseconds:.1f} ms a query",
    )


@click.command()
@click.argument("contenders", metavar="CONTENDER...", nargs=-1, required=True)
@click.option(
    "--data", "-d", metavar="DATA", multiple=True, required=True, type=PATH, help="As for evaluate. Repeatable."
)
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=_MODE,
    help="The mode of models without @MODE. Default: semantic. Repeatable.",
)
@click.option("--baseline", metavar="CONTENDER", help="Compare the others to this one. Default: the first.")
@click.option(
    "--measure",
    "measures",
    metavar="NAME",
    multiple=True,
    help="A measure, such as MAP. Default: the main one. Repeatable.",
)
@click.option("--split", default="test", show_default=True, help="The judgements to use: qrels/SPLIT.tsv.")
@rerank_depth_option
@click.option("--indexes", metavar="DIR", type=FOLDER, help="Keep the indexes here, for the next comparison.")
@click.option("--out", metavar="DIR", type=FOLDER, help="Write the table, JSON, TREC runs and plots into this folder.")
@click.option(
    "--plots",
    type=click.Choice(["svg", "png", "none"]),
    default="svg",
    show_default=True,
    help="Format of the plots of --out.",
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
    hybrid. MODEL@POOLING is an encoder with another pooling, such as cls or mean, and without training. For rows of a
    head, CONTENDER is a classifier, tagger or reader. Every value has its 95 % interval, every difference
    to the baseline a p by Fisher's randomisation test, corrected where several contenders are compared.

    \b
    binocle compare models/base models/tuned --data sts.tsv --data scifact
    binocle compare models/tuned@hybrid models/tuned@semantic lexical --data scifact --out comparison --plots none
    binocle compare models/tuned models/tuned@cls models/tuned@max --data sts.tsv
    binocle compare models/base models/tuned --data notes
    """
    from ..training.evaluation.comparison.compare import compare as run_comparison
    from ..training.evaluation.comparison.contenders import parse

    if out is None:
        refuse_given_options(["plots"], "it goes with --out")
    if all(path.is_file() for path in data):
        refuse_given_options(["modes", "split", "indexes"], "the data are files of judged rows")
    modes = modes or ("semantic",)
    has_reranker = any(contender.reranker for contender in parse(contenders, modes))
    check_rerank_options(used=has_reranker, by="a contender MODEL+RERANKER")
    with ProgressBar() as progress, tempfile.TemporaryDirectory(prefix="binocle-") as temporary:
        collections = [_with_judgements(path, Path(temporary), split) for path in data]
        if any(encoder is not None for _, encoder in collections):
            refuse_given_options(["indexes"], _NO_JUDGEMENTS)
        comparison = run_comparison(
            contenders,
            [path for path, _ in collections],
            modes=modes,
            baseline=baseline,
            measures=measures,
            split=split,
            rerank_depth=rerank_depth,
            indexes=indexes,
            out=out,
            picture=None if plots == "none" else plots,
            per_query=per_query,
            progress=progress,
        )
    if as_json:
        echo_json(comparison.as_dict(per_query=per_query))
    elif sys.stdout.isatty():
        _show(comparison)
    else:
        echo(comparison.text().removesuffix("\n"))


def _show(comparison: Comparison) -> None:
    """Print the comparison on a terminal, with colours."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    console.print(Text(printable(comparison.title()) + "\n"))
    for columns in comparison.blocks(console.width - 2):
        table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
        table.add_column()
        for column in columns:
            table.add_column(Text(f"{printable(column.data)}\n{printable(column.measure)}\n"), no_wrap=True)
        for name in comparison.contenders:
            label, same = comparison.label(name)
            cells = [_cell(comparison.cells[name, column], comparison.lines(name, column)) for column in columns]
            table.add_row(Text.assemble((printable(label), "bold"), "\n", (printable(same), "dim")), *cells)
        console.print(table, "")
    for line in comparison.statements():
        console.print(Text(printable(line)))
    console.print(Text(printable(comparison.note()), "dim"))


def _cell(cell: Cell | None, lines: tuple[str, str]) -> Any:
    from rich.text import Text

    style = {"better": "green", "worse": "red"}.get(cell.verdict if cell else "", "dim")
    return Text.assemble(lines[0], "\n", (lines[1], style))
