"""`binocle enrich`: labels and names in the metadata of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..core.units import count_of
from .index_lookup import command_hint, open_index
from .models.idle_options import refuse_given_options
from .options import FloatRange, folder_argument, index_option, json_option, print_note, wait_option
from .output import echo, echo_json
from .progress_bar import ProgressBar

if TYPE_CHECKING:
    from pathlib import Path

_VALUES = 5  # of the labels under a key
_EXAMPLES = {"heads": ("topic=my-classifier", "model"), "names": ("'kind=guide, news'", "labels")}


def label_counts(row: dict[str, Any]) -> str:
    """The most frequent labels under a key: `topic: billing 40, bug 12; 3 documents wait`."""
    values = ", ".join(f"{value} {count:,}" for value, count in row["counts"][:_VALUES])
    remainder = f" and {row['distinct'] - _VALUES:,} more" if row["distinct"] > _VALUES else ""
    waiting = count_of(row["waiting"], "document")
    hint = f"; {waiting} without, until {command_hint('enrich')} or the next sync" if row["waiting"] else ""
    return f"{row['key']}: {values or 'none'}{remainder}, in {count_of(row['labelled'], 'document')}{hint}"


def _split_keys(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, str]]:
    """Split each KEY=VALUE (a callback of click)."""
    example, source_noun = _EXAMPLES[option.name or ""]
    pairs = [(key.strip(), value.strip()) for key, _, value in (value.partition("=") for value in values)]
    for value, (key, source) in zip(values, pairs, strict=True):
        if not key or not source:
            lacking = source_noun if key and "=" in value else "key"
            raise click.BadParameter(f"{value!r} has no {lacking}: expected one such as {example}", context)
    return pairs


@click.command()
@folder_argument
@index_option
@click.option(
    "--head",
    "heads",
    metavar="KEY=MODEL",
    multiple=True,
    callback=_split_keys,
    help="A trained classifier or tagger fills KEY. Repeatable.",
)
@click.option(
    "--as",
    "names",
    metavar="KEY=LABELS",
    multiple=True,
    callback=_split_keys,
    help="The encoder alone fills KEY with one of these labels, with commas. Repeatable.",
)
@click.option(
    "--precision",
    metavar="P",
    type=FloatRange(0, 1, min_open=True, max_open=True),
    help="Give no class or name where fewer would be right. Default: .9 for --as, none for --head.",
)
@click.option("--remove", metavar="KEY", multiple=True, help="Take out the labels under KEY. Repeatable.")
@wait_option
@json_option
def enrich(
    folder: Path | None,
    index: Path | None,
    heads: list[tuple[str, str]],
    names: list[tuple[str, str]],
    precision: float | None,
    remove: tuple[str, ...],
    wait: float,
    as_json: bool,
) -> None:
    """Store labels and names in the metadata of documents.

    Filters take them (--where topic=billing), and 'binocle status' counts them. 'binocle index' labels new and changed
    files too. A classifier that was trained on the encoder of this index takes the stored vectors: nothing is encoded.
    Without options, the documents that have no labels yet get theirs.

    \b
    binocle enrich docs --head topic=my-classifier --as "kind=guide, reference, news"
    """
    labels = {key: [name.strip() for name in value.split(",")] for key, value in names}
    sources: dict[str, str | list[str]] = {**dict(heads), **labels}
    if len(sources) < len(heads) + len(names):
        raise click.UsageError("a key is given twice: expected one head for each", click.get_current_context())
    if not sources:
        refuse_given_options(["precision"], "it goes with --head or --as")
    retriever = open_index(folder, index, wait=wait)
    with ProgressBar("loading the heads", lines=10, silence=5) as progress:
        report = retriever.enrich(sources, remove=remove, precision=precision, progress=progress)
    if as_json:
        echo_json(report.as_dict())
        return
    if report.encoded:
        keys = ", ".join(report.encoded)
        print_note(f"binocle: each passage was encoded again for {keys}: the model takes no vectors of this index")
    for key, count in report.removed.items():
        echo(f"{key}: taken out of {count_of(count, 'document')}")
    for row in retriever.status().labels if report.labelled else ():
        if row["key"] in report.labelled or row["key"].rpartition(".")[0] in report.labelled:
            echo(label_counts(row))
    if not report.removed and not report.labelled:
        if retriever.status().labels:
            print_note("binocle: every document has its labels")
        else:
            print_note("binocle: nothing labels this index yet: give --head KEY=MODEL or --as 'KEY=NAME, NAME'")
