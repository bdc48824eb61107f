"""A vector index on disk: written aside, checksummed, renamed, and tied to the store version it covers.

Nothing is read that was not written here: the folder's name ends in the checksum of its manifest, the store's commit
holds that name, and the manifest holds the checksum of every other file. Bytes that match none never reach FAISS.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..core.errors import DamagedError, InputError
from ..core.files import sha256
from .faiss_kind import FILE
from .registry import KINDS, Spec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..core.arrays import Floats, Ids
    from .base import VectorIndex
    from .sharded import BuiltShards

_MANIFEST = "manifest.json"
_FORMAT = 1
_VECTORS = "vectors.f32"  # of `flat`, beside the files of every kind


@dataclass(frozen=True, slots=True)
class IndexMetadata:
    """What is found out about an index between its building and its publication."""

    search: dict[str, Any] | None = None  # the search parameters to publish it with; None: those it was built for
    measured: dict[str, Any] = field(default_factory=dict)  # JSON, such as recall and latencies


@dataclass(frozen=True, slots=True)
class Published:
    """The manifest: which kind, how many vectors of what dimension, of which store version, and each file's sha256."""

    kind: str
    count: int
    dim: int
    covers: int  # the store's count of row changes
    files: dict[str, str]
    metric: str = "ip"
    build: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)
    format: int = _FORMAT
    made: str = ""  # random: no two manifests have the same checksum, so that no folder's name is used twice

    @property
    def spec(self) -> Spec:
        return Spec(self.kind, self.build, self.search, self.metric)

    @classmethod
    def read(cls, folder: Path, *, dim: int | None = None) -> Published:
        """The manifest of a folder.

        :raises DamagedError: when the manifest is not the one that the folder is named after.
        """
        try:
            data = (folder / _MANIFEST).read_bytes()
            manifest = cls(**json.loads(data))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise DamagedError(f"{folder} is not a published vector index: {error}") from error
        numbers = all(type(n) is int and 0 <= n < 2**62 for n in (manifest.count, manifest.dim, manifest.covers))
        objects = all(isinstance(o, dict) for o in (manifest.files, manifest.build, manifest.search, manifest.measured))
        texts = all(isinstance(text, str) for text in (manifest.kind, manifest.metric))
        if not numbers or not objects or not texts:
            raise DamagedError(f"{folder / _MANIFEST} holds impossible values")
        if manifest.format != _FORMAT:
            raise DamagedError(f"{folder} has format {manifest.format!r}, this version reads {_FORMAT}")
        if dim not in (None, manifest.dim):
            raise DamagedError(f"{folder} holds vectors of dimension {manifest.dim} where {dim} was expected")
        if not folder.name.endswith(f"-{_short(data)}"):
            raise DamagedError(f"{folder / _MANIFEST} is not what was written: its checksum differs")
        return manifest

    def settled(self, settled: IndexMetadata) -> Published:
        """The manifest with what was found out.

        :raises InputError: when such an index cannot be searched so.
        """
        search = self.search if settled.search is None else settled.search
        replace(self.spec, search=search).checked(self.dim)
        return replace(self, search=search, measured=settled.measured)

    def load(self, folder: Path, *, check: bool = True) -> VectorIndex:
        """Open the index after checking every file against its checksum.

        :raises DamagedError: when a file is not what was written.
        """
        if self.kind not in KINDS:
            raise DamagedError(f"{folder} is of kind {self.kind!r}, which this version does not know")
        kind = KINDS[self.kind]
        if self.files.keys() != kind.files:
            raise DamagedError(
                f"{folder} lists the files {sorted(self.files)} where {sorted(kind.files)} were expected"
            )
        try:
            self.spec.checked(self.dim)
        except InputError as error:
            raise DamagedError(f"{folder} says what no index can be: {error}") from error
        for name, expected in self.files.items() if check else ():
            try:
                actual = sha256(folder / name)
            except OSError as error:
                raise DamagedError(f"{folder / name} cannot be read: {error.strerror}") from error
            if actual != expected:
                raise DamagedError(f"{folder / name} is not what was written: its checksum differs")
        index = kind.load(folder, dim=self.dim, metric=self.metric, build=self.build, search=self.search)
        if len(index.ids) != self.count:
            raise DamagedError(f"{folder} holds {len(index.ids)} vectors where its manifest says {self.count}")
        return index


@dataclass(frozen=True, slots=True)
class Built:
    """An index that was written aside, and of which nobody else knows yet."""

    folder: Path
    manifest: Published

    @property
    def memory(self) -> int:
        """Bytes that a search goes through at random: all but vectors that are mapped to compare a few of them."""
        sizes = {name: (self.folder / name).stat().st_size for name in self.manifest.files}
        if sizes.get(FILE):  # else every vector is compared
            del sizes[_VECTORS]
        return sum(sizes.values())

    def load(self) -> VectorIndex:
        return self.manifest.load(self.folder, check=False)

    def put(self, settled: IndexMetadata) -> str:
        """Move it into place, whole; gives its folder's name."""
        return _put(self.manifest.settled(settled), self.folder)

    def share(self, other: Built | BuiltShards) -> None:
        """Have one copy of the files that are the same in both, such as the vectors."""
        if not isinstance(other, Built):
            return
        for name, checksum in self.manifest.files.items():
            if other.manifest.files.get(name) == checksum:
                with contextlib.suppress(OSError):  # a file system without links
                    os.link(other.folder / name, self.folder / ".shared")
                    (self.folder / ".shared").replace(self.folder / name)

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def build(parent: Path, spec: Spec, batches: Iterable[tuple[Ids, Floats]], *, dim: int, covers: int) -> Built:
    """Build an index from the store's rows, aside."""
    parent.mkdir(exist_ok=True)
    aside = parent / f".{os.urandom(6).hex()}"
    aside.mkdir()
    count = 0

    def counted() -> Iterable[tuple[Ids, Floats]]:
        nonlocal count
        for ids, vectors in batches:
            count += len(ids)
            yield ids, vectors

    try:
        KINDS[spec.kind].write(aside, counted(), dim=dim, metric=spec.metric, build=spec.build)
        files = {file.name: sha256(file) for file in sorted(aside.iterdir())}
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return Built(aside, Published(spec.kind, count, dim, covers, files, spec.metric, spec.build, spec.search))


def amend(parent: Path, name: str, settled: IndexMetadata) -> str:
    """Publish an index again with other search parameters or measurements; its files are shared, not copied."""
    manifest = Published.read(parent / name).settled(settled)
    aside = parent / f".{os.urandom(6).hex()}"
    aside.mkdir()
    for file in manifest.files:
        try:
            os.link(parent / name / file, aside / file)
        except OSError:  # a file system without links
            shutil.copyfile(parent / name / file, aside / file)
    return _put(manifest, aside)


def _put(manifest: Published, aside: Path) -> str:
    data = json.dumps(asdict(replace(manifest, made=os.urandom(8).hex()))).encode()
    name = f"{manifest.kind}-{manifest.covers}-{_short(data)}"
    (aside / _MANIFEST).write_bytes(data)
    aside.rename(aside.parent / name)
    return name


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
