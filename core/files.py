"""What the bytes of a file are known by."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def known_sha256(file: Path) -> str:
    """The file's sha256, remembered by place, size and time, since a search must not hash 90 MB each time."""
    status = file.stat()
    key = f"{file.resolve()}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
    if status.st_size < 1_000_000:
        return sha256(file)
    memory = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "binocle" / "sha256.json"
    known: dict[str, str] = {}
    try:
        known = json.loads(memory.read_text("utf-8"))
        if isinstance(known.get(key), str):
            return known[key]
    except (OSError, ValueError, AttributeError):
        known = {}
    value = sha256(file)
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        aside = memory.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps({**known, key: value}), "utf-8")
        aside.replace(memory)
    except OSError:
        pass  # a home that cannot be written: hash again next time
    return value


def write_atomic(file: Path, text: str) -> None:
    aside = file.with_name(f".{file.name}")
    aside.write_text(text, "utf-8")
    aside.replace(file)


def json_or_make(file: Path, make: Callable[[], Any]) -> Any:
    """What `make` gives, as JSON has it: made when the file is not there, and read from it."""
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(make()))
    return json.loads(file.read_text("utf-8"))


def expand_home(path: str | os.PathLike[str]) -> Path:
    """With "~" as the home that it names; as it stands where that is the home of nobody here."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
