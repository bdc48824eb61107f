"""Write rankings as a TREC run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import InputError
from ..data.sources import check_apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .measures import Run


_STEP = 1e-6  # the last decimal
_SINGLE = 2.4e-7  # twice the relative distance of two numbers in single precision


def check_run_file(file: str | Path | None, data: str | Path) -> None:
    """:raises InputError: when the file's folder does not exist, or the file belongs to the data."""
    if file is None:
        return
    if not Path(file).parent.is_dir():
        raise InputError(f"there is no folder {Path(file).parent} to write the run into")
    check_apart(file, data)


def write_run(file: Path, run: Run, tag: str) -> None:
    """Write a line for each document: query, Q0, document, rank, score, tag.

    trec_eval sorts by score, in single precision, and not by rank. If a score is not below the previous score, because
    passages are equal or exact words come first, it is lowered to just below that.
    """
    file.write_text("".join(_lines(run, tag)), "utf-8")


def _lines(run: Run, tag: str) -> Iterator[str]:
    for query, ranking in run.items():
        scores = _falling(score for _, score in ranking)
        for rank, ((document, _), score) in enumerate(zip(ranking, scores, strict=True), 1):
            yield f"{_cell(query)} Q0 {_cell(document)} {rank} {score:.6f} binocle-{tag}\n"


def _falling(scores: Iterable[float]) -> Iterator[float]:
    """Yield the scores, each at least a step below the previous score."""
    highest = float("inf")
    for score in scores:
        falling = round(min(score, highest), 6)
        highest = falling - max(_STEP, abs(falling) * _SINGLE)
        yield falling


def _cell(name: str) -> str:
    """Encode the white space of a name: it separates the columns of a run."""
    return re.sub(r"\s", "%20", name)
