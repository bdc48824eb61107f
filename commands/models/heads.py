"""`binocle train reader`: heads on encoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..options import FOLDER, json_option
from ..output import echo, echo_json
from ..progress_bar import ProgressBar

if TYPE_CHECKING:
    from pathlib import Path

    from ...training.heads.result import HeadResult


def _run_options(command: Any) -> Any:
    """Options of the training of every head."""
    for option in reversed(
        (
            click.option("--out", required=True, metavar="DIR", type=FOLDER, help="Where the trained model goes."),
            click.option("--base", metavar="MODEL", help="The encoder to start from. Default: all-MiniLM-L6-v2."),
            click.option("--epochs", type=float, default=2.0, show_default=True, help="Times through the data."),
            click.option("--steps", type=int, help="Steps, instead of epochs."),
            click.option("--minutes", type=float, help="Of training, instead of epochs."),
            click.option("--batch-size", type=int, default=16, show_default=True, help="Rows."),
            click.option("--learning-rate", "--lr", type=float, default=5e-5, show_default=True),
            click.option(
                "--held-out", type=float, default=0.05, show_default=True, help="Share of documents held out."
            ),
            click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
        )
    ):
        command = option(command)
    return command


@click.command()
@click.argument("data")
@_run_options
@click.option("--max-length", type=int, default=384, show_default=True, help="Tokens of question and passage.")
@click.option(
    "--unanswerable",
    type=float,
    default=0.3,
    show_default=True,
    help="Share of rows with a passage that does not answer.",
)
@json_option
def reader(data: str, out: Path, base: str | None, as_json: bool, **options: Any) -> None:
    """Train a reader, which marks the answer to a question in a passage.

    DATA is a .json file in the layout of SQuAD, or a .jsonl or .parquet file with columns question, context and
    answers. Interrupt it when you like: the same command goes on from its last checkpoint. Use it with 'binocle search
    --answer --reader DIR' and 'binocle answer'.

    \b
    binocle train reader train-v2.0.json --out my-reader
    """
    from ...training.heads.config import ReaderConfig
    from ...training.heads.train import train_reader

    _refuse_idle_epochs(options)
    with ProgressBar("reading the data", lines=10) as progress:
        result = train_reader(data, out, base=base, config=ReaderConfig(**options), progress=progress)
    _print_result(result, as_json=as_json)


def _refuse_idle_epochs(options: dict[str, Any]) -> None:
    context = click.get_current_context()
    is_given = context.get_parameter_source("epochs") is click.core.ParameterSource.COMMANDLINE
    if is_given and (options["steps"] or options["minutes"]):
        raise click.UsageError("--epochs has no effect here: --steps or --minutes says how long", context)


def _print_result(result: HeadResult, *, as_json: bool) -> None:
    if as_json:
        echo_json(result.as_dict())
        return
    loop = result.loop
    echo(f"{result.kind}: {loop.steps:,} steps in {loop.seconds:,.0f} s, {loop.texts_per_second:,.0f} texts/s")
    echo(f"{result.rows['training']:,} rows to learn from, {result.rows['held_out']:,} held out")
    for measure in result.measures:
        echo(
            f"{measure.name} {measure.value:.4f} (95 % {measure.low:.4f} to {measure.high:.4f}, {measure.rows:,} rows)"
        )
    echo(f"{result.folder}, fingerprint {result.fingerprint[:8]}")
