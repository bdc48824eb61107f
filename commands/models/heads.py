"""`binocle train reader, classifier, tagger`, and `classify, tag`: heads on encoders."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.errors import InputError
from ...core.printable import printable
from ...core.units import count_of
from ..options import FOLDER, FloatRange, json_option, refuse_options, report_to_option
from ..output import echo, echo_json
from ..progress_bar import ProgressBar
from . import recipes
from .idle_options import refuse_given_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...training.heads.result import HeadResult


_TOGETHER = 1_000  # texts classified at a time
_SHOWN = 100  # characters of a text that are printed


def _run_options(command: Any) -> Any:
    """Options of the training of every head."""
    for option in reversed(
        (
            recipes.option,
            click.option("--out", required=True, metavar="DIR", type=FOLDER, help="Where the trained model goes."),
            click.option("--base", metavar="MODEL", help="The encoder to start from. Default: all-MiniLM-L6-v2."),
            click.option("--epochs", type=float, default=2.0, show_default=True, help="Times through the data."),
            click.option("--steps", type=int, help="Steps, instead of epochs."),
            click.option("--minutes", type=float, help="Minutes of training, instead of epochs."),
            click.option("--batch-size", type=int, default=16, show_default=True, help="Rows of a batch."),
            click.option(
                "--learning-rate",
                "--lr",
                type=float,
                help="Default: by the width of the base, 0.0002 for all-MiniLM-L6-v2, 0.00005 for 768 dimensions.",
            ),
            click.option("--layers", type=int, help="Keep the first N layers of the base: faster. Default: all."),
            click.option("--held-out", type=float, default=0.1, show_default=True, help="Share of documents held out."),
            click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
            report_to_option,
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
    default=0.15,
    show_default=True,
    help="Share of rows with a passage that does not answer.",
)
@click.option("--teacher", metavar="MODEL", help="A larger reader: the new one learns its probabilities too.")
@json_option
def reader(data: str, out: Path, base: str | None, teacher: str | None, as_json: bool, **options: Any) -> None:
    """Train a reader, which marks the answer to a question in a passage.

    DATA is a .json file in the layout of SQuAD, or a .jsonl or .parquet file with columns question, context and
    answers. Interrupt it when you like: the same command goes on from its last checkpoint. Use it with 'binocle search
    --answer --reader DIR' and 'binocle answer'.

    \b
    binocle train reader train-v2.0.json --out my-reader
    binocle train reader train-v2.0.json --teacher large-reader --epochs 10 --out my-reader
    """
    from ...training.heads.config import ReaderConfig
    from ...training.heads.train import train_reader

    _refuse_idle_epochs(options)
    with ProgressBar("reading the data", lines=10) as progress, recipes.saved_with(out):
        config = ReaderConfig(**options)
        result = train_reader(data, out, base=base, teacher=teacher, config=config, progress=progress)
    _print_result(result, as_json=as_json)


@click.command()
@click.argument("data")
@_run_options
@click.option("--max-length", type=int, default=256, show_default=True, help="Tokens of a text.")
@click.option("--fine-tune", is_flag=True, help="Train the whole encoder, and test whether that was worth it.")
@click.option("--contrastive", is_flag=True, help="Tune the encoder first, where classes have few rows.")
@click.option("--split", default="train", show_default=True, help="Which split of a data set.")
@click.option("--label", metavar="KEY", help="DATA is an index, and this key of its documents' metadata is the label.")
@click.option("--unlabelled", metavar="FILE", help="More texts, without labels: they help where classes have few rows.")
@json_option
def classifier(
    data: str,
    out: Path,
    base: str | None,
    split: str,
    label: str | None,
    unlabelled: str | None,
    fine_tune: bool,
    contrastive: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a classifier of texts.

    DATA has columns text (or sentence1 and sentence2) and label: a class, or a list of labels; or score, a number. A
    probe on the vectors of the base is fitted in seconds, without torch. With --contrastive the base is tuned first,
    on pairs of texts of one class. With --fine-tune the whole encoder is trained with its head. Use it with 'binocle
    classify'. With --label it learns from the passages of an index, which have vectors already. Documents without the
    key give texts without labels.

    \b
    binocle train classifier tickets.jsonl --out my-classifier
    binocle train classifier few.jsonl --contrastive --unlabelled tickets.jsonl --out my-classifier
    binocle train classifier ~/notes --label team --out my-classifier
    """
    from ...training.heads.config import ClassifierConfig
    from ...training.heads.train import train_classifier

    _refuse_idle_epochs(options)
    if label is not None or Path(data).is_file():
        refuse_given_options(["split"], f"{data} is {'an index' if label is not None else 'a file'} without splits")
    if not fine_tune:
        _refuse_without_steps()
    config = ClassifierConfig(fine_tune=fine_tune, contrastive=contrastive, **options)
    with ProgressBar("reading the data", lines=10) as progress, recipes.saved_with(out):
        result = train_classifier(
            data, out, base=base, config=config, split=split, label=label, unlabelled=unlabelled, progress=progress
        )
    _print_result(result, as_json=as_json)


def _refuse_without_steps() -> None:
    """Refuse options of steps for a probe, which takes none."""
    names = ("epochs", "steps", "minutes", "batch_size", "learning_rate", "layers", "max_length", "report_to")
    refuse_options(names, "goes with --fine-tune")


@click.command()
@click.argument("file", default="-")
@click.option("--model", required=True, metavar="MODEL", help="A trained classifier: its folder, or a name on the hub.")
@click.option(
    "--precision",
    metavar="P",
    type=FloatRange(0, 1, min_open=True, max_open=True),
    help="Leave out the class where this share would not be right, as measured on held-out rows.",
)
@json_option
def classify(file: str, model: str, precision: float | None, as_json: bool) -> None:
    """Classify the texts of FILE.

    FILE has one text a line, or is a .jsonl, .csv or .parquet file with a column text, or sentence1 and sentence2. The
    FILE "-", which is the default, is standard input. Prints the labels, their probability and the text.

    \b
    binocle classify tickets.txt --model my-classifier --precision 0.9
    """
    from ...retriever.models.heads.classifier import load_classifier

    loaded = load_classifier(model)
    stream = _texts(file)
    while texts := list(islice(stream, _TOGETHER)):
        for text, prediction in zip(texts, loaded.classify(texts, precision=precision), strict=True):
            if as_json:
                echo_json({"text": text, "labels": prediction.labels, "scores": prediction.scores})
                continue
            shown = text if isinstance(text, str) else " | ".join(text)
            labels = ", ".join(prediction.labels) or ("-" if loaded.settings.task != "number" else "")
            echo(f"{prediction.score:.3f}  {printable(labels)}  {printable(' '.join(shown.split())[:_SHOWN])}")


@click.command()
@click.argument("data")
@_run_options
@click.option("--max-length", type=int, default=256, show_default=True, help="Tokens of a window.")
@json_option
def tagger(data: str, out: Path, base: str | None, as_json: bool, **options: Any) -> None:
    """Train a tagger, which marks names in texts.

    DATA is a .conll file with a token and its BIO tag on each line, or a .jsonl file with columns tokens and tags, or
    text and entities. Use it with 'binocle tag'.

    \b
    binocle train tagger versions.jsonl --out my-tagger
    """
    from ...training.heads.config import HeadConfig
    from ...training.heads.train import train_tagger

    _refuse_idle_epochs(options)
    with ProgressBar("reading the data", lines=10) as progress, recipes.saved_with(out):
        result = train_tagger(data, out, base=base, config=HeadConfig(**options), progress=progress)
    _print_result(result, as_json=as_json)


@click.command()
@click.argument("file", default="-")
@click.option("--model", required=True, metavar="MODEL", help="A trained tagger: its folder, or a name on the hub.")
@click.option(
    "--precision",
    metavar="P",
    type=FloatRange(0, 1, min_open=True, max_open=True),
    help="Leave out doubtful names, so that this share of the others is right, as measured on held-out texts.",
)
@json_option
def tag(file: str, model: str, precision: float | None, as_json: bool) -> None:
    """Mark the names in the texts of FILE.

    FILE has one text a line, or is a .jsonl, .csv or .parquet file with a column text. The FILE "-", which is the
    default, is standard input. Prints for each name the number of its text and its first character, the probability
    that it is right, its label and the name.

    \b
    binocle tag tickets.txt --model my-tagger
    binocle tag tickets.txt --model my-tagger --precision 0.95
    """
    from ...retriever.models.heads.tagger import load_tagger

    loaded, stream, number = load_tagger(model), _texts(file), 0
    while texts := list(islice(stream, _TOGETHER)):
        for text, entities in zip(texts, loaded.tag(texts, precision=precision), strict=True):
            number += 1
            if as_json:
                names = ("label", "text", "start", "end", "probability")
                rows = [{name: getattr(entity, name) for name in names} for entity in entities]
                echo_json({"text": text, "entities": rows})
                continue
            for entity in entities:
                location = f"{number}:{entity.start}"
                name = printable(" ".join(entity.text.split()))
                echo(f"{location}  {entity.probability:.3f}  {printable(entity.label)}  {name}")


def _texts(file: str) -> Iterator[Any]:
    """Yield the texts of a file, or its pairs of texts."""
    from ...training.data.columns import head_columns
    from ...training.data.sources import rows, text_lines

    if file == "-":
        if sys.stdin is None:
            raise InputError("the texts '-' are read from standard input, but that is closed")
        yield from (line for _, line in text_lines(sys.stdin.buffer, "standard input") if line.strip())
        return
    if Path(file).is_dir() and not (Path(file) / "_versions").is_dir():  # which a Lance table has
        raise InputError(
            f"{file} is a folder: expected a file with one text a line, or with a column text; 'binocle enrich --head' "
            "labels the documents of an indexed folder"
        )
    for location, row in rows(file):
        names = head_columns(row)
        pair = {"sentence1", "sentence2"} <= names.keys()
        texts = [row.get(names.get(name, name)) for name in (("sentence1", "sentence2") if pair else ("text",))]
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f"{location} has no text: expected a column text, or sentence1 and sentence2")
        yield tuple(texts) if pair else texts[0]


def _refuse_idle_epochs(options: dict[str, Any]) -> None:
    if options["steps"] or options["minutes"]:
        refuse_given_options(["epochs"], "--steps or --minutes says how long")


def _print_result(result: HeadResult, *, as_json: bool) -> None:
    if as_json:
        echo_json(result.as_dict())
        return
    from ...training.evaluation.significance import reach

    loop = result.loop
    steps = count_of(loop.steps, "step") if loop.steps else "a probe"
    echo(f"{result.kind}: {steps} in {loop.seconds:,.0f} s, {loop.texts_per_second:,.0f} texts/s")
    parts = f"{count_of(result.rows['training'], 'row')} to learn from, {result.rows['held_out']:,} held out"
    left_out = result.rows.get("left_out", 0)
    echo(parts + (f", {left_out:,} left out because they have the text of a held-out row" if left_out else ""))
    for measure in result.measures:
        interval = reach(measure.low, measure.high, measure.rows)
        echo(f"{measure.name} {measure.value:.4f} ({interval}, {count_of(measure.rows, 'row')})")
    echo(f"{result.folder}, fingerprint {result.fingerprint[:8]}")
    for note in result.notes:
        echo(note)
