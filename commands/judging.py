"""`binocle evaluate`: quality, measured."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from .places import FOLDER, json_option, tell

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("collection", type=FOLDER)
@click.option("--mode", type=click.Choice(["hybrid", "semantic", "lexical"]), default="hybrid", show_default=True)
@click.option("--split", default="test", show_default=True, help="The judgements to use: qrels/SPLIT.tsv.")
@click.option("--model", metavar="NAME", help="Encoder: a sentence-transformers folder or hub name.")
@click.option("--index", "index", metavar="DIR", type=FOLDER, help="Keep the index here, for the next mode.")
@click.option("--run", "run_file", metavar="FILE", help="Write the rankings as a TREC run.")
@json_option
def evaluate(
    collection: Path,
    mode: str,
    split: str,
    model: str | None,
    index: Path | None,
    run_file: str | None,
    as_json: bool,
) -> None:
    """Measure quality on a test collection.

    COLLECTION has BEIR's layout: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv.

    \b
    binocle evaluate scifact --mode semantic --run scifact.run
    """
    from ..training.evaluation import evaluate as measure

    progress = tell if sys.stderr.isatty() else None
    found = measure(collection, mode=mode, split=split, model=model, index=index, run_file=run_file, progress=progress)
    if as_json:
        click.echo(json.dumps(found.as_dict()))
        return
    click.echo(f"{found.collection} {found.split}: {found.queries:,} queries, {found.documents:,} documents, {mode}")
    for name, value in found.measures.items():
        click.echo(f"{name:<11} {value:.4f}")
    click.echo(f"indexed in {found.index_seconds:.1f} s, {found.query_milliseconds:.1f} ms a query")
