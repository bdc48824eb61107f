"""`binocle train encoder, reranker` and `distill`: train models on data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.units import count_of
from ..options import EXIT_NEGATIVE, FOLDER, json_option, report_to_option, split_names
from ..output import echo, echo_json
from ..progress_bar import ProgressBar
from . import recipes
from .heads import classifier, reader, tagger
from .idle_options import refuse_given_options, refuse_idle_options
from .invert import inverter

if TYPE_CHECKING:
    from ...training.encoders.result import TrainingResult


@click.group()
def train() -> None:
    """Train an encoder, or a model on top of one.

    DATA is a .jsonl, .csv, .tsv or .parquet file, a folder in BEIR's layout, a Lance table, or the name of a Hugging
    Face data set. Its columns say how to learn from it: query and positive, with or without negatives; sentence1 and
    sentence2 with a score, a label 0 or 1, or a class; text with a label; or text alone.

    \b
    binocle train encoder pairs.jsonl --out my-encoder
    binocle train reranker scifact --out my-reranker
    """


def _numbers(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[int, ...]:
    if value is None:
        return ()
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"expected numbers such as 256,128,64, not {value!r}") from None


_out = click.option("--out", required=True, metavar="DIR", type=FOLDER, help="Where the trained model goes.")
_split = click.option("--split", default="train", show_default=True, help="Which qrels, or which split of a data set.")


def _run_options(command: Any) -> Any:
    """Options of every training run."""
    for option in reversed(
        (
            recipes.option,
            click.option(
                "--objective", metavar="NAME", help="Training objective. Default: chosen from the data's columns."
            ),
            click.option("--epochs", type=float, default=1.0, show_default=True, help="Times through the data."),
            click.option("--steps", type=int, help="Steps, instead of epochs."),
            click.option("--accumulate", type=int, default=1, show_default=True, help="Batches to a step."),
            click.option("--warmup", type=float, default=0.1, show_default=True, help="Share of the steps."),
            click.option("--weight-decay", type=float, default=0.01, show_default=True),
            click.option("--dropout", type=float, default=0.0, show_default=True, help="On CPU it halves the speed."),
            click.option("--bf16/--fp32", default=None, help="Default: bf16 where the hardware computes in it."),
            click.option(
                "--held-out", type=float, default=0.05, show_default=True, help="Share of documents held out."
            ),
            click.option(
                "--evaluations",
                type=int,
                help="Evaluations on held-out rows. Default: up to 8, in a tenth of the time.",
            ),
            click.option(
                "--patience",
                type=int,
                default=3,
                show_default=True,
                help="Evaluations in a row that are worse; 0: no limit.",
            ),
            click.option(
                "--keep", type=float, default=0.0, show_default=True, help="Share of the base's weights kept."
            ),
            click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
            report_to_option,
        )
    ):
        command = option(command)
    return command


@train.command()
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@_out
@click.option("--base", metavar="MODEL", help="A sentence-transformers folder or any Hugging Face encoder.")
@click.option(
    "--sampler",
    type=click.Choice(["proportional", "round-robin"]),
    default="proportional",
    show_default=True,
    help="How to mix several data sets: all batches shuffled, or in turn until one ends.",
)
@click.option("--pooling", metavar="MODES", callback=split_names, help="cls, mean, max, or several such as cls,mean.")
@click.option(
    "--pooling-layers", metavar="NUMBERS", callback=_numbers, help="Pool layer 3, or the mean of layers 4,5,6: faster."
)
@click.option("--query-prompt", metavar="TEXT", help="Put before every query. Default: the base's.")
@click.option("--document-prompt", metavar="TEXT", help="Put before every document. Default: the base's.")
@click.option("--dev", "development", metavar="FILE", help="Held-out rows of your own.")
@click.option("--teacher", metavar="MODEL", help="A teacher: the student learns its vectors of the texts.")
@click.option("--guide", metavar="MODEL", help="Drops texts of a batch that it ranks above the positive.")
@click.option("--mine", "negatives", type=int, metavar="N", help="Mine N hard negatives for each pair first.")
@click.option(
    "--rounds", type=int, default=1, show_default=True, help="Rounds of mining, each with the encoder so far."
)
@click.option("--batch-size", type=int, default=32, show_default=True, help="Rows of a batch.")
@click.option("--learning-rate", "--lr", type=float, help="Default: 0.00002; 0.0002 with --lora.")
@click.option(
    "--max-length", type=int, help="Tokens of a text that are learned from. Default: all that the base reads."
)
@click.option(
    "--scale", type=float, default=20.0, show_default=True, help="Factor of cosines: the inverse of a temperature."
)
@click.option("--margin", type=float, help="Margin of contrastive and triplet objectives.")
@click.option(
    "--temperature", type=float, help="Temperature of a teacher's scores. Default: 1/scale for cosines, else 1."
)
@click.option("--mini-batch", type=int, default=32, show_default=True, help="Texts in memory, for cached-ranking.")
@click.option("--matryoshka", metavar="LENGTHS", callback=_numbers, help="Shorter vectors too, such as 256,128,64.")
@click.option("--lora", type=int, metavar="RANK", help="Train low-rank additions only.")
@click.option("--checkpointing", is_flag=True, help="Compute activations twice: less memory, more time.")
@_run_options
@_split
@json_option
def encoder(
    data: tuple[str, ...],
    out: Path,
    base: str | None,
    development: str | None,
    teacher: str | None,
    negatives: int | None,
    rounds: int,
    split: str,
    as_json: bool,
    **options: Any,
) -> int:
    """Train an encoder.

    Interrupt it when you like: the same command goes on from its last checkpoint. Exit 1 when the encoder is worse than
    its base on held-out rows by more than chance; it is written all the same.
    Several data sets are mixed batch by batch, each with its objective, as in DATA:OBJECTIVE. Rows of the first are
    held out and measured.

    \b
    binocle train encoder pairs.jsonl --out my-encoder
    binocle train encoder pairs.jsonl sts.tsv:cosent --sampler round-robin --out my-encoder
    binocle train encoder sts.tsv --pooling cls --objective cosine --epochs 4 --out my-encoder
    binocle train encoder scifact --mine 1 --rounds 2 --epochs 4 --out my-encoder
    """
    from ...training.encoders.config import EncoderConfig
    from ...training.encoders.mining_rounds import train_rounds
    from ...training.encoders.train import train_encoder

    sources = _sources(data)
    names = [source for source, _ in sources.values()]
    refuse_idle_options(next((name for name in names if not Path(name).is_file()), names[0]), development)
    if len(sources) == 1:
        refuse_given_options(["sampler"], "there is one data set")
        options["objective"] = sources[data[0]][1] or options["objective"]
    config = EncoderConfig(**options)
    if negatives is not None and (development or teacher or len(sources) > 1):
        raise click.UsageError("--mine takes one data set, and goes with neither --dev nor --teacher")
    if negatives is None and rounds != 1:
        raise click.UsageError("--rounds goes with --mine: give the number of negatives for each pair")
    with ProgressBar("reading the data", lines=10) as progress, recipes.saved_with(out):
        run: dict[str, Any] = {"base": base, "config": config, "split": split, "progress": progress}
        if negatives is not None:
            result = train_rounds(names[0], out, negatives=negatives, rounds=rounds, **run)
        else:
            rows = names[0] if len(sources) == 1 else _by_name(sources)
            result = train_encoder(rows, out, development=development, teacher=teacher, **run)
    return _print_result(result, as_json=as_json)


def _sources(data: tuple[str, ...]) -> dict[str, tuple[str, str | None]]:
    """Split each "DATA:OBJECTIVE". A name after the colon that is no objective belongs to a data set of the hub."""
    from ...training.encoders.objectives.objectives import OBJECTIVES

    _refuse_repeated(data)
    sources: dict[str, tuple[str, str | None]] = {}
    for name in data:
        source, _, objective = name.rpartition(":")
        sources[name] = (source, objective) if source and objective in OBJECTIVES else (name, None)
    return sources


def _refuse_repeated(data: tuple[str, ...]) -> None:
    for name in data:
        if data.count(name) > 1:
            raise click.UsageError(f"{name} is given twice")


def _by_name(sources: dict[str, tuple[str, str | None]]) -> dict[str, Any]:
    return {name: (source, objective) if objective else source for name, (source, objective) in sources.items()}


@train.command()
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@_out
@click.option("--base", metavar="MODEL", help="A reranker, a sentence-transformers folder or any Hugging Face encoder.")
@click.option("--index", metavar="DIR", type=FOLDER, help="An index: its hybrid search finds the negatives of pairs.")
@click.option("--encoder", metavar="MODEL", help="Encoder of an index that is made of the data.")
@click.option("--batch-size", type=int, default=8, show_default=True, help="Queries with their passages.")
@click.option("--learning-rate", "--lr", type=float, default=3e-5, show_default=True)
@click.option("--max-length", type=int, default=256, show_default=True, help="Tokens of query and passage.")
@click.option("--negatives", type=int, default=7, show_default=True, help="Negatives for each relevant passage.")
@click.option(
    "--depth", type=int, default=50, show_default=True, help="Results of the search that negatives are drawn from."
)
@click.option("--queries", type=int, help="Maximum of queries to learn from in each data set.")
@click.option("--layers", type=int, help="Keep the first N layers of the base: faster. Default: all.")
@_run_options
@_split
@json_option
def reranker(
    data: tuple[str, ...],
    out: Path,
    base: str | None,
    index: Path | None,
    encoder: str | None,
    split: str,
    as_json: bool,
    **options: Any,
) -> int:
    """Train a reranker.

    Negatives of pairs come from the hybrid search that it will rerank; use it with 'binocle search --rerank DIR'. DATA
    may also be a folder of documents that you have indexed: its documents give queries. Several data sets are learned
    together. Exit 1 when the reranker is worse than its base on held-out rows by more than chance; it is written all
    the same.

    \b
    binocle train reranker scifact --out my-reranker
    binocle train reranker pairs.jsonl docs --recipe general --out my-general-reranker
    """
    from ...training.rerankers.config import RerankerConfig
    from ...training.rerankers.train import train_reranker

    _refuse_repeated(data)
    refuse_idle_options(next((name for name in data if not Path(name).is_file()), data[0]))
    with ProgressBar("reading the data", lines=10) as progress, recipes.saved_with(out):
        result = train_reranker(
            data[0] if len(data) == 1 else dict(zip(data, data, strict=True)),
            out,
            base=base,
            config=RerankerConfig(**options),
            split=split,
            index=index,
            encoder=encoder,
            progress=progress,
        )
    return _print_result(result, as_json=as_json)


def _print_result(result: TrainingResult, *, as_json: bool) -> int:
    """Print the result; return the exit code."""
    from ...training.evaluation.significance import reach

    code = EXIT_NEGATIVE if result.is_worse else 0
    if os.environ.get("RANK", "0") != "0":  # of several processes, only one prints
        return code
    if as_json:
        echo_json(result.as_dict())
        return code
    echo(
        f"{result.objective}: {count_of(result.steps, 'step')} in {result.seconds:,.0f} s, "
        f"{result.texts_per_second:,.0f} texts/s"
    )
    echo(result.account)
    if result.after:
        was = f"{result.before.value:.4f} -> " if result.before else ""
        interval = reach(result.after.low, result.after.high, result.after.rows)
        rows = count_of(result.after.rows, "held-out row")
        echo(f"{result.after.name} {was}{result.after.value:.4f} ({interval}, {rows})")
    echo(f"{result.folder}, fingerprint {result.fingerprint[:8]}")
    if result.notes:
        echo("; ".join(result.notes))
    return code


for _command in (reader, classifier, tagger, inverter):
    train.add_command(_command)


@click.command()
@click.argument("model")
@click.argument("texts")
@_out
@click.option(
    "--layers", type=int, default=3, show_default=True, help="Layers of the student; 0 for a table of word vectors."
)
@click.option("--on", "evaluate_on", metavar="COLLECTION", type=FOLDER, help="A BEIR folder to measure both on.")
@click.option("--epochs", type=float, default=2.0, show_default=True)
@click.option("--learning-rate", "--lr", type=float, help="Default: 0.0001; 0.02 for a table.")
@click.option("--batch-size", type=int, default=64, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@json_option
def distill(
    model: str, texts: str, out: Path, layers: int, evaluate_on: Path | None, as_json: bool, **options: Any
) -> None:
    """Make a smaller, faster encoder that answers like MODEL.

    It learns on TEXTS: a BEIR folder, or a file with a column of texts.

    \b
    binocle distill sentence-transformers/all-MiniLM-L6-v2 pairs.jsonl --layers 0 --out small
    """
    from ...training.encoders.distill import distill, student_settings

    config = student_settings(layers, **{name: value for name, value in options.items() if value is not None})
    with ProgressBar("reading the data", lines=10) as progress:
        result = distill(
            model,
            out,
            texts=texts,
            layers=layers,
            evaluate_on=evaluate_on,
            config=config,
            progress=progress,
        )
    if as_json:
        echo_json(result.as_dict())
        return
    for name, (teacher, student) in result.measures.items():
        echo(f"{name:<22} {teacher:.4f} -> {student:.4f}")
    before, after = result.texts_per_second
    echo(f"{'texts/s':<22} {before:,.0f} -> {after:,.0f} ({after / before:.1f} times)")
