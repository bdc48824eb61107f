"""`binocle optimize`: choose the vector index that meets the requirements fastest, prove it and publish it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ...core.errors import InputError
from ..index_lookup import open_index
from ..options import (
    EXIT_NEGATIVE,
    PATH,
    folder_argument,
    index_option,
    json_option,
    print_step,
    ray_option,
    stdout_for_answers,
    wait_option,
)
from ..output import echo, echo_json

if TYPE_CHECKING:
    from pathlib import Path

    from ...indexes.tuning.benchmark import BenchmarkResult
    from ...indexes.tuning.optimize import OptimizationResult

_BYTES = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SECONDS = {"US": 1e-6, "MS": 1e-3, "S": 1}


def _quantity(text: str, units: dict[str, float], what: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in units:
        raise click.BadParameter(f"{text!r} is not {what}")
    return float(match[1]) * units[match[2].upper()]


def _memory(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    return None if value is None else _quantity(value, _BYTES, "an amount of memory: expected one such as 250MB or 2GB")


def _latency(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    return None if value is None else _quantity(value, _SECONDS, "a time: expected one such as 5ms")


@click.command()
@folder_argument
@index_option
@click.option(
    "--recall",
    default=0.99,
    show_default=True,
    type=float,
    metavar="SHARE",
    help="The required share of the ten best; its lower 95 % bound must reach this.",
)
@click.option("--memory", metavar="SIZE", callback=_memory, help="The memory that searches may read, such as 2GB.")
@click.option(
    "--latency",
    metavar="TIME",
    callback=_latency,
    help="The time that 99 of 100 single queries may take in the index, for 200 neighbours each: 5ms.",
)
@click.option(
    "--queries",
    metavar="FILE",
    type=PATH,
    help="Real queries: one text a line, or BEIR's queries.jsonl. Default: sentences of the passages.",
)
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="A kind of index to try. Repeatable.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="The seed of the query sample.")
@click.option("--plot", metavar="FILE", type=PATH, help="Draw the measurements as SVG.")
@wait_option
@ray_option
@json_option
def optimize(
    folder: Path | None,
    index: Path | None,
    recall: float,
    memory: float | None,
    latency: float | None,
    queries: Path | None,
    kinds: tuple[str, ...],
    seed: int,
    plot: Path | None,
    wait: float,
    ray: str | None,
    as_json: bool,
) -> int:
    """Choose the fastest vector index that meets your limits.

    The command builds several kinds of index beside the present index and searches them with one half of the queries.
    The other half proves the fastest one that meets the requirements, and it is put in service. If none meets them,
    nothing changes: exit 1, with the nearest possibilities. Whenever 'binocle index' rebuilds the vector index, it
    measures again; if it misses a requirement, it takes other search parameters or another kind of index.

    \b
    binocle optimize ~/notes
    binocle optimize docs --recall 0.95 --memory 250MB --latency 1s --plot frontier.svg
    """
    from ...indexes.tuning.plot import plot_svg
    from ...retriever.store.derived.benchmark_queries import read

    if plot is not None and (plot.is_dir() or not plot.parent.is_dir()):
        raise InputError(f"{plot} cannot be written: expected a file in an existing folder")
    if plot is not None and plot.suffix.lower() != ".svg":
        raise InputError(f"{plot} would be an SVG by another name: expected one that ends in .svg")
    retriever = open_index(folder, index, ray=ray, wait=wait)
    with stdout_for_answers(ray):
        result = retriever.optimize(
            recall,
            memory=memory,
            latency=latency,
            queries=None if queries is None else read(queries),
            kinds=kinds,
            seed=seed,
            progress=print_step,
        )
    if plot is not None:
        measurement = result.choice.measurement if result.choice else None
        plot.write_text(plot_svg(result.measurements, result.requirements, measurement), "utf-8")
    if as_json:
        echo_json(_as_dict(result))
    else:
        for line in _lines(result):
            echo(line)
    return 0 if result.met else EXIT_NEGATIVE


def _as_dict(result: OptimizationResult) -> dict[str, Any]:
    choice = result.choice
    published = {name: getattr(choice.spec, name) for name in ("kind", "build", "search")} if choice else {}
    return {
        "met": result.met,
        **published,
        "measured": choice and choice.benchmark.as_dict(),
        "nearest": result.alternatives,
        "tried": [measurement.as_dict() for measurement in result.measurements],
        "seconds": round(result.seconds, 3),
    }


def _lines(result: OptimizationResult) -> list[str]:
    choice = result.choice
    if choice is None:
        requirements = f"recall {result.requirements.recall:g}{limits(result)}"
        return [f"nothing meets {requirements}; the index is unchanged", *result.alternatives]
    return [
        f"{'index':<10} {choice.measurement.name}",
        *(f"{name:<10} {text}" for name, text in proof(choice.benchmark)),
    ]


def limits(result: OptimizationResult | BenchmarkResult) -> str:
    """Describe the required memory and latency, for the end of a line."""
    from ...core.units import format_bytes

    required = result.requirements
    memory = f" within {format_bytes(required.memory)}" if required.memory else ""
    return memory + (f" in {1e3 * required.latency:g} ms" if required.latency else "")


def proof(result: BenchmarkResult) -> list[tuple[str, str]]:
    """Return the lines that describe a benchmarked index, each with its label."""
    from ...core.units import format_bytes
    from ...indexes.base import SEARCH_DEPTH
    from ...indexes.tuning.benchmark import K

    queries = f"{result.queries:,} queries that had no part in choosing it"
    verdict = "" if result.met else ", NOT MET"
    latency = f"p50 {1e3 * result.p50:.2f} ms, p99 {1e3 * result.p99:.2f} ms for {SEARCH_DEPTH} neighbours"
    return [
        (
            "recall@10",
            f"{result.recall:.4f}, at least {result.recall_bound:.4f} with 95 % confidence, by {queries}",
        ),
        ("required", f"recall {result.requirements.recall:g}{limits(result)}{verdict}"),
        ("speed", f"{latency}; {result.rate:,.0f} queries a second for {K}, at once"),
        ("memory", f"{result.bytes_per_vector:,.0f} bytes a vector, {format_bytes(result.memory)}"),
        ("measured", f"{result.measured_at} on {result.count:,} vectors; queries: {result.source}"),
        *_curve(result),
    ]


def _curve(result: BenchmarkResult) -> list[tuple[str, str]]:
    """Return a line for each setting of the same index, shallow to deep; the published setting is marked."""
    if len(result.curve) < 2:
        return []
    lines = [("curve", "recall@10  at least  queries/s  bytes/vector  search")]
    published = (result.recall, result.recall_bound, result.rate, result.p50, result.p99)
    for row in sorted(result.curve, key=lambda row: float(row["recall"])):
        figures = f"{row['recall']:9.4f}  {row['least']:8.4f}  {row['rate']:9,.0f}  {result.bytes_per_vector:12,.0f}"
        search = ", ".join(f"{name} {value}" for name, value in row["search"].items())
        is_chosen = tuple(row[name] for name in ("recall", "least", "rate", "p50", "p99")) == published
        lines.append(("", f"{figures}  {search}{'  <- chosen' * is_chosen}"))
    return lines
