"""`binocle invert`, `binocle train inverter`: recover text from an encoder's output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ...core.errors import InputError
from ...core.units import count_of
from ..documents import parse_citation
from ..index_lookup import open_index
from ..options import (
    EXIT_NEGATIVE,
    FOLDER,
    PATH,
    folder_argument,
    grouped,
    index_option,
    json_option,
    report_to_option,
)
from ..output import echo, echo_json
from ..progress_bar import ProgressBar
from . import recipes
from .idle_options import refuse_given_options, refuse_idle_column

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ...retriever.inversion.inverter import EmbeddingInverter, InvertedVector
    from ...retriever.inversion.state_inverter import StateReading
    from ...training.inversion.result import TrainedInverter

_ROWS = 10  # of a file of vectors, by default


class _FileOptions(NamedTuple):
    """Vectors of a file."""

    vectors: Path | None
    column: str | None
    first: int
    rows: int


class _PassageOptions(NamedTuple):
    """The stored vector of a passage."""

    passage: str | None
    folder: Path | None
    index: Path | None  # type: ignore[assignment]  # the name of the option; nobody calls the method of a tuple


@click.command()
@click.argument("text", required=False)
@folder_argument
@click.option(
    "--inverter",
    required=True,
    metavar="DIR",
    type=FOLDER,
    help="Folder of a trained inverter.",
)
@click.option(
    "--vectors", metavar="FILE", type=PATH, help="Invert vectors of a .npy or .parquet file or a Lance table."
)
@click.option("--column", metavar="NAME", help="Column of vectors in a table. Default: vector or embedding.")
@click.option("--row", "first", type=int, default=0, show_default=True, help="First vector to invert, from 0.")
@click.option("--rows", type=int, default=_ROWS, show_default=True, help="Maximum number of vectors to invert.")
@click.option("--passage", metavar="FILE:LINE", help="Invert the stored vector of an index's passage.")
@index_option
@click.option("--seconds", type=float, default=10.0, show_default=True, help="Seconds of correction for each vector.")
@json_option
@grouped(of_file=_FileOptions, of_index=_PassageOptions)
def invert(
    text: str | None,
    inverter: Path,
    of_file: _FileOptions,
    of_index: _PassageOptions,
    seconds: float,
    as_json: bool,
) -> int:
    """Recover text from vectors or hidden states.

    A TEXT is encoded and recovered, to show how much the encoder retains of it. --vectors inverts a file of vectors,
    --passage the stored vector of a passage. Prints "no text recovered" for a vector that no text comes near; exit 1 if
    that is so for all.

    \b
    binocle invert "The council met on 12 May in Geneva." --inverter inverter
    binocle invert --vectors stolen.npy --inverter inverter --json
    binocle invert --passage guide/install.md:40 docs --inverter inverter
    """
    from ...retriever.inversion.inverter import EmbeddingInverter, load

    if text is not None and of_index.passage and of_index.folder is None:
        folder, text = FOLDER.convert(text, None, None), None  # a single argument is the index's folder
        of_index = of_index._replace(folder=folder)
    _check(text, of_file, of_index, seconds)
    loaded = load(inverter)
    if not isinstance(loaded, EmbeddingInverter):
        if text is None:
            raise InputError(f"{inverter} inverts hidden states, which are not stored: give it a text")
        refuse_given_options(["seconds"], "only vectors are corrected")
        return _print_reading(loaded.read(text), as_json=as_json)
    inputs, true, fingerprint = _vectors(loaded, text, of_file, of_index)
    loaded.check(inputs, fingerprint)
    if of_index.passage is not None and true is not None:
        _warn_of_length(loaded, true)
    recovered = False
    for row in range(len(inputs)):
        result = loaded.invert(inputs[row : row + 1], seconds=seconds, fingerprint=fingerprint)[0]
        recovered |= result.recovered
        _print_inverted(result, of_file.first + row if of_file.vectors else None, true, as_json=as_json)
        if true is None and result.recovered and not result.usual:
            _warn_of_cosine(loaded)
    return 0 if recovered else EXIT_NEGATIVE


def _check(text: str | None, of_file: _FileOptions, of_index: _PassageOptions, seconds: float) -> None:
    """Check the options against each other."""
    if sum(source is not None for source in (text, of_file.vectors, of_index.passage)) != 1:
        raise click.UsageError("give one of TEXT, --vectors and --passage")
    if not seconds >= 0:
        raise InputError(f"seconds is a number from 0, not {seconds}")
    if of_file.rows < 1:
        raise InputError(f"rows is how many vectors to invert, a number from 1, not {of_file.rows}")
    if of_file.vectors is None:
        refuse_given_options(["column", "first", "rows"], "it goes with --vectors")
    if of_index.passage is None:
        refuse_given_options(["folder", "index"], "it goes with --passage")


def _vectors(
    inverter: EmbeddingInverter, text: str | None, of_file: _FileOptions, of_index: _PassageOptions
) -> tuple[NDArray[Any], str | None, str | None]:
    """The vectors to invert; also their text and their encoder's fingerprint, if known."""
    if text is not None:
        return inverter.encoder.encode([text]), text, inverter.encoder.fingerprint
    if of_file.vectors is not None:
        from ...retriever.inversion.vector_files import read_vectors

        vectors = read_vectors(of_file.vectors, column=of_file.column, first=of_file.first, limit=of_file.rows)
        return vectors, None, None
    assert of_index.passage is not None
    from ...retriever.store.documents import stored_vector

    retriever = open_index(of_index.folder, of_index.index)
    snapshot = retriever.snapshot()
    vector, true = stored_vector(snapshot, *parse_citation(retriever, of_index.passage))
    return vector[None], true, snapshot.head.encoder.document_fingerprint


def _warn_of_length(inverter: EmbeddingInverter, true: str) -> None:
    """Say that a passage is longer than the texts that the inverter learned."""
    tokens, longest = len(inverter.tokens([true])[0]), inverter.info.decoder["longest"]
    if tokens > longest:
        echo(
            f"the passage has {tokens} tokens, but the inverter learned at most {longest}, and reads too little: "
            "'binocle train inverter --index' learns the length of an index's passages",
            err=True,
        )


def _warn_of_cosine(inverter: EmbeddingInverter) -> None:
    """Say that a vector is further from its recovered text than vectors of the learned lengths are."""
    longest = inverter.info.decoder["longest"]
    echo(
        f"95 % of texts of at most {longest} tokens come nearer than this: the vector's text is probably longer, or "
        "the vector has a defence",
        err=True,
    )


def _print_inverted(result: InvertedVector, number: int | None, true: str | None, *, as_json: bool) -> None:
    if as_json:
        known = {name: value for name, value in (("row", number), ("true", true)) if value is not None}
        echo_json(known | result.as_dict())
        return
    if number is not None:
        echo(f"row {number}")
    if not result.recovered:
        words = ", but words:" if result.tokens else ""
        echo(f"no text recovered (the nearest has a cosine of {result.cosine:.3f}){words}")
    else:
        echo(f"{result.text}\n  cosine {result.cosine:.3f}")
    likeliest: dict[str, float] = {}
    for guess in result.tokens:  # a repeated token is less likely each time
        likeliest.setdefault(guess.token, guess.probability)
    if likeliest:
        echo("  " + "  ".join(f"{token} {likely:.2f}" for token, likely in likeliest.items()))


def _print_reading(reading: StateReading, *, as_json: bool) -> int:
    if as_json:
        echo_json(reading.as_dict())
        return 0 if reading.tokens else EXIT_NEGATIVE
    for token, guess in zip(reading.tokens, reading.named, strict=True):
        mark = "" if token == guess.token else f"  (was {token})"
        echo(f"{guess.token:<20} {guess.probability:.2f}{mark}")
    if not reading.tokens:
        echo("no tokens to recover: the text has none")
        return EXIT_NEGATIVE
    echo(f"{reading.accuracy:.1%} of {len(reading.tokens)} tokens recovered")
    return 0


@click.command()
@click.argument("texts", nargs=-1, metavar="TEXTS...")
@recipes.option
@click.option("--out", required=True, metavar="DIR", type=FOLDER, help="Folder to write the inverter to.")
@click.option("--encoder", metavar="MODEL", help="Encoder to invert. Default: the index's, or all-MiniLM-L6-v2.")
@click.option("--index", metavar="DIR", type=FOLDER, help="Learn from an index's documents.")
@click.option(
    "--from",
    "kind",
    type=click.Choice(["embedding", "hidden"]),
    default="embedding",
    show_default=True,
    help="What to invert: the vector of a text, or its hidden states.",
)
@click.option(
    "--decoder",
    type=click.Choice(["linear", "lstm", "transformer"]),
    default="transformer",
    show_default=True,
    help="Kind of decoder of hidden states.",
)
@click.option("--layer", type=int, help="Layer of the hidden states. Default: the last.")
@click.option("--layers", type=int, help="Layers of an LSTM or a Transformer. Default: 1 and 4.")
@click.option("--bidirectional/--forward", default=True, show_default=True, help="The reading direction of an LSTM.")
@click.option("--masked", type=float, default=0.0, show_default=True, help="Share of the states to hide.")
@click.option("--column", metavar="NAME", help="The column of texts in a table.")
@click.option(
    "--max-length", type=int, help="Tokens of a text. Default: an index's passages, else 32; 126 for hidden states."
)
@click.option(
    "--texts",
    "text_limit",
    type=int,
    default=200_000,
    show_default=True,
    help="Maximum number of texts.",
)
@click.option("--minutes", type=float, default=30.0, show_default=True, help="Minutes of training.")
@click.option("--steps", type=int, help="Steps, instead of minutes.")
@click.option("--batch-size", type=int, help="Texts of a batch. Default: 128 for embeddings, 32 for hidden states.")
@click.option("--learning-rate", "--lr", type=float, help="Default: 5e-4 for embeddings and a Transformer, else 1e-3.")
@click.option("--bf16/--fp32", default=None, help="Default: bf16 if the hardware supports it.")
@click.option("--held-out", type=float, default=0.02, show_default=True, help="Share of documents to hold out.")
@click.option("--evaluations", type=int, default=4, show_default=True, help="Checkpoints during the run.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@report_to_option
@json_option
def inverter(
    texts: tuple[str, ...],
    out: Path,
    encoder: str | None,
    index: Path | None,
    column: str | None,
    text_limit: int,
    as_json: bool,
    kind: str,
    **options: Any,
) -> None:
    """Train an inverter of an encoder.

    TEXTS are folders, files or an index, as for 'binocle pretrain'. After an interruption the same command resumes from
    its last checkpoint.

    \b
    binocle train inverter docs notes --out inverter
    binocle train inverter docs --from hidden --decoder lstm --minutes 20 --out state-inverter
    """
    from ...training.inversion.config import InverterConfig
    from ...training.inversion.train import train_inverter

    if options["steps"] is not None:
        refuse_given_options(["minutes"], "--steps says how long")
    if "" in texts:
        raise InputError("'' is empty; '.' is the folder you are in")
    refuse_idle_column(texts)
    sources, name, length = _sources(texts, encoder, index)
    if kind == "embedding" and options["max_length"] is None:
        options["max_length"] = length
    with ProgressBar("reading the data", lines=10) as progress, recipes.saved_with(out):
        result = train_inverter(
            sources,
            out,
            encoder=name,
            config=InverterConfig(kind=kind, texts=text_limit, **options),
            column=column,
            progress=progress,
        )
    if as_json:
        echo_json(result.as_dict())
    else:
        _print_trained(result)


def _print_trained(result: TrainedInverter) -> None:
    from ...training.evaluation.significance import reach

    echo(f"{count_of(result.steps, 'step')} in {result.seconds:,.0f} s, {result.texts_per_second:,.0f} texts/s")
    for row in result.measures:
        low, high = row["interval"]
        interval = reach(low, high, row["rows"])
        echo(f"{row['name']:<32} {row['value']:.4f} ({interval}, {count_of(row['rows'], 'text')})")
    echo(result.folder)


def _sources(texts: Sequence[str], encoder: str | None, index: Path | None) -> tuple[list[str], str | None, int | None]:
    """The texts to learn from, the encoder to invert, and the length of an index's passages."""
    from ...training.inversion.train import passage_length

    if index is None:
        if not texts:
            raise click.UsageError("give TEXTS or --index")
        return list(texts), encoder, None
    retriever = open_index(None, index)
    return [str(retriever.path), *texts], encoder or retriever.encoder.name, passage_length(retriever)
