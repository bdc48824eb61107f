"""Vectors on disk while an index changes its encoder, so that a killed switch goes on where it stopped."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core.files import open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ...core.arrays import Floats


_MODEL = "model"  # the file with the encoder's name, for people
_LONGEST_NAME = 10_000  # bytes


class VectorLog:
    """An append-only file of records: a hash of the text, a checksum, the vector.

    A record that a kill or a full disk has cut short is ignored.
    """

    def __init__(self, file: Path, dim: int, model: str) -> None:
        self._file, self._record, self._model = file, _record(dim), model
        self._positions: dict[bytes, int] = {}

    @classmethod
    def open(cls, folder: Path, fingerprint: str, dim: int, model: str = "") -> VectorLog:
        """Open the log of an encoder in `folder`, and delete the log of any other encoder.

        :param model: the encoder's name, noted beside the first vectors.
        """
        file = folder / f"{fingerprint}-{dim}"
        if folder.exists() and (file.is_symlink() or not file.exists()):
            shutil.rmtree(folder)
        folder.mkdir(exist_ok=True)
        log = cls(file, dim, model)
        log._positions = log._read()
        return log

    def _read(self) -> dict[bytes, int]:
        """Map the hashes of the texts to the positions of their records, if those are intact."""
        if not self._file.exists():
            return {}
        count = self._file.stat().st_size // self._record.itemsize
        with self._file.open("r+b") as stream:
            stream.truncate(count * self._record.itemsize)
        records = self._records() if count else ()
        return {
            record["name"].tobytes(): position
            for position, record in enumerate(records)
            if record["crc"] == _crc(record["name"].tobytes(), record["vector"])
        }

    def _records(self) -> NDArray[np.void]:
        return np.memmap(self._file, self._record, "r")

    def __contains__(self, text: str) -> bool:
        return _name(text) in self._positions

    def add(self, texts: Sequence[str], vectors: Floats) -> None:
        """Append the vectors of texts that the log does not have yet."""
        records = np.empty(len(texts), self._record)
        for record, text, vector in zip(records, texts, vectors, strict=True):
            name = _name(text)
            record["name"], record["crc"], record["vector"] = np.void(name), _crc(name, vector), vector
        if self._model:
            (self._file.parent / _MODEL).write_text(self._model, "utf-8")
            self._model = ""
        with self._file.open("ab") as stream:
            start = stream.tell() // self._record.itemsize
            stream.write(records.tobytes())
        self._positions.update({_name(text): position for position, text in enumerate(texts, start)})

    def vectors(self, texts: Sequence[str]) -> Floats:
        """The vectors of texts that are all in the log, shape (len(texts), dim)."""
        if not texts:
            return np.empty((0, self._record["vector"].shape[0]), np.float32)
        return self._records()["vector"][[self._positions[_name(text)] for text in texts]]


@dataclass(frozen=True, slots=True)
class LoggedVectors:
    """The vectors that a switch has logged so far, of one encoder."""

    model: str
    fingerprint: str
    count: int


def logged_vectors(folder: Path) -> LoggedVectors | None:
    """Measure the log in a folder without reading it; None if there is none."""
    for file in sorted(folder.glob("*-*")):
        match = re.fullmatch(r"([0-9a-f]{32})-(\d{1,5})", file.name)
        with contextlib.suppress(OSError):
            if match and (dim := int(match[2])):
                count = _size(file) // _record(dim).itemsize
                return LoggedVectors(_model(folder), match[1], count)
    return None


def _size(file: Path) -> int:
    with open_regular(file) as stream:
        return stream.seek(0, 2)


def _model(folder: Path) -> str:
    with contextlib.suppress(OSError):
        return read_regular(folder / _MODEL, _LONGEST_NAME).decode("utf-8", "replace")
    return ""


def _record(dim: int) -> np.dtype[np.void]:
    return np.dtype([("name", "V16"), ("crc", "<u4"), ("vector", "<f4", (dim,))])


def _name(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _crc(name: bytes, vector: Floats) -> int:
    return zlib.crc32(np.ascontiguousarray(vector, "<f4").tobytes(), zlib.crc32(name))
