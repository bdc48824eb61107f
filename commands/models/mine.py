"""`binocle mine` and `score`: find hard negatives for training data, and grade them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.errors import InputError
from ...core.units import count_of
from ..index_lookup import open_index
from ..options import INDEX, PATH, IndexOption, json_option, name_option
from ..output import echo, echo_json
from ..progress_bar import ProgressBar
from .idle_options import refuse_given_options, refuse_idle_column, refuse_idle_split

if TYPE_CHECKING:
    from ...training.mining.mining_report import MiningReport


@click.command()
@click.argument("data", metavar="DATA")
@click.option("--out", required=True, metavar="FILE", type=PATH, help="A .jsonl or .parquet file to write.")
@click.option(
    "--split", default="train", show_default=True, help="Which qrels of a BEIR folder, or which split of a data set."
)
@click.option(
    "--corpus", metavar="TEXTS", help="A BEIR folder or a file with a column of texts to take negatives from."
)
@click.option("--column", metavar="NAME", help="The column of texts in --corpus.")
@name_option
@click.option(
    "--index", "index", cls=IndexOption, metavar="DIR", type=INDEX, help="An index: its passages serve as negatives."
)
@click.option("--model", metavar="NAME", help="Encoder: a sentence-transformers folder or hub name.")
@click.option(
    "--mode",
    type=click.Choice(["semantic", "hybrid"]),
    default="semantic",
    show_default=True,
    help="The search that ranks candidates.",
)
@click.option("--negatives", type=int, default=5, show_default=True, metavar="N", help="Negatives for each query.")
@click.option("--depth", type=int, default=100, show_default=True, metavar="N", help="Candidates for each query.")
@click.option("--skip-top", type=int, default=0, show_default=True, metavar="N", help="Best candidates to skip.")
@click.option("--margin", type=float, metavar="X", help="Minimum distance of a negative's score below the positive's.")
@click.option(
    "--relative-margin", type=float, metavar="X", help="The same distance, as a share of the positive's score."
)
@click.option("--max-score", type=float, metavar="X", help="Maximum score of a negative.")
@click.option("--min-score", type=float, metavar="X", help="Minimum score of a negative.")
@click.option("--judge", metavar="NAME", help="A cross-encoder that must score a negative below the positive.")
@click.option(
    "--judge-margin",
    type=float,
    default=0.0,
    show_default=True,
    metavar="X",
    help="Minimum distance below the positive by --judge.",
)
@click.option(
    "--strategy",
    type=click.Choice(["top", "random"]),
    default="top",
    show_default=True,
    help="The best of the remaining candidates, or random ones.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The seed of --strategy random.")
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
    data set. Negatives are texts that the model ranks high for a query although they do not answer it. They come from
    the positives, unless you name a corpus or an index. A relative margin of 0.05 drops most answers that nobody
    marked.

    \b
    binocle mine scifact --out mined.jsonl --negatives 1
    binocle mine pairs.jsonl --index docs --mode hybrid --out mined.parquet --format list --scores
    """
    from ...training.mining.mine import mine as run_mining

    if corpus is not None and index is not None:
        raise InputError("negatives come from a corpus or from an index: give --corpus or --index, not both")
    if judge is None:
        refuse_given_options(["judge_margin"], "it goes with --judge")
    if settings["strategy"] != "random":
        refuse_given_options(["seed"], "it goes with --strategy random")
    refuse_idle_split(data)
    if corpus is None:
        refuse_given_options(["column"], "it goes with --corpus")
    elif Path(corpus).name == "corpus.jsonl":
        refuse_given_options(["column"], f"{corpus} belongs to a test collection")
    else:
        refuse_idle_column([corpus])
    source = open_index(None, index) if index else corpus
    with ProgressBar(lines=15, silence=15) as progress:
        report = run_mining(data, out, corpus=source, judge=_judge(judge), progress=progress, **settings)
    if as_json:
        echo_json(report.as_dict())
    else:
        echo(_summary(report, out, settings["negatives"]))


@click.command()
@click.argument("data", metavar="DATA")
@click.option("--out", required=True, metavar="FILE", type=PATH, help="A .jsonl or .parquet file to write.")
@click.option(
    "--model", "models", required=True, multiple=True, metavar="NAME", help="An encoder or a cross-encoder; repeatable."
)
@click.option(
    "--split", default="train", show_default=True, help="Which qrels of a BEIR folder, or which split of a data set."
)
@json_option
def score(data: str, out: Path, models: tuple[str, ...], split: str, as_json: bool) -> None:
    """Score mined rows by a teacher, to distil it.

    DATA has the columns query, positive and negatives, as 'binocle mine' writes them. The column scores is added, and
    'binocle train encoder' then learns the order of each list from it. Several models count alike.

    \b
    binocle score mined.jsonl --model models/reranker --out scored.jsonl
    """
    from ...training.encoders.teacher_scores import score as score_rows

    refuse_idle_split(data)
    with ProgressBar(lines=15, silence=15) as progress:
        report = score_rows(data, out, models=models, split=split, progress=progress)
    if as_json:
        echo_json(report.as_dict())
    else:
        echo(
            f"{out}: {count_of(report.rows, 'row')} of {count_of(report.scores, 'score')} by {', '.join(models)}, "
            f"in {report.seconds:,.1f} s"
        )
        echo(f"the positive scores highest in {report.agreement:.0%} of the rows")


def _judge(name: str | None) -> Any:
    if name is None:
        return None
    from ...retriever.models.load import load_reranker

    return load_reranker(name)


def _summary(report: MiningReport, out: Path, negatives: int) -> str:
    rows = f"{out}: {count_of(report.rows, 'row')}, {count_of(report.negatives, 'negative')}"
    queries = f"{count_of(report.queries, 'query')} from {count_of(report.documents, 'text')}"
    used = {"encoded": report.encoded_by, "searched": report.searched_by}
    device = "".join(f", {work} by {name}" for work, name in used.items() if name != "the CPU")
    lines = [f"{rows} for {queries}, in {sum(report.seconds.values()):,.1f} s{device}"]
    if report.dropped:
        counts = ", ".join(f"{rule} {count:,}" for rule, count in report.dropped.items())
        lines.append(f"dropped of {count_of(report.candidates, 'candidate')}: {counts}")
    if report.short:
        lines.append(f"fewer than {negatives} for {count_of(report.short, 'query')}, none for {report.none:,} of them")
    return "\n".join(lines)
