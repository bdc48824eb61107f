"""`binocle label`: give each document the label that it fits best, or none."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING

import click

from ..core.printable import printable
from ..core.units import count_of
from .documents import printed_name
from .index_lookup import folder_filter, open_index
from .models.idle_options import refuse_given_options
from .options import (
    EXIT_NEGATIVE,
    FilePath,
    FloatRange,
    folder_argument,
    index_option,
    json_option,
    print_note,
    split_names,
    where_option,
)
from .output import echo, echo_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..retriever.store.filters.filter import Filter
    from ..retriever.store.records import Record

_SHOWN = 200  # characters of a text that is sampled


@click.command()
@folder_argument
@index_option
@click.option("--as", "names", required=True, metavar="LABELS", callback=split_names, help="The labels, with commas.")
@click.option(
    "--precision", default=0.9, show_default=True, type=FloatRange(0.5, 1), help="Share of labels that must be right."
)
@click.option(
    "--examples",
    metavar="FILE",
    type=FilePath(exists=True, dir_okay=False),
    help="True labels that calibrate the precision: a .csv file with the columns document and label.",
)
@click.option("--sample", metavar="N", type=click.IntRange(min=1), help="Print N random documents to label by hand.")
@where_option
@json_option
def label(
    folder: Path | None,
    index: Path | None,
    names: tuple[str, ...],
    precision: float,
    examples: Path | None,
    sample: int | None,
    where: tuple[str, ...],
    as_json: bool,
) -> int:
    """Label documents by the encoder alone, without training.

    Prints the documents with a sure label; with --json also the others. The certainty is
    an estimate, unless 50 examples of this index calibrate it: print them with --sample, and fill in their label or
    "none". Exit 1 when no label is sure enough.

    \b
    binocle label docs --as "installation, billing, bug report"
    binocle label docs --as "installation, billing" --sample 100
    """
    from ..retriever.labels.document_labels import label_documents, read_examples

    if sample is not None:
        refuse_given_options(["precision", "examples"], "--sample prints documents without a label")
    retriever = open_index(folder, index, narrow=True)
    scope: list[str | Filter] = [*where, *folder_filter(folder, retriever.folder, retriever.location)]
    if sample is not None:
        _print_sample(retriever.iterate(scope), sample, as_json=as_json)
        return 0
    known = None if examples is None else read_examples(examples)
    labels = label_documents(
        retriever.iterate(scope, vectors=True), retriever.encoder, names, precision=precision, examples=known
    )
    name = printed_name(retriever)
    for answer in labels:
        if as_json:
            label_if_sure = answer.label if answer.sure else None
            row = {"document": answer.document, "label": label_if_sure, "guess": answer.label}
            echo_json({**row, "chance": answer.chance})
        elif answer.sure:
            echo(f"{answer.chance:.2f}  {answer.label}  {name(answer.document)}")
    number = sum(answer.sure for answer in labels)
    if not number:
        print_note(
            f"binocle: no label is sure enough for any of {count_of(len(labels), 'document')}: "
            f"the surest has a chance of {labels[0].chance:.2f}, and --precision is {precision:.2f}"
        )
        return EXIT_NEGATIVE
    print_note(
        f"binocle: {count_of(number, 'label')} for {count_of(len(labels), 'document')}; {_meaning(precision, known)}"
    )
    return 0


def _meaning(precision: float, examples: dict[str, str] | None) -> str:
    if examples is None:
        return (
            f"that {precision:.0%} of them are right is an estimate, not calibrated on this index: "
            "label 100 documents of --sample and give them as --examples"
        )
    return f"about {precision:.0%} of them are right, by {count_of(len(examples), 'example')}"


def _print_sample(records: Iterable[Record], count: int, *, as_json: bool) -> None:
    """Print documents, drawn at random, as CSV or JSON with an empty column for their labels."""
    from ..retriever.labels.document_labels import sample_records

    rows = csv.writer(sys.stdout, lineterminator="\n")
    if not as_json:
        rows.writerow(["document", "label", "text"])
    for record in sample_records(records, count):
        text = record.text[:_SHOWN]
        if as_json:
            echo_json({"document": record.id, "label": "", "text": text})
        else:
            rows.writerow([record.id, "", printable(text)])
