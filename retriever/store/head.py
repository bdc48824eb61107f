"""The two JSON files of an index: settings.json, which a run may change, and HEAD.json, replaced by each commit."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.errors import DamagedError, InputError, NoIndexError, StoreError
from ...indexes.registry import IndexSpec
from ...indexes.tuning.requirements import Requirements
from ..models.identity import EncoderId
from .locations.location import ANY, HEAD, PREVIOUS

if TYPE_CHECKING:
    from .locations.location import Location

SETTINGS = "settings.json"
FORMAT = 4  # of an index that earlier versions may sync
SCOPED = 5  # of an index with folders, patterns or languages of OCR, which earlier versions would sync wrongly
_FIRST = 1  # the format with the encoder in settings.json, from before an index could change it


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an index: its format, its folder, the indexed parts of it, and how pictures are read."""

    format: int
    folder: str | None  # the indexed folder, absolute or relative to the index; None for added documents only
    encoder: EncoderId | None = None  # in format 1, where HEAD does not name it
    id: str | None = None  # random, to recognize an index that the user made; None in an index of an earlier version
    folders: tuple[str, ...] = ()  # of a collection: absolute paths of folders and files; `folder` is then "/"
    exclude: tuple[str, ...] = ()  # patterns as in .gitignore
    ocr: str = ""  # the languages to read pictures in, as Tesseract names them: "deu+eng"; "" to read none

    @classmethod
    def read(cls, location: Location) -> Settings:
        """Read settings.json.

        :raises DamagedError: when it is missing or was changed.
        """
        data, _ = read_json(location, SETTINGS)
        version = data.get("format")
        if type(version) is not int:
            raise _invalid(location, SETTINGS)
        if not _FIRST <= version <= SCOPED:
            raise StoreError(
                f"{location} has format {version}, and this version of Binocle reads {_FIRST} to {SCOPED}: "
                "a newer version made it, so upgrade Binocle (pip install -U binocle)"
            )
        encoder = None
        if version == _FIRST:
            values = {name: data.pop(name, None) for name in ("model", "fingerprint", "dim")}
            encoder = _encoder(values, location, SETTINGS)
        index_id, folder = data.pop("id", None), data.get("folder")
        if index_id is not None and not (isinstance(index_id, str) and re.fullmatch("[0-9a-f]{32}", index_id)):
            raise _invalid(location, SETTINGS)
        folders, exclude = (data.pop(name, []) if version == SCOPED else [] for name in ("folders", "exclude"))
        ocr = data.pop("ocr", "") if version == SCOPED else ""
        if data.keys() != {"format", "folder"} or not (folder is None or _is_text(folder)) or not _is_text(ocr):
            raise _invalid(location, SETTINGS)
        if not (_are_texts(folders) and _are_texts(exclude)) or (folders and not _is_collection(folder, folders)):
            raise _invalid(location, SETTINGS)
        return cls(version, folder, encoder, index_id, tuple(folders), tuple(exclude), ocr)

    def write(self, location: Location) -> None:
        """Write settings.json over any earlier one, in the newest form: without the encoder, which HEAD names."""
        newer = {name: value for name in ("folders", "exclude", "ocr") if (value := getattr(self, name))}
        version = SCOPED if newer else min(self.format, FORMAT)
        values = {"format": version, "folder": self.folder, **({"id": self.id} if self.id else {}), **newer}
        location.write(SETTINGS, json.dumps(values).encode(), over=ANY)


@dataclass(frozen=True, slots=True)
class Head:
    """The committed state: table versions, next free ids, the published vector index and the encoder."""

    documents: int
    chunks: int
    encoder: EncoderId
    previous: EncoderId | None = None  # the encoder before the last switch; its vectors stay for `rollback`
    next_document: int = 0
    next_chunk: int = 0
    rows: int = 0  # grows when chunks are added or removed; a vector index names the number that it covers
    vectors: str | None = None
    shards: tuple[str, ...] = ()  # further vector indexes, each with higher ids than the previous one
    neighbours: str | None = None  # the nearest passages of each passage
    words: tuple[str, ...] = ()  # segments of the inverted index, each with higher ids than the previous one
    index: IndexSpec = field(default_factory=IndexSpec)  # the chosen kind of vector index, to build it anew
    demand: Requirements | None = None  # the requirements of that choice, to measure a new index against
    commits: int = 0  # grows by one with each commit, so that readers see a change
    erase: bool = False  # deleted rows may still be on the disk: the next writer erases them
    tombstone_key: str = ""  # hashes the names of forgotten files; "" in an index of an earlier version

    @classmethod
    def read(cls, location: Location, encoder: EncoderId | None = None, *, file: str = HEAD) -> tuple[Head, str]:
        """Read HEAD.json and its tag.

        :param encoder: the encoder in the settings, for format 1: its HEAD names none.
        :param file: `PREVIOUS` to read the state before.
        :raises DamagedError: when the file is missing or was changed.
        """
        data, tag = read_json(location, file)
        data["encoder"] = _encoder(data["encoder"], location, file) if "encoder" in data else encoder
        if data.get("previous") is not None:
            data["previous"] = _encoder(data["previous"], location, file)
        try:
            data["index"] = IndexSpec(**data.get("index", {}))
            for name in ("shards", "words"):
                data[name] = _names(data.get(name, []))
            if data.get("demand") is not None:
                data["demand"] = Requirements(**data["demand"]).check()
            head = cls(**data)
        except (TypeError, InputError):
            raise _invalid(location, file) from None
        if not head._is_valid():
            raise _invalid(location, file)
        return head, tag

    def _is_valid(self) -> bool:
        spec, numbers = self.index, [self.documents, self.chunks, self.next_document, self.next_chunk]
        return (
            all(isinstance(text, str) for text in (spec.kind, spec.metric))
            and all(isinstance(values, dict) for values in (spec.build, spec.search))
            and all(map(_is_count, [*numbers, self.rows, self.commits]))
            and all(isinstance(name, str) and re.fullmatch(r"[\w-]+", name) for name in self.published)
            and self.encoder is not None
            and isinstance(self.erase, bool)
            and isinstance(self.tombstone_key, str)
            and re.fullmatch(r"([0-9a-f]{32})?", self.tombstone_key) is not None
        )

    @classmethod
    def of(cls, values: dict[str, Any]) -> Head:
        """Return the state from the values that `asdict` returned."""
        previous, demand = values["previous"], values["demand"]
        objects = {
            "encoder": EncoderId(**values["encoder"]),
            "previous": previous and EncoderId(**previous),
            "index": IndexSpec(**values["index"]),
            "demand": demand and Requirements(**demand),
        }
        return cls(**{**values, **objects})

    def write(self, location: Location, *, over: str, previous: Head | None = None) -> str:
        """Commit this state over the one with a tag; return its own tag.

        :param previous: the state to fall back to if this one is damaged; itself unless given.
        """
        head, before = (_to_json(state) for state in (self, previous or self))
        return location.commit(head, before, over=over)

    @property
    def parts(self) -> tuple[str, ...]:
        """The vector indexes to search together: none, one, or several with ascending ids."""
        return () if self.vectors is None else (self.vectors, *self.shards)

    @property
    def published(self) -> tuple[str, ...]:
        """The folders of `vectors/` that this state needs: vector indexes, segments of words, and neighbourhoods."""
        neighbours = () if self.neighbours is None else (self.neighbours,)
        return (*self.parts, *self.words, *neighbours)


def _to_json(head: Head) -> bytes:
    """Write a state. An encoder that earlier versions of Binocle know is written in their form."""
    values = asdict(head)
    for encoder in filter(None, [values["encoder"], values["previous"]]):
        if not encoder["base_fingerprint"]:
            del encoder["base"], encoder["base_fingerprint"]
        if not encoder["passage_tokens"]:
            del encoder["passage_tokens"]
    return json.dumps(values).encode()


def read_json(location: Location, name: str) -> tuple[dict[str, Any], str]:
    """Read a JSON object of an index, and its tag.

    :raises NoIndexError: when another process removed the index since it was found.
    :raises DamagedError: when the file alone is missing, or was changed.
    """
    try:
        data, tag = location.read(name)
        value = json.loads(data.decode("utf-8"))
    except FileNotFoundError:
        if not is_index(location):
            raise removed_meanwhile(location) from None
        remedy = removal(location)
        if name == SETTINGS:  # this file proves that the folder is an index
            remedy = f"{location} is no index, or not a whole one, so give another with --index"
        raise DamagedError(f"there is no {location}/{name}: {remedy}") from None
    except PermissionError:
        raise StoreError(f"{location}/{name} cannot be read: permission denied") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(f"{location}/{name} cannot be read ({error}): {removal(location)}") from None
    if not isinstance(value, dict):
        raise DamagedError(f"{location}/{name} is not a JSON object: {removal(location)}")
    return value, tag


def is_index(location: Location) -> bool:
    """Tell whether a state was ever committed there."""
    try:
        return location.exists(HEAD) or location.exists(PREVIOUS)
    except OSError:
        return True  # reading it raises the error


def removed_meanwhile(location: Location) -> NoIndexError:
    """Return the error of an index that was there a moment ago."""
    return NoIndexError(f"another process removed {location}: 'binocle index' makes it anew")


def _is_text(value: object) -> bool:
    """Whether a value is a text that the name of a file may contain."""
    # Python writes bytes that are not UTF-8 as U+DC80 to U+DCFF; no name has other surrogates.
    return isinstance(value, str) and not re.search("[\0\ud800-\udc7f\udd00-\udfff]", value)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(_is_text(text) and text for text in value)


def _names(value: object) -> tuple[Any, ...]:
    """Return the items of a list.

    :raises TypeError: when the value is not a list. A text would become a tuple of its characters.
    """
    if not isinstance(value, list):
        raise TypeError
    return tuple(value)


def _is_collection(folder: str | None, folders: list[str]) -> bool:
    """Whether these are absolute paths without `..`, as a collection has them."""
    return folder == "/" and all(path.startswith("/") and os.path.normpath(path) == path for path in folders)


def _is_count(value: object) -> bool:
    """Whether a value is a whole number that fits into an int64."""
    return type(value) is int and 0 <= value < 2**62


def removal(location: Location) -> str:
    """The remedy for a damaged file, for messages. Documents that a program added are then only in a backup."""
    return f"remove the folder {location} and index again, unless a backup has the file"


def _invalid(location: Location, name: str) -> DamagedError:
    return DamagedError(f"{location}/{name} is not what was written: {removal(location)}")


def _encoder(value: Any, location: Location, name: str) -> EncoderId:
    try:
        return EncoderId.of(value)
    except InputError:
        raise _invalid(location, name) from None
