"""What an index folder says of itself: settings.json, written once, and HEAD.json, moved by every commit."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.checks import is_count
from ...core.errors import DamagedError, InputError, StoreError
from ...indexes.registry import IndexSpec
from ...indexes.tuning.benchmark import Requirements
from ..models.identity import EncoderId
from .location import ANY

if TYPE_CHECKING:
    from .location import Location

HEAD = "HEAD.json"
_SETTINGS = "settings.json"
FORMAT = 2
_FIRST = 1  # the format whose settings.json named the encoder, which could not change then


@dataclass(frozen=True, slots=True)
class Settings:
    """What an index was made for."""

    format: int
    folder: str | None  # absolute path of the indexed folder; None when only documents were added
    encoder: EncoderId | None = None  # where HEAD does not name it yet: format 1

    @classmethod
    def read(cls, place: Location) -> Settings:
        file, (data, _) = f"{place}/{_SETTINGS}", read_json(place, _SETTINGS)
        written = data.get("format")
        if type(written) is not int:
            raise _impossible(file)
        if written not in (_FIRST, FORMAT):
            raise StoreError(f"{place} has format {written}, this version reads {FORMAT}: remove it and index again")
        encoder = None
        if written == _FIRST:
            encoder = _encoder({name: data.pop(name, None) for name in ("model", "fingerprint", "dim")}, file)
        folder = data.get("folder")
        if data.keys() != {"format", "folder"} or not isinstance(folder, (str, type(None))) or "\0" in (folder or ""):
            raise _impossible(file)
        return cls(written, folder, encoder)

    def write(self, place: Location) -> None:
        place.write(_SETTINGS, json.dumps({"format": self.format, "folder": self.folder}).encode(), over=ANY)


@dataclass(frozen=True, slots=True)
class Head:
    """The committed state: table versions, next free ids, the published vector index, and whose vectors these are."""

    documents: int
    chunks: int
    encoder: EncoderId
    previous: EncoderId | None = None  # the encoder before the last switch, whose vectors are kept
    next_document: int = 0
    next_chunk: int = 0
    rows: int = 0  # grows when rows of chunks come or go: what a vector index covers
    vectors: str | None = None
    shards: tuple[str, ...] = ()  # further vector indexes, each of the ids above those of the one before
    index: IndexSpec = field(default_factory=IndexSpec)  # the kind of vector index that was chosen, to build it anew
    demand: Requirements | None = None  # what that kind was chosen for, to measure it again when it is built anew
    commits: int = 0  # grows by one a commit: readers compare it to know whether anything changed
    erase: bool = False  # whether what was deleted may still be on the disk: the next writer erases it

    @classmethod
    def read(cls, place: Location, encoder: EncoderId | None = None) -> tuple[Head, str]:
        """HEAD.json and its tag.

        :param encoder: what the settings name, for an index of the format whose HEAD does not.
        """
        file, (data, tag) = f"{place}/{HEAD}", read_json(place, HEAD)
        data["encoder"] = _encoder(data["encoder"], file) if "encoder" in data else encoder
        if data.get("previous") is not None:
            data["previous"] = _encoder(data["previous"], file)
        try:
            data["index"] = IndexSpec(**data.get("index", {}))
            data["shards"] = tuple(data.get("shards", ()))
            if data.get("demand") is not None:
                data["demand"] = Requirements(**data["demand"]).check()
            found = cls(**data)
        except (TypeError, InputError):
            raise _impossible(file) from None
        chosen = found.index
        if not all(isinstance(text, str) for text in (chosen.kind, chosen.metric)) or not all(
            isinstance(values, dict) for values in (chosen.build, chosen.search)
        ):
            raise _impossible(file)
        counts = [getattr(found, name) for name in ("documents", "chunks", "next_document", "next_chunk")]
        named = all(isinstance(name, str) and re.fullmatch(r"[\w-]+", name) for name in found.parts)
        counted = all(map(is_count, [*counts, found.rows, found.commits]))
        if not counted or not named or found.encoder is None or not isinstance(found.erase, bool):
            raise _impossible(file)
        return found, tag

    @classmethod
    def of(cls, values: dict[str, Any]) -> Head:
        """The state that `asdict` made these values of."""
        previous, demand = values["previous"], values["demand"]
        made = {
            "encoder": EncoderId(**values["encoder"]),
            "previous": previous and EncoderId(**previous),
            "index": IndexSpec(**values["index"]),
            "demand": demand and Requirements(**demand),
        }
        return cls(**{**values, **made})

    def write(self, place: Location, *, over: str) -> str:
        """Commit this state in the place of the one with that tag; gives its tag."""
        return place.write(HEAD, json.dumps(asdict(self)).encode(), over=over)

    @property
    def parts(self) -> tuple[str, ...]:
        """The vector indexes that are searched together: none, one, or several with ascending ids."""
        return () if self.vectors is None else (self.vectors, *self.shards)


def read_json(place: Location, name: str) -> tuple[dict[str, Any], str]:
    """A file of an index, and its tag."""
    try:
        data, tag = place.read(name)
        value = json.loads(data.decode("utf-8"))
    except FileNotFoundError:
        raise DamagedError(
            f"there is no {place}/{name}: {place} is no index, or not a whole one, so give another with --index"
        ) from None
    except PermissionError:
        raise StoreError(f"{place}/{name} cannot be read: permission denied") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(
            f"{place}/{name} cannot be read ({error}): remove the folder {place} and index again"
        ) from None
    if not isinstance(value, dict):
        raise DamagedError(f"{place}/{name} is not a JSON object: remove the folder {place} and index again")
    return value, tag


def _impossible(file: str) -> DamagedError:
    folder = file.rpartition("/")[0]
    return DamagedError(f"{file} is not what was written: remove the folder {folder} and index again")


def _encoder(value: Any, file: str) -> EncoderId:
    try:
        return EncoderId.of(value)
    except InputError:
        raise _impossible(file) from None
