"""Checksums, atomic writes, cached JSON and paths."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def sha256(file: Path) -> str:
    """Return the hexadecimal sha256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def known_sha256(file: Path) -> str:
    """Return a file's sha256 from a cache keyed by path, size and time; a search must not hash 90 MB each time."""
    status = file.stat()
    key = f"{file.resolve()}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
    if status.st_size < 1_000_000:
        return sha256(file)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "binocle" / "sha256.json"
    checksums: dict[str, str] = {}
    try:
        checksums = json.loads(cache.read_text("utf-8"))
        if isinstance(checksums.get(key), str):
            return checksums[key]
    except (OSError, ValueError, AttributeError):
        checksums = {}
    value = sha256(file)
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        staging = cache.with_suffix(f".{os.getpid()}")
        staging.write_text(json.dumps({**checksums, key: value}), "utf-8")
        staging.replace(cache)
    except OSError:
        pass  # the home is read-only: hash again next time
    return value


def write_atomic(file: Path, text: str) -> None:
    """Write a text file so that a reader sees the old content or the new, and never a part."""
    staging = file.with_name(f".{file.name}")
    staging.write_text(text, "utf-8")
    staging.replace(file)


def json_or_make(file: Path, make: Callable[[], Any]) -> Any:
    """Read a value from a JSON file; if the file is missing, compute the value with `make` and write it first."""
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(make()))
    return json.loads(file.read_text("utf-8"))


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Expand "~" and "~user"; a path with an unknown user stays unchanged."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
