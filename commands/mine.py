"""`binocle mine`: hard negatives for training data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError
from .options import FOLDER, json_option, open_index
from .progress_bar import Counting

if TYPE_CHECKING:
    from ..training.mining.negatives import MiningReport


@click.command()
@click.argument("data", metavar="DATA")
@click.option(
    "--out", required=True, metavar="FILE", type=click.Path(path_type=Path), help="A .jsonl or .parquet file to write."
)
@click.option("--split", default="train", show_default=True, help="Of a BEIR folder (qrels/SPLIT.tsv) or a data set.")
@click.option(
    "--corpus", metavar="TEXTS", help="A BEIR folder or a file with a column of texts to take negatives from."
)
@click.option("--column", metavar="NAME", help="The column of texts in --corpus.")
@click.option("--index", "index", metavar="DIR", type=FOLDER, help="An index, to take its passages as negatives.")
@click.option("--model", metavar="NAME", help="Encoder: a sentence-transformers folder or hub name.")
@click.option(
    "--mode",
    type=click.Choice(["semantic", "hybrid"]),
    default="semantic",
    show_default=True,
    help="The search that ranks candidates.",
)
@click.option("--negatives", type=int, default=5, show_default=True, metavar="N", help="For each query.")
@click.option("--depth", type=int, default=100, show_default=True, metavar="N", help="Candidates looked at.")
@click.option("--skip-top", type=int, default=0, show_default=True, metavar="N", help="Best candidates passed over.")
@click.option("--margin", type=float, metavar="X", help="How far a negative scores below the positive, at least.")
@click.option("--relative-margin", type=float, metavar="X", help="The same as a share of the positive's score.")
@click.option("--max-score", type=float, metavar="X", help="What a negative scores at most.")
@click.option("--min-score", type=float, metavar="X", help="What a negative scores at least.")
@click.option("--judge", metavar="NAME", help="A cross-encoder that must score a negative below the positive.")
@click.option("--judge-margin", type=float, default=0.0, show_default=True, metavar="X", help="… by at least this.")
@click.option(
    "--strategy",
    type=click.Choice(["top", "random"]),
    default="top",
    show_default=True,
    help="Which of the candidates that are left.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of --strategy random.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["tuple", "list", "triplet"]),
    default="tuple",
    show_default=True,
    help="Columns negative_1 and so on, a list of negatives, or a row for each.",
)
@click.option("--scores", is_flag=True, help="Add the scores of the positive and the negatives, for distillation.")
@json_option
def mine(
    data: str,
    out: Path,
    corpus: str | None,
    index: Path | None,
    judge: str | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Find hard negatives for the pairs of DATA.

    DATA is a .jsonl, .csv, .tsv or .parquet file with the columns query and positive, a BEIR folder, or the name of a
    data set. Negatives are the texts that the model ranks highest for a query and that are no answer to it. They are
    taken from the positives, unless a corpus or an index is given. A relative margin of 0.05 keeps most of the answers
    out that nobody marked as such.

    \b
    binocle mine scifact --out mined.jsonl --negatives 1
    binocle mine pairs.jsonl --index docs --mode hybrid --out mined.parquet --format list --scores
    """
    from ..training.mining.mine import mine as find

    if corpus is not None and index is not None:
        raise InputError("negatives come from a corpus or from an index: give --corpus or --index, not both")
    places = open_index(index, None) if index else corpus
    with Counting() as progress:
        report = find(data, out, corpus=places, judge=_judge(judge), progress=progress, **settings)
    click.echo(json.dumps(report.as_dict()) if as_json else _summary(report, out, settings["negatives"]))


def _judge(name: str | None) -> Any:
    if name is None:
        return None
    from ..retriever.models.load import load_reranker

    return load_reranker(name)


def _summary(report: MiningReport, out: Path, wanted: int) -> str:
    made = f"{out}: {report.rows:,} row{'s' * (report.rows != 1)}, {report.negatives:,} negatives"
    asked = f"{report.queries:,} queries from {report.documents:,} texts"
    by = "" if report.searched_by == "the CPU" else f", searched by {report.searched_by}"
    lines = [f"{made} for {asked}, in {sum(report.seconds.values()):,.1f} s{by}"]
    if report.dropped:
        counts = ", ".join(f"{why} {count:,}" for why, count in report.dropped.items())
        lines.append(f"dropped of {report.candidates:,} candidates: {counts}")
    if report.short:
        lines.append(f"{report.short:,} queries have fewer than {wanted}, {report.none:,} of them none")
    return "\n".join(lines)
