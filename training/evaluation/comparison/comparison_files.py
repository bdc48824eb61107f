"""Write a comparison into a folder: its table, TREC runs, and plots."""

from __future__ import annotations

import re
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from ....core.errors import InputError
from ....core.files import write_atomic
from ....core.strict_json import strict_json
from ...runs import plots
from ..result import JudgedRowsResult
from ..trec_run import write_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from .table import Comparison


def create_folder(out: Path, picture: str | None) -> Path:
    """Create the folder of a comparison, and check that its plots can be drawn.

    :raises InputError: when a file is in its place.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: expected a folder to write the comparison into")
    out.mkdir(parents=True, exist_ok=True)
    if picture is not None:
        plots.check(out / f"comparison.{picture}")
    return out


def write(
    comparison: Comparison, out: Path, picture: str | None, stems: Mapping[tuple[str, str], str], *, per_query: bool
) -> None:
    """Write comparison.json and .txt, the runs of judged rows, and the plots.

    :param stems: of the files of each contender and data set.
    """
    for name in ("comparison", "scores.*"):  # plots of an earlier comparison
        for suffix in ("svg", "png"):
            for file in out.glob(f"{name}.{suffix}"):
                file.unlink()
    (out / "comparison.json").write_text(strict_json(comparison.as_dict(per_query=per_query), indent=1) + "\n", "utf-8")
    write_atomic(out / "comparison.txt", comparison.text())
    for pair, result in comparison.evaluations.items():
        if isinstance(result, JudgedRowsResult) and result.run:
            write_run(out / f"{stems[pair]}.run", result.run, "reranking")
    if picture is None:
        return
    if comparison.bars():
        plots.comparison(comparison.bars(), out / f"comparison.{picture}")
    for name, data, scores in _distributions(comparison):
        file = out / f"scores.{stems[name, data]}.{picture}"
        plots.score_distributions(**scores, file=file, title=f"{name} on {data}")


def _distributions(comparison: Comparison) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield contender, data set and the arguments of `plots.score_distributions`, for rows with positives."""
    for (name, data), result in comparison.evaluations.items():
        if isinstance(result, JudgedRowsResult) and result.kind in ("pairs", "reranking"):
            positive = result.gold > 0
            scores = {"positives": result.scores[positive], "negatives": result.scores[~positive]}
            yield name, data, {**scores, "threshold": result.thresholds.get("F1"), "score": result.score}


def file_stems(pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Name the files of each contender and data set, with a number where names that differ have the same slug."""
    stems: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for name, data in pairs:
        stem = f"{slug(data)}.{slug(name)}"
        names = chain([stem], (f"{stem}-{number}" for number in count(2)))
        stems[name, data] = next(free for free in names if free.lower() not in taken)
        taken.add(stems[name, data].lower())  # some file systems take no account of case
    return stems


def slug(name: str) -> str:
    """Return a name without the signs that a file's name may not have everywhere."""
    return re.sub(r"[^\w.@+-]+", "-", name).strip("-.") or "data"
