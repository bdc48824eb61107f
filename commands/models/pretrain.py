"""`binocle pretrain, fill`: train a masked language model, and predict words with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...core.errors import InputError
from ...core.units import count_of
from ..options import EXIT_NEGATIVE, FOLDER, json_option, report_to_option, text_argument
from ..output import echo, echo_json
from . import recipes
from .idle_options import refuse_given_options, refuse_idle_column, refuse_idle_options

if TYPE_CHECKING:
    from pathlib import Path

    from ...training.pretraining.result import PretrainingResult

_OBJECTIVES = ["mlm", "mlm+nsp", "mlm+sop"]
_SIZES = ["tiny", "mini", "small", "medium", "base"]


@click.command()
@click.argument("texts", nargs=-1, required=True, metavar="TEXTS...")
@recipes.option
@click.option("--out", required=True, metavar="DIR", type=FOLDER, help="Folder to write the model to.")
@click.option("--base", metavar="MODEL", help="Encoder to start from. Default: all-MiniLM-L6-v2.")
@click.option("--from-scratch", type=click.Choice(_SIZES), help="Start a BERT of this size, with a new vocabulary.")
@click.option("--teacher", metavar="MODEL", help="Also learn the guesses and states of a larger model of 'pretrain'.")
@click.option("--layers", type=int, metavar="N", help="Start with N of the teacher's layers, evenly spread.")
@click.option("--vocabulary", type=int, default=30_522, show_default=True, help="Maximum size of the new vocabulary.")
@click.option(
    "--objective",
    type=click.Choice(_OBJECTIVES),
    default="mlm",
    show_default=True,
    help="Masked words alone, or with next sentence or sentence order.",
)
@click.option("--whole-words", is_flag=True, help="Mask all pieces of a word together.")
@click.option("--column", metavar="NAME", help="The column of texts in a table.")
@click.option("--pack", is_flag=True, help="Let rows continue across documents: for many short texts.")
@click.option("--max-length", type=int, help="Maximum tokens of a row. Default: 128.")
@click.option("--epochs", type=float, default=3.0, show_default=True, help="Passes over the texts.")
@click.option("--steps", type=int, help="Steps, instead of epochs.")
@click.option("--batch-size", type=int, default=32, show_default=True, help="Rows of a batch.")
@click.option("--accumulate", type=int, default=1, show_default=True, help="Batches of a step.")
@click.option("--learning-rate", "--lr", type=float, help="Default: 1e-4, for a new head or from scratch 5e-4.")
@click.option("--warmup", type=float, default=0.06, show_default=True, help="Share of the steps.")
@click.option("--weight-decay", type=float, default=0.01, show_default=True)
@click.option("--dropout", type=float, default=0.0, show_default=True, help="Costs a fifth of the speed on a CPU.")
@click.option("--bf16/--fp32", default=None, help="Default: bf16 if the hardware supports it.")
@click.option("--held-out", type=float, default=0.05, show_default=True, help="Share of documents to hold out.")
@click.option(
    "--evaluations", type=int, help="Evaluations on held-out documents. Default: up to 8, in a tenth of the time."
)
@click.option(
    "--patience", type=int, default=3, show_default=True, help="Evaluations in a row that are worse; 0: no limit."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@report_to_option
@json_option
def pretrain(
    texts: tuple[str, ...],
    out: Path,
    base: str | None,
    from_scratch: str | None,
    teacher: str | None,
    layers: int | None,
    column: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Pretrain an encoder on TEXTS by masking words.

    TEXTS are folders of documents, an index, .txt files with one text a line, or .jsonl, .csv, .tsv or .parquet files
    with a column of texts. The model is an ordinary transformers folder, which 'binocle train encoder --base' takes.
    After an interruption the same command resumes from its last checkpoint. Exit 1 when the model is worse than its
    base on held-out documents by more than chance.

    \b
    binocle pretrain docs --out my-bert
    binocle pretrain docs notes --from-scratch tiny --objective mlm+sop --whole-words --out my-tiny-bert
    binocle pretrain docs --teacher models/rust-bert --from-scratch tiny --out my-tiny-bert
    """
    from ...training.pretraining.config import PretrainingConfig
    from ...training.pretraining.pretrain import pretrain as run_pretraining
    from ..progress_bar import ProgressBar

    refuse_idle_options()
    if teacher is not None:
        refuse_given_options(["vocabulary"], "the tokens are the teacher's")
    if from_scratch is None:
        refuse_given_options(["vocabulary"], "only --from-scratch learns one")
    if "" in texts:
        raise InputError("'' is empty; '.' is the folder you are in")
    refuse_idle_column(texts)
    with ProgressBar("reading the data", lines=10) as progress, recipes.saved_with(out):
        result = run_pretraining(
            texts,
            out,
            base=base,
            from_scratch=from_scratch,
            teacher=teacher,
            layers=layers,
            column=column,
            config=PretrainingConfig(**options),
            progress=progress,
        )
    if as_json:
        echo_json(result.as_dict())
    else:
        echo(_summary(result))
    return EXIT_NEGATIVE if result.is_worse else 0


def _summary(result: PretrainingResult) -> str:
    counts = result.counts
    documents = count_of(counts.documents, "document")
    lines = [
        f"{result.folder}: {result.objective} from {result.base}, {count_of(result.steps, 'step')}"
        + (f", resumed after {result.resumed_from:,}" if result.resumed_from else "")
        + f" in {result.seconds:,.0f} s",
        f"{documents}, {counts.held_out_documents:,} of them held out, {count_of(counts.tokens, 'token')}",
    ]
    if result.new_head:
        lines.append(f"{result.base} had no head for masked words: its new one is tied to its word embeddings")
    if result.before and result.after:
        low, high = result.after.interval
        lines.append(
            f"perplexity of held-out documents {result.before.value:,.1f} before, {result.after.value:,.1f} after "
            f"(95 % {low:,.1f} to {high:,.1f})"
        )
        if result.after.pair_accuracy is not None:
            lines.append(
                f"pairs told right {result.before.pair_accuracy:.1%} before, {result.after.pair_accuracy:.1%} after"
            )
    if result.notes:
        lines.append("; ".join(result.notes))
    return "\n".join(lines)


@click.command()
@click.argument("text")
@click.option("--model", required=True, metavar="NAME", help="A model of pretrain, or a fill-mask model of the hub.")
@click.option("-k", default=5, show_default=True, metavar="N", type=int, help="Number of words for each mask.")
@click.option("--in-turn", is_flag=True, help="Fill one mask after the other, the surest first.")
@json_option
def fill(text: str, model: str, k: int, in_turn: bool, as_json: bool) -> None:
    """Predict the word at each [MASK] in TEXT.

    Prints the likeliest words of a masked language model, with their probabilities. The TEXT "-" is read from standard
    input.

    \b
    binocle fill "The [MASK] sat down" --model models/rust-bert -k 3
    binocle fill "The [MASK] sat on the [MASK]" --model models/rust-bert --in-turn
    """
    from ...training.pretraining.fill_mask import Filler

    if in_turn:
        refuse_given_options(["k"], "--in-turn fills each mask with one word")
    text = text_argument(text)
    if in_turn:
        for filled in Filler.load(model).fill_in_turn(text):
            if as_json:
                echo_json({"mask": filled.mask, "token": filled.token, "probability": filled.probability})
            else:
                echo(f"mask {filled.mask}  {filled.probability:7.2%}  {filled.token}")
        return
    masks = Filler.load(model).fill(text, k)
    for number, predictions in enumerate(masks, 1):
        if as_json:
            rows = [{"token": guess.token, "probability": guess.probability} for guess in predictions]
            echo_json({"mask": number, "predictions": rows})
            continue
        if len(masks) > 1:
            echo(f"mask {number}")
        for guess in predictions:
            echo(f"{guess.probability:7.2%}  {guess.token}")
