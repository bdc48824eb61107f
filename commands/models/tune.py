"""`binocle tune`: fit the encoder of an index to its documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...core.units import count_of
from ..index_lookup import command_hint, open_index
from ..options import EXIT_NEGATIVE, FOLDER, folder_argument, index_option, json_option, split_names, wait_option
from ..output import echo, echo_json
from ..progress_bar import ProgressBar
from .idle_options import refuse_given_options

if TYPE_CHECKING:
    from pathlib import Path

    from ...training.tuning.tune import TuningResult


@click.command()
@folder_argument
@index_option
@click.option("--out", metavar="DIR", type=FOLDER, help="Where the encoder goes. Default: encoders/ in the index.")
@click.option(
    "--teacher",
    "teachers",
    multiple=True,
    default=("hybrid",),
    show_default=True,
    metavar="NAME",
    help="hybrid, or a model. Repeat it for a mixture.",
)
@click.option(
    "--queries", "log", metavar="LOG", help="A file of real queries without labels. 100 or more replace generated ones."
)
@click.option(
    "--kinds", metavar="NAMES", callback=split_names, help="Kinds of generated queries, such as title,claim,next."
)
@click.option("--pairs", type=int, help="Generated queries to learn from, at most. Default: 4,000; 10,000 with --full.")
@click.option(
    "--adapter/--full",
    default=True,
    show_default=True,
    help="Fit a linear map of the query vectors, or all weights of the encoder.",
)
@click.option("--steps", type=int, default=60, show_default=True, help="Steps of --full, with 160 queries each.")
@click.option("--publish/--no-publish", default=True, show_default=True, help="Change the index if it gains.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@wait_option
@json_option
def tune(
    folder: Path | None,
    index: Path | None,
    out: Path | None,
    steps: int,
    publish: bool,
    wait: float,
    as_json: bool,
    **options: Any,
) -> int:
    """Fit an index's encoder to its documents, without labels.

    Queries are made from the documents' own titles, sections, links, sentences and terms, or come from a log if you
    have one. A linear map of the query vectors learns the ranking of a teacher, by default hybrid search, if that ranks
    better. No passage is embedded anew. With --full all weights of the encoder learn it.
    The index changes only if held-out queries gain significantly: queries from other documents, or a part of the log.
    'binocle rollback' undoes the change. Exit 1 when nothing changed.

    \b
    binocle tune ~/notes
    binocle tune docs --queries queries.txt
    binocle tune docs --teacher hybrid --teacher my-reranker
    binocle tune docs --full
    binocle tune docs --no-publish --out tuned
    """
    from ...training.tuning.queries.query_kinds import DEFAULT_KINDS
    from ...training.tuning.tune import tune
    from ...training.tuning.tuning_config import DistillationConfig, TuningConfig

    if options["adapter"]:
        refuse_given_options(["steps"], "it goes with --full")
    options["kinds"] = options["kinds"] or DEFAULT_KINDS
    recipe = TuningConfig(learning=DistillationConfig(steps=steps), **options)
    retriever = open_index(folder, index, wait=wait)
    with ProgressBar("reading the data", lines=10) as progress:
        result = tune(retriever, out=out, recipe=recipe, publish=publish, progress=progress)
    if as_json:
        echo_json(result.as_dict())
    else:
        _print_tuning(result)
    return 0 if result.published or (result.verdict and not publish) else EXIT_NEGATIVE


def _print_tuning(result: TuningResult) -> None:
    teaching = result.teaching
    if result.verdict is None:
        sentence = teaching.difference.sentence("nDCG@10 of the teacher")
        echo(f"{sentence} than the encoder ({teaching.before:.4f}) on queries from held-out documents")
        echo("nothing was learned; the index is unchanged: try another --teacher")
        return
    for mode, comparison in result.verdict.modes.items():
        echo(
            f"{mode} nDCG@10 of {count_of(result.verdict.queries, 'query')} from held-out documents: "
            f"{comparison.before:.4f} -> {comparison.after:.4f}"
        )
        echo(comparison.difference.sentence("  gain"))
        for kind, by in comparison.kinds.items():
            echo(f"  {kind:<10} {by:+.4f}")
    if log := result.verdict.log:
        echo(
            f"agreement with the teacher on {count_of(log.queries, 'other query')} of the log, nDCG@10: "
            f"{log.before:.4f} -> {log.after:.4f}"
        )
        echo(log.difference.sentence("  gain"))
    done = f"the index uses it: {command_hint('rollback')} undoes it" if result.published else "the index is unchanged"
    echo(f"{result.model}; {done}")
