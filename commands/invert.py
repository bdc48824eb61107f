"""`binocle invert`, and `binocle train inverter`: what an encoder's output gives away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError
from .options import EXIT_NEGATIVE, FOLDER, PATH, folder_argument, index_option, json_option, open_index, parse_citation
from .progress_bar import ProgressBar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ..retriever.inversion.inverter import EmbeddingInverter, Inverted, StateReading

_ROWS = 10  # vectors of a file


@click.command()
@click.argument("text", required=False)
@folder_argument
@click.option("--inverter", required=True, metavar="DIR", type=FOLDER, help="Made by 'binocle train inverter'.")
@click.option("--vectors", metavar="FILE", type=PATH, help="Invert the vectors in a .npy or .parquet file or a table.")
@click.option("--column", metavar="NAME", help="Of a table of vectors. Default: vector or embedding.")
@click.option("--row", "first", type=int, default=0, show_default=True, help="Of the vectors, the first to invert.")
@click.option("--rows", type=int, default=_ROWS, show_default=True, help="How many vectors to invert.")
@click.option("--passage", metavar="FILE:LINE", help="Invert the stored vector of an index's passage.")
@index_option
@click.option("--seconds", type=float, default=10.0, show_default=True, help="Of correction for each vector.")
@json_option
def invert(
    text: str | None,
    folder: Path | None,
    inverter: Path,
    vectors: Path | None,
    column: str | None,
    first: int,
    rows: int,
    passage: str | None,
    index: Path | None,
    seconds: float,
    as_json: bool,
) -> int:
    """Recover text from vectors or hidden states.

    A TEXT makes the round trip, and so shows what the encoder keeps of it. --vectors inverts a file of vectors,
    --passage a row of an index. A vector that no text comes near gives "no text recovered", and exit code 1.

    \b
    binocle invert "The council met on 12 May in Geneva." --inverter inverter
    binocle invert --vectors stolen.npy --inverter inverter --json
    binocle invert --passage guide/install.md:40 docs --inverter inverter
    """
    from ..retriever.inversion.inverter import StateInverter, load

    if text is not None and passage and folder is None:
        text, folder = None, FOLDER.convert(text, None, None)  # the one argument there is means the index's folder
    if sum(one is not None for one in (text, vectors, passage)) != 1:
        raise click.UsageError("give one of TEXT, --vectors and --passage")
    if not seconds >= 0:
        raise InputError(f"seconds is a number from 0, not {seconds}")
    if rows < 1:
        raise InputError(f"rows is how many vectors to invert, a number from 1, not {rows}")
    loaded = load(inverter)
    if isinstance(loaded, StateInverter):
        if text is None:
            raise InputError(f"{inverter} inverts hidden states, which are not stored: give it a text")
        return _print_read(loaded.read(text), as_json=as_json)
    given, true, fingerprint = _given(loaded, text, vectors, column, first, rows, passage, folder, index)
    recovered = False
    for row in range(len(given)):
        made = loaded.invert(given[row : row + 1], seconds=seconds, fingerprint=fingerprint)[0]
        recovered |= made.recovered
        _print_inverted(made, first + row if vectors else None, true, as_json=as_json)
    return 0 if recovered else EXIT_NEGATIVE


def _given(
    inverter: EmbeddingInverter,
    text: str | None,
    vectors: Path | None,
    column: str | None,
    first: int,
    rows: int,
    passage: str | None,
    folder: Path | None,
    index: Path | None,
) -> tuple[NDArray[Any], str | None, str | None]:
    """The vectors meant, the text behind them and their encoder's fingerprint as far as these are known."""
    if text is not None:
        return inverter.encoder.encode([text]), text, inverter.encoder.fingerprint
    if vectors is not None:
        from ..retriever.inversion.vector_files import read_vectors

        return read_vectors(vectors, column=column, first=first, most=rows), None, None
    assert passage is not None
    from ..retriever.store.documents import stored_vector

    retriever = open_index(folder, index)
    snapshot = retriever.snapshot()
    vector, true = stored_vector(snapshot, *parse_citation(retriever, passage))
    return vector[None], true, snapshot.head.encoder.fingerprint


def _print_inverted(made: Inverted, number: int | None, true: str | None, *, as_json: bool) -> None:
    if as_json:
        known = {name: value for name, value in (("row", number), ("true", true)) if value is not None}
        click.echo(json.dumps(known | made.as_dict(), ensure_ascii=False))
        return
    if number is not None:
        click.echo(f"row {number}")
    if not made.recovered:
        click.echo(f"no text recovered (the nearest has a cosine of {made.cosine:.3f})")
        return
    click.echo(f"{made.text}\n  cosine {made.cosine:.3f}")
    surest: dict[str, float] = {}
    for guess in made.tokens:  # a token that comes again is less likely each time
        surest.setdefault(guess.token, guess.probability)
    click.echo("  " + "  ".join(f"{token} {likely:.2f}" for token, likely in surest.items()))


def _print_read(made: StateReading, *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps(made.as_dict(), ensure_ascii=False))
        return 0 if made.tokens else EXIT_NEGATIVE
    for token, guess in zip(made.tokens, made.named, strict=True):
        mark = "" if token == guess.token else f"  (was {token})"
        click.echo(f"{guess.token:<20} {guess.probability:.2f}{mark}")
    click.echo(f"{made.accuracy:.1%} of {len(made.tokens)} tokens recovered")
    return 0 if made.tokens else EXIT_NEGATIVE


@click.command()
@click.argument("texts", nargs=-1, metavar="TEXTS...")
@click.option("--out", required=True, metavar="DIR", type=FOLDER, help="Where the inverter goes.")
@click.option("--encoder", metavar="MODEL", help="To invert. Default: the index's, or all-MiniLM-L6-v2.")
@click.option("--index", metavar="DIR", type=FOLDER, help="Learn from an index's documents.")
@click.option(
    "--from",
    "kind",
    type=click.Choice(["embedding", "hidden"]),
    default="embedding",
    show_default=True,
    help="What is inverted: the vector of a text, or its hidden states.",
)
@click.option(
    "--decoder",
    type=click.Choice(["linear", "lstm", "transformer"]),
    default="transformer",
    show_default=True,
    help="Of hidden states.",
)
@click.option("--layer", type=int, help="Whose states are read. Default: the last.")
@click.option("--layers", type=int, help="Of an LSTM or a Transformer. Default: 1 and 4.")
@click.option("--bidirectional/--forward", default=True, show_default=True, help="How an LSTM reads.")
@click.option("--masked", type=float, default=0.0, show_default=True, help="Share of the states left out.")
@click.option("--column", metavar="NAME", help="The column of texts in a table.")
@click.option("--max-length", type=int, help="Tokens of a text. Default: 32 for embeddings, 126 for hidden states.")
@click.option("--texts", "most", type=int, default=200_000, show_default=True, help="Texts for embeddings, at most.")
@click.option("--minutes", type=float, default=30.0, show_default=True, help="Of learning.")
@click.option("--steps", type=int, help="Steps, instead of minutes.")
@click.option("--batch-size", type=int, help="Texts. Default: 128 for embeddings, 32 for hidden states.")
@click.option("--learning-rate", "--lr", type=float, help="Default: 5e-4 for embeddings and a Transformer, else 1e-3.")
@click.option("--bf16/--fp32", default=None, help="Default: bf16 where the hardware computes in it.")
@click.option("--held-out", type=float, default=0.02, show_default=True, help="Share of documents held out.")
@click.option("--evaluations", type=int, default=4, show_default=True, help="Checkpoints during the run.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@json_option
def inverter(
    texts: tuple[str, ...],
    out: Path,
    encoder: str | None,
    index: Path | None,
    column: str | None,
    most: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Train an inverter of an encoder.

    TEXTS are what 'binocle pretrain' takes: folders, files, an index. Interrupt it when you like: the same command goes
    on from its last checkpoint.

    \b
    binocle train inverter docs notes --out inverter
    binocle train inverter docs --from hidden --decoder lstm --minutes 20 --out state-inverter
    """
    from ..training.inversion.train import InverterConfig, train_inverter

    if "" in texts:
        raise InputError("'' is empty; '.' is the folder you are in")
    sources, name = _sources(texts, encoder, index)
    with ProgressBar("reading the data", lines=10) as progress:
        made = train_inverter(
            sources,
            out,
            encoder=name,
            config=InverterConfig(texts=most, **options),
            column=column,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps(made.as_dict()))
        return
    click.echo(f"{made.steps:,} steps in {made.seconds:,.0f} s, {made.texts_per_second:,.0f} texts/s")
    for row in made.measures:
        low, high = row["interval"]
        click.echo(f"{row['name']:<32} {row['value']:.4f} (95 % {low:.4f} to {high:.4f}, {row['rows']} texts)")
    click.echo(made.folder)


def _sources(texts: Sequence[str], encoder: str | None, index: Path | None) -> tuple[list[str], str | None]:
    """What is learned from, and whose vectors."""
    if index is None:
        if not texts:
            raise click.UsageError("give TEXTS or --index")
        return list(texts), encoder
    retriever = open_index(None, index)
    return [str(retriever.path), *texts], encoder or retriever.snapshot().head.encoder.model
