"""Write rankings as a TREC run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import InputError
from ..data.sources import check_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .measures import Run


def check_run_file(file: str | Path | None, data: str | Path) -> None:
    """:raises InputError: when the file's folder does not exist, or the file belongs to the data."""
    if file is None:
        return
    if not Path(file).parent.is_dir():
        raise InputError(f"there is no folder {Path(file).parent} to write the run into")
    check_apart(file, data)


def write_run(file: Path, run: Run, tag: str) -> None:
    """Write a line for each document: query, Q0, document, rank, score, tag."""
    file.write_text("".join(_lines(run, tag)), "utf-8")


def _lines(run: Run, tag: str) -> Iterator[str]:
    for query, ranking in run.items():
        for rank, (document, score) in enumerate(ranking, 1):
            yield f"{_cell(query)} Q0 {_cell(document)} {rank} {score:.6f} binocle-{tag}\n"


def _cell(name: str) -> str:
    """Encode the white space of a name: it separates the columns of a run."""
    return re.sub(r"\s", "%20", name)
