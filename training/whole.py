"""Files that a run goes on from when it was killed: each is there when it is whole, and not before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    aside = file.with_name(f".{file.name}")
    aside.write_text(text, "utf-8")
    aside.replace(file)


def once(file: Path, make: Callable[[], Any]) -> Any:
    """What `make` gives, as JSON has it: made when the file is not there, and read from it."""
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(make()))
    return json.loads(file.read_text("utf-8"))
