"""Find the last complete checkpoint of a run. A process that is killed while writing leaves an incomplete one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

KEEP = 2  # checkpoints: the newest may be incomplete
MARGIN = " margin"  # suffix of a metric's name: half of its 95 % interval
WORSE = " worse"  # suffix of a metric's name: 1 if it is worse than the best so far by more than chance
_COMPLETE = "whole.json"  # written last


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint below a folder."""
    complete = [file.parent for file in folder.glob(f"checkpoint-*/{_COMPLETE}") if _is_complete(file)]
    return max(complete, key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)


def mark_complete(checkpoint: Path) -> None:
    """Write the list of a checkpoint's files as its last file."""
    names = sorted(path.name for path in checkpoint.iterdir() if path.is_file())
    (checkpoint / _COMPLETE).write_text(json.dumps({"files": names}), "utf-8")


def _is_complete(file: Path) -> bool:
    """Check that every listed file exists: a killed run may have been deleting an old checkpoint."""
    try:
        names = json.loads(file.read_text("utf-8"))["files"]
    except (OSError, ValueError, KeyError):
        return False
    return all((file.parent / name).is_file() for name in names)


def has_stopped(checkpoint: Path, patience: int | None) -> bool:
    """Check whether a run had finished, or stopped early, at a checkpoint of transformers' trainer."""
    state = json.loads((checkpoint / "trainer_state.json").read_text("utf-8"))
    if state["global_step"] >= state["max_steps"]:
        return True
    return patience is not None and worse_evaluations(state["log_history"]) >= patience


def worse_evaluations(history: Iterable[Mapping[str, Any]]) -> int:
    """Count the last evaluations in a row that are worse than the best before them by more than chance."""
    count = 0
    for row in history:
        for name, value in row.items():
            if name.endswith(WORSE):
                count = count + 1 if value else 0
    return count
