"""A vector index on disk: written aside, checksummed, renamed, and tied to the store version it covers."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from .errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .vector_index import Floats, Ids, VectorIndex, VectorIndexKind

_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Published:
    """The manifest: which kind, how many vectors of what dimension, of which store version, and each file's sha256."""

    kind: str
    count: int
    dim: int
    covers: int  # the store's count of row changes
    files: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> Published:
        try:
            manifest = cls(**json.loads((folder / _MANIFEST).read_text("utf-8")))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise DamagedError(f"{folder} is not a published vector index: {error}") from error
        numbers = all(type(n) is int and 0 <= n < 2**62 for n in (manifest.count, manifest.dim, manifest.covers))
        if not numbers or not isinstance(manifest.kind, str) or not isinstance(manifest.files, dict):
            raise DamagedError(f"{folder / _MANIFEST} holds impossible values")
        return manifest

    def load(self, folder: Path, kinds: dict[str, VectorIndexKind], *, check: bool = True) -> VectorIndex:
        """Open the index after checking every file against its checksum.

        :raises DamagedError: when a file is not what was written.
        """
        if self.kind not in kinds:
            raise DamagedError(f"{folder} is of kind {self.kind!r}, which this version does not know")
        kind = kinds[self.kind]
        if self.files.keys() != kind.files:
            raise DamagedError(
                f"{folder} lists the files {sorted(self.files)} where {sorted(kind.files)} were expected"
            )
        for name, expected in self.files.items() if check else ():
            try:
                actual = _sha256(folder / name)
            except OSError as error:
                raise DamagedError(f"{folder / name} cannot be read: {error.strerror}") from error
            if actual != expected:
                raise DamagedError(f"{folder / name} is not what was written: its checksum differs")
        index = kind.load(folder, dim=self.dim)
        if len(index.ids) != self.count:
            raise DamagedError(f"{folder} holds {len(index.ids)} vectors where its manifest says {self.count}")
        return index


def publish(
    parent: Path,
    kind: str,
    builder: VectorIndexKind,
    batches: Iterable[tuple[Ids, Floats]],
    *,
    dim: int,
    covers: int,
) -> str:
    """Build an index from the store's rows and move it into place whole; gives its folder's name."""
    parent.mkdir(exist_ok=True)
    name = f"{kind}-{covers}-{os.urandom(3).hex()}"  # never one that a reader may have open
    aside = parent / f".{name}"
    aside.mkdir()
    count = 0

    def counted() -> Iterable[tuple[Ids, Floats]]:
        nonlocal count
        for ids, vectors in batches:
            count += len(ids)
            yield ids, vectors

    builder.write(aside, counted(), dim=dim)
    files = {file.name: _sha256(file) for file in sorted(aside.iterdir())}
    manifest = Published(kind, count, dim, covers, files)
    (aside / _MANIFEST).write_text(json.dumps(asdict(manifest)), "utf-8")
    aside.rename(parent / name)
    return name


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
