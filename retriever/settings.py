"""What an index folder says of itself: settings.json, written once, and HEAD.json, moved by every commit."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..indexes.errors import DamagedError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

_T = TypeVar("_T")
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Settings:
    """What an index was made for. Written once."""

    format: int
    folder: str | None  # absolute path of the indexed folder; None when only documents were added
    model: str
    fingerprint: str
    dim: int

    @classmethod
    def read(cls, file: Path) -> Settings:
        found = _from_json(cls, file)
        texts = (found.model, found.fingerprint, found.folder or "")
        if (
            not all(isinstance(text, str) and "\0" not in text for text in texts)
            or not _is_count(found.dim)
            or not 0 < found.dim < 2**16
        ):
            raise DamagedError(f"{file} is not what was written: remove the folder {file.parent} and index again")
        return found


@dataclass(frozen=True, slots=True)
class Head:
    """The committed state: table versions, next free ids, and the published vector index."""

    documents: int
    chunks: int
    next_document: int = 0
    next_chunk: int = 0
    rows: int = 0  # grows when rows of chunks come or go: what a vector index covers
    vectors: str | None = None
    commits: int = 0  # grows by one a commit: readers compare it to know whether anything changed

    @classmethod
    def read(cls, file: Path) -> Head:
        found = _from_json(cls, file)
        counts = [value for name, value in asdict(found).items() if name != "vectors"]
        named = found.vectors is None or (isinstance(found.vectors, str) and re.fullmatch(r"[\w-]+", found.vectors))
        if not all(map(_is_count, counts)) or not named:
            raise DamagedError(f"{file} is not what was written: remove the folder {file.parent} and index again")
        return found


def read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text("utf-8"))
    except PermissionError:
        raise StoreError(f"{file} cannot be read: permission denied") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(
            f"{file} cannot be read ({error}): remove the folder {file.parent} and index again"
        ) from None
    if not isinstance(value, dict):
        raise DamagedError(f"{file} is not a JSON object: remove the folder {file.parent} and index again")
    return value


def _from_json(kind: type[_T], file: Path) -> _T:
    try:
        return kind(**read_json(file))
    except TypeError as error:
        raise DamagedError(
            f"{file} is not what was written ({error}): remove the folder {file.parent} and index again"
        ) from None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


def write_json(file: Path, value: dict[str, Any]) -> None:
    aside = file.with_name(f".{file.name}")  # one writer at a time, so that what a killed one left is written over
    with aside.open("w", encoding="utf-8") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(file)
