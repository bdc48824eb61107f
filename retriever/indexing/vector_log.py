"""Vectors kept aside while an index changes its encoder, so that a killed switch goes on where it stopped."""

from __future__ import annotations

import hashlib
import shutil
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ...core.arrays import Floats


class VectorLog:
    """One file of records, only ever appended to: what text, a checksum, its vector.

    A record that is not whole, as a kill or a full disk leaves it, is as good as none.
    """

    def __init__(self, folder: Path, fingerprint: str, dim: int) -> None:
        self._file = folder / f"{fingerprint}-{dim}"
        self._record = np.dtype([("name", "V16"), ("crc", "<u4"), ("vector", "<f4", (dim,))])
        if folder.exists() and (self._file.is_symlink() or not self._file.exists()):  # of another encoder, or no file
            shutil.rmtree(folder)
        folder.mkdir(exist_ok=True)
        self._places = self._read()

    def _read(self) -> dict[bytes, int]:
        """Where the whole records are, by what they are of."""
        if not self._file.exists():
            return {}
        count = self._file.stat().st_size // self._record.itemsize
        with self._file.open("r+b") as stream:
            stream.truncate(count * self._record.itemsize)
        records = self._records() if count else ()
        return {
            record["name"].tobytes(): place
            for place, record in enumerate(records)
            if record["crc"] == _crc(record["name"].tobytes(), record["vector"])
        }

    def _records(self) -> NDArray[np.void]:
        return np.memmap(self._file, self._record, "r")

    def __contains__(self, text: str) -> bool:
        return _name(text) in self._places

    def add(self, texts: Sequence[str], vectors: Floats) -> None:
        """Keep the vectors of texts that are not held yet."""
        records = np.empty(len(texts), self._record)
        for record, text, vector in zip(records, texts, vectors, strict=True):
            name = _name(text)
            record["name"], record["crc"], record["vector"] = np.void(name), _crc(name, vector), vector
        with self._file.open("ab") as stream:
            start = stream.tell() // self._record.itemsize
            stream.write(records.tobytes())
        self._places.update({_name(text): start + place for place, text in enumerate(texts)})

    def vectors(self, texts: Sequence[str]) -> Floats:
        """The vectors of texts that are all held."""
        if not texts:
            return np.empty((0, self._record["vector"].shape[0]), np.float32)
        return self._records()["vector"][[self._places[_name(text)] for text in texts]]


def _name(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _crc(name: bytes, vector: Floats) -> int:
    return zlib.crc32(np.ascontiguousarray(vector, "<f4").tobytes(), zlib.crc32(name))
