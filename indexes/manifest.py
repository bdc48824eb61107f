"""The manifest of a saved index, and the protocol of an index that is built but not yet published."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from ..core.errors import DamagedError, InputError
from ..core.files import known_sha256, read_regular, sha256
from .registry import KINDS, IndexSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .base import VectorIndex

FILE = "manifest.json"
_MAX_BYTES = 2**26  # of a manifest
_FORMAT = 1
_JSON_KEYS = {"measurements": "measured", "nonce": "made"}  # fields with another name in the file


@dataclass(frozen=True, slots=True)
class IndexMetadata:
    """Results of measuring an index between its building and its publication."""

    search: dict[str, Any] | None = None  # search parameters to publish it with; None: as in its spec
    measurements: dict[str, Any] = field(default_factory=dict)  # JSON, such as recall and latencies


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """The kind of a saved index, its size, the store version that it covers, and the sha256 of each file."""

    kind: str
    count: int
    dim: int
    covers: int  # the store's count of row changes
    files: dict[str, str]
    metric: str = "ip"
    build: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    measurements: dict[str, Any] = field(default_factory=dict)
    format: int = _FORMAT
    nonce: str = ""  # random: no two manifests share a checksum, so no folder's name is used twice

    @property
    def spec(self) -> IndexSpec:
        """The kind, the parameters and the metric: all that a new build of this index needs."""
        return IndexSpec(self.kind, self.build, self.search, self.metric)

    @classmethod
    def read(cls, folder: Path, *, dim: int | None = None) -> IndexManifest:
        """Read the manifest of a published index.

        :raises DamagedError: when the manifest does not have the checksum in the folder's name.
        """
        try:
            data = read_regular(folder / FILE, _MAX_BYTES)
            values = json.loads(data)
            manifest = cls(**{name: values.pop(key) for name, key in _JSON_KEYS.items() if key in values}, **values)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedError(f"{folder} is not a published vector index: {error}") from error
        if not manifest._has_valid_types():
            raise DamagedError(f"{folder / FILE} holds impossible values")
        if manifest.format != _FORMAT:
            raise DamagedError(f"{folder} has format {manifest.format!r}, this version reads {_FORMAT}")
        if dim not in (None, manifest.dim):
            raise DamagedError(f"{folder} holds vectors of dimension {manifest.dim} where {dim} was expected")
        if not folder.name.endswith(f"-{_checksum(data)}"):
            raise DamagedError(f"{folder / FILE} was changed after it was written: its checksum differs")
        return manifest

    def _has_valid_types(self) -> bool:
        counts, texts = (self.count, self.dim, self.covers), (self.kind, self.metric)
        objects = (self.files, self.build, self.search, self.measurements)
        return (
            all(type(number) is int and 0 <= number < 2**62 for number in counts)
            and all(isinstance(value, dict) for value in objects)
            and all(isinstance(text, str) for text in texts)
        )

    def with_metadata(self, metadata: IndexMetadata) -> IndexManifest:
        """Return the manifest with the search parameters and measurements of `metadata`.

        :raises InputError: when such an index cannot be searched with these parameters.
        """
        search = self.search if metadata.search is None else metadata.search
        replace(self.spec, search=search).check(self.dim)
        return replace(self, search=search, measurements=metadata.measurements)

    def load(self, folder: Path, *, check: bool = True) -> VectorIndex:
        """Open the index.

        :param check: compare every file with its checksum first; a large file again only after a change.
        :raises DamagedError: when a file was changed or damaged.
        """
        if self.kind not in KINDS:
            raise DamagedError(f"{folder} is of kind {self.kind!r}, which this version does not know")
        kind = KINDS[self.kind]
        if self.files.keys() != kind.files:
            raise DamagedError(
                f"{folder} lists the files {sorted(self.files)} where {sorted(kind.files)} were expected"
            )
        try:
            self.spec.check(self.dim)
        except InputError as error:
            raise DamagedError(f"{folder} has a manifest that no index can have: {error}") from error
        if check:
            self._check(folder, known_sha256)
        index = kind.load(folder, dim=self.dim, metric=self.metric, build=self.build, search=self.search)
        if len(index.ids) != self.count:
            raise DamagedError(f"{folder} holds {len(index.ids)} vectors where its manifest says {self.count}")
        return index

    def check_files(self, folder: Path) -> None:
        """Read every file and compare it with its checksum.

        :raises DamagedError: when one was changed or damaged.
        """
        self._check(folder, sha256)

    def _check(self, folder: Path, digest: Callable[[Path], str]) -> None:
        for name, expected in self.files.items():
            try:
                actual = digest(folder / name)
            except OSError as error:
                raise DamagedError(f"{folder / name} cannot be read: {error.strerror}") from error
            if actual != expected:
                raise DamagedError(f"{folder / name} was changed after it was written: its checksum differs")

    def publish(self, staging: Path) -> str:
        """Write the manifest into the folder of a built index and rename the folder; return its new name."""
        values = asdict(replace(self, nonce=secrets.token_hex()))
        data = json.dumps({_JSON_KEYS.get(name, name): value for name, value in values.items()}).encode()
        name = f"{self.kind}-{self.covers}-{_checksum(data)}"
        (staging / FILE).write_bytes(data)
        staging.rename(staging.parent / name)
        return name


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


class BuiltIndex(Protocol):
    """A built index that is not published yet: in a folder here, or in shards elsewhere."""

    @property
    def manifest(self) -> IndexManifest:
        """The manifest before publication, without measurements; for shards, one for all of them."""
        ...

    @property
    def memory(self) -> int:
        """Bytes that a search reads at random."""
        ...

    def load(self) -> VectorIndex:
        """Open it."""
        ...

    def publish(self, metadata: IndexMetadata) -> str | tuple[str, ...]:
        """Make it searchable; return the name of its folder, or the names of its shards."""
        ...

    def share_files(self, built: BuiltIndex) -> None:
        """Keep one copy of the files that this index and another have in common, such as the vectors."""
        ...

    def discard(self) -> None:
        """Delete it."""
        ...
