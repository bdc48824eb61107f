"""`binocle pretrain, fill`: masked language models, made and asked."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError
from .options import FOLDER, json_option

if TYPE_CHECKING:
    from pathlib import Path

    from ..training.pretraining.pretrain import PretrainingResult

_OBJECTIVES = ["mlm", "mlm+nsp", "mlm+sop"]
_SIZES = ["tiny", "mini", "small", "medium", "base"]


@click.command()
@click.argument("texts", nargs=-1, required=True, metavar="TEXTS...")
@click.option("--out", required=True, metavar="DIR", type=FOLDER, help="Where the model goes.")
@click.option("--base", metavar="MODEL", help="An encoder to go on from. Default: all-MiniLM-L6-v2.")
@click.option("--from-scratch", type=click.Choice(_SIZES), help="Begin a BERT of this size and its vocabulary instead.")
@click.option("--vocabulary", type=int, default=30_522, show_default=True, help="Tokens at most, from scratch.")
@click.option(
    "--objective",
    type=click.Choice(_OBJECTIVES),
    default="mlm",
    show_default=True,
    help="Masked words alone, or with next sentence or sentence order.",
)
@click.option("--whole-words", is_flag=True, help="Mask all pieces of a word together.")
@click.option("--column", metavar="NAME", help="The column of texts in a table.")
@click.option("--pack", is_flag=True, help="Fill rows across documents: for many short texts.")
@click.option("--max-length", type=int, help="Tokens of a row. Default: 128.")
@click.option("--epochs", type=float, default=3.0, show_default=True, help="Times through the texts.")
@click.option("--steps", type=int, help="Steps, instead of epochs.")
@click.option("--batch-size", type=int, default=32, show_default=True, help="Rows.")
@click.option("--accumulate", type=int, default=1, show_default=True, help="Batches to a step.")
@click.option("--learning-rate", "--lr", type=float, help="Default: 1e-4, for a new head or from scratch 5e-4.")
@click.option("--warmup", type=float, default=0.06, show_default=True, help="Share of the steps.")
@click.option("--weight-decay", type=float, default=0.01, show_default=True)
@click.option("--dropout", type=float, default=0.0, show_default=True, help="On CPU it costs a fifth of the speed.")
@click.option("--bf16/--fp32", default=None, help="Default: bf16 where the hardware computes in it.")
@click.option("--held-out", type=float, default=0.05, show_default=True, help="Share of documents held out.")
@click.option("--evaluations", type=int, default=8, show_default=True, help="Of the held-out documents.")
@click.option("--patience", type=int, default=3, show_default=True, help="Evaluations without a gain.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@json_option
def pretrain(
    texts: tuple[str, ...],
    out: Path,
    base: str | None,
    from_scratch: str | None,
    column: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Pretrain an encoder on TEXTS by hiding words of them.

    TEXTS are folders of documents, an index, .txt files with a text a line, or .jsonl, .csv, .tsv or .parquet files
    with a column of texts. The model is an ordinary transformers folder, which 'binocle train encoder --base' takes.
    Interrupt it when you like: the same command goes on from its last checkpoint.

    \b
    binocle pretrain docs --out my-bert
    binocle pretrain docs notes --from-scratch tiny --objective mlm+sop --whole-words --out my-tiny-bert
    """
    from ..training.pretraining.pretrain import PretrainingConfig
    from ..training.pretraining.pretrain import pretrain as train
    from .progress_bar import ProgressBar

    if "" in texts:
        raise InputError("'' is empty; '.' is the folder you are in")
    with ProgressBar("reading the data", lines=10) as progress:
        made = train(
            texts,
            out,
            base=base,
            from_scratch=from_scratch,
            column=column,
            config=PretrainingConfig(**options),
            progress=progress,
        )
    click.echo(json.dumps(made.as_dict()) if as_json else _summary(made))


def _summary(made: PretrainingResult) -> str:
    counts = made.counts
    lines = [
        f"{made.folder}: {made.objective} from {made.base}, {made.steps:,} steps"
        + (f", those after {made.resumed_from:,}" if made.resumed_from else "")
        + f" in {made.seconds:,.0f} s",
        f"{counts.documents:,} documents, {counts.held_out_documents:,} of them held out, {counts.tokens:,} tokens",
    ]
    if made.new_head:
        lines.append(f"{made.base} had no head for masked words: its new one is tied to its word embeddings")
    if made.before and made.after:
        low, high = made.after.interval
        lines.append(
            f"perplexity of held-out documents {made.before.value:,.1f} before, {made.after.value:,.1f} after "
            f"(95 % {low:,.1f} to {high:,.1f})"
        )
        if made.after.pair_accuracy is not None:
            lines.append(
                f"pairs told right {made.before.pair_accuracy:.1%} before, {made.after.pair_accuracy:.1%} after"
            )
    return "\n".join(lines)


@click.command()
@click.argument("text")
@click.option("--model", required=True, metavar="NAME", help="A model made by pretrain, or a fill-mask model's name.")
@click.option("-k", default=5, show_default=True, metavar="N", type=int, help="How many words.")
@json_option
def fill(text: str, model: str, k: int, as_json: bool) -> None:
    """Say what stands at each [MASK] in TEXT.

    The words that a masked language model finds likeliest, with their probabilities. TEXT "-" is read from standard
    input.

    \b
    binocle fill "The [MASK] sat down" --model models/rust-bert -k 3
    """
    from ..training.pretraining.fill_mask import Filler

    if text == "-":
        if sys.stdin is None:
            raise InputError("the text is to be read from standard input, but that is closed")
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    places = Filler.load(model).fill(text, k)
    for number, predictions in enumerate(places, 1):
        if as_json:
            found = [{"token": one.token, "probability": one.probability} for one in predictions]
            click.echo(json.dumps({"mask": number, "predictions": found}, ensure_ascii=False))
            continue
        if len(places) > 1:
            click.echo(f"mask {number}")
        for one in predictions:
            click.echo(f"{one.probability:7.2%}  {one.token}")
