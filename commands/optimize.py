"""`binocle optimize`: the vector index that meets a demand fastest, chosen, proven and put in service."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import InputError
from .options import (
    EXIT_NEGATIVE,
    PATH,
    folder_argument,
    index_option,
    json_option,
    open_index,
    print_step,
    ray_option,
    stdout_for_answers,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ..indexes.tuning.benchmark import BenchmarkResult
    from ..indexes.tuning.optimize import TuningResult

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
    help="Of the ten best, on average: the lower 95 % bound must reach it.",
)
@click.option("--memory", metavar="SIZE", callback=_memory, help="The most that searches go through, such as 2GB.")
@click.option(
    "--latency",
    metavar="TIME",
    callback=_latency,
    help="The most that 99 of 100 queries keep the index busy, asked singly for 200 neighbours as searches do: 5ms.",
)
@click.option(
    "--queries",
    metavar="FILE",
    type=PATH,
    help="Real queries: a text a line, or BEIR's queries.jsonl. Default: made from sentences of the passages.",
)
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="A kind of index to try. Repeatable.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the sample of queries.")
@click.option("--plot", metavar="FILE", type=PATH, help="Draw what was measured, as SVG.")
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
    ray: str | None,
    as_json: bool,
) -> int:
    """Choose the vector index by what it has to reach.

    Kinds of index are built beside the one in service and searched with one half of the queries; the fastest that meets
    the demand is proven on the other half, and published. If none does, nothing changes: exit 1, with what would be
    possible. 'binocle index' measures it again whenever it builds it anew, and mends what no longer meets the demand.

    \b
    binocle optimize ~/notes
    binocle optimize docs --recall 0.95 --memory 250MB --latency 1s --plot frontier.svg
    """
    from ..indexes.tuning.plot import frontier
    from ..retriever.store.benchmark_queries import read

    if plot is not None and (plot.is_dir() or not plot.parent.is_dir()):
        raise InputError(f"{plot} cannot be written: expected a file in a folder that there is")
    if plot is not None and plot.suffix.lower() != ".svg":
        raise InputError(f"{plot} would be an SVG by another name: expected one that ends in .svg")
    retriever = open_index(folder, index, ray=ray)
    with stdout_for_answers(ray):
        outcome = retriever.optimize(
            recall,
            memory=memory,
            latency=latency,
            queries=None if queries is None else read(queries),
            kinds=kinds,
            seed=seed,
            progress=print_step,
        )
    if plot is not None:
        chosen = outcome.choice.point if outcome.choice else None
        plot.write_text(frontier(outcome.points, outcome.demand, chosen), "utf-8")
    if as_json:
        click.echo(json.dumps(_as_dict(outcome)))
    else:
        for line in _lines(outcome):
            click.echo(line)
    return 0 if outcome.met else EXIT_NEGATIVE


def _as_dict(outcome: TuningResult) -> dict[str, Any]:
    choice = outcome.choice
    chosen = {name: getattr(choice.spec, name) for name in ("kind", "build", "search")} if choice else {}
    return {
        "met": outcome.met,
        **chosen,
        "measured": choice and choice.measured.as_dict(),
        "nearest": outcome.nearest,
        "tried": [point.as_dict() for point in outcome.points],
        "seconds": round(outcome.seconds, 3),
    }


def _lines(outcome: TuningResult) -> list[str]:
    choice = outcome.choice
    if choice is None:
        wanted = f"recall {outcome.demand.recall:g}{limits(outcome)}"
        return [f"nothing meets {wanted}; the index is unchanged", *outcome.nearest]
    return [f"{'index':<10} {choice.point.name}", *(f"{name:<10} {text}" for name, text in proof(choice.measured))]


def limits(outcome: TuningResult | BenchmarkResult) -> str:
    from ..core.units import format_bytes

    demand = outcome.demand
    memory = f" within {format_bytes(demand.memory)}" if demand.memory else ""
    return memory + (f" in {1e3 * demand.latency:g} ms" if demand.latency else "")


def proof(measured: BenchmarkResult) -> list[tuple[str, str]]:
    """What is shown of a measured index, name by name."""
    from ..core.units import format_bytes
    from ..indexes.tuning.benchmark import DEPTH, K

    found = measured.recall, measured.least
    asked = f"{measured.queries:,} queries that had no part in choosing it"
    short = "" if measured.met else ", NOT MET"
    latency = f"p50 {1e3 * measured.p50:.2f} ms, p99 {1e3 * measured.p99:.2f} ms for {DEPTH} neighbours"
    return [
        ("recall@10", f"{found[0]:.4f}, at least {found[1]:.4f} with 95 % confidence, by {asked}"),
        ("demand", f"recall {measured.demand.recall:g}{limits(measured)}{short}"),
        ("speed", f"{latency}; {measured.rate:,.0f} queries a second for {K}, at once"),
        ("memory", f"{measured.bytes_per_vector:,.0f} bytes a vector, {format_bytes(measured.memory)}"),
        ("measured", f"{measured.at} on {measured.count:,} vectors; queries: {measured.source}"),
        *_curve(measured),
    ]


def _curve(measured: BenchmarkResult) -> list[tuple[str, str]]:
    """The same index searched less and more deeply, a line each; the published search is marked."""
    if len(measured.curve) < 2:
        return []
    lines = [("curve", "recall@10  at least  queries/s  bytes/vector  search")]
    for row in sorted(measured.curve, key=lambda row: float(row["recall"])):
        figures = f"{row['recall']:9.4f}  {row['least']:8.4f}  {row['rate']:9,.0f}  {measured.bytes_per_vector:12,.0f}"
        search = ", ".join(f"{name} {value}" for name, value in row["search"].items())
        is_chosen = all(row[name] == getattr(measured, name) for name in ("recall", "least", "rate", "p50", "p99"))
        lines.append(("", f"{figures}  {search}{'  <- chosen' * is_chosen}"))
    return lines
