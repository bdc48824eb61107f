"""Build and publish vector indexes on disk: written aside, checksummed, renamed, and tied to a store version.

FAISS reads only the bytes that were written here. The store's commit has the name of the folder, and this name ends in
the checksum of the folder's manifest. The manifest has the checksum of every other file.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.files import sha256
from .faiss_kind import FAISS_FILE
from .manifest import IndexManifest
from .registry import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ..core.arrays import Floats, Ids
    from .base import VectorIndex
    from .manifest import BuiltIndex, IndexMetadata
    from .registry import IndexSpec

_VECTORS = "vectors.f32"  # of `flat`, beside the files of every kind


@dataclass(frozen=True, slots=True)
class BuiltFolder:
    """A `BuiltIndex` in a folder with a temporary name, which no other process knows yet."""

    folder: Path
    manifest: IndexManifest

    @property
    def memory(self) -> int:
        """Bytes that a search reads at random; mapped vectors do not count, because it compares only a few."""
        sizes = {name: (self.folder / name).stat().st_size for name in self.manifest.files}
        if sizes.get(FAISS_FILE):  # else every vector is compared
            del sizes[_VECTORS]
        return sum(sizes.values())

    def load(self) -> VectorIndex:
        """Open the index without comparing checksums: this process has just written the files."""
        return self.manifest.load(self.folder, check=False)

    def publish(self, metadata: IndexMetadata) -> str:
        """Rename the folder to its final name, in one step, and return that name."""
        return self.manifest.with_metadata(metadata).publish(self.folder)

    def share_files(self, built: BuiltIndex) -> None:
        """Replace files by hard links to equal files of `built`, by checksum, where the file system has links."""
        if not isinstance(built, BuiltFolder):
            return
        for name, checksum in self.manifest.files.items():
            if built.manifest.files.get(name) == checksum:
                with contextlib.suppress(OSError):  # a file system without links
                    os.link(built.folder / name, self.folder / ".shared")
                    (self.folder / ".shared").replace(self.folder / name)

    def discard(self) -> None:
        """Delete the folder, and ignore files that cannot be deleted."""
        shutil.rmtree(self.folder, ignore_errors=True)


def build(
    parent: Path, spec: IndexSpec, batches: Iterable[tuple[Ids, Floats]], *, dim: int, covers: int
) -> BuiltFolder:
    """Build an index of the store's rows in a temporary folder of `parent`.

    :param covers: the store's count of row changes.
    """
    parent.mkdir(exist_ok=True)
    staging = _staging_folder(parent)
    count = 0

    def counted() -> Iterable[tuple[Ids, Floats]]:
        nonlocal count
        for ids, vectors in batches:
            count += len(ids)
            yield ids, vectors

    try:
        KINDS[spec.kind].write(staging, counted(), dim=dim, metric=spec.metric, build=spec.build)
        files = {file.name: sha256(file) for file in sorted(staging.iterdir())}
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return BuiltFolder(
        staging, IndexManifest(spec.kind, count, dim, covers, files, spec.metric, spec.build, spec.search)
    )


def publish_files(
    parent: Path, kind: str, write: Callable[[Path], None], *, count: int, covers: int, description: dict[str, Any]
) -> str:
    """Publish files that are no vector index, such as a segment of an inverted index; return the folder's name.

    :param write: writes the files into a folder.
    :param count: the number of rows.
    :param description: JSON for the manifest.
    """
    parent.mkdir(exist_ok=True)
    staging = _staging_folder(parent)
    try:
        write(staging)
        files = {file.name: sha256(file) for file in sorted(staging.iterdir())}
        return IndexManifest(kind, count, 0, covers, files, build=description).publish(staging)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def amend(parent: Path, name: str, metadata: IndexMetadata) -> str:
    """Publish an index again with other search parameters or measurements; files are linked if possible."""
    manifest = IndexManifest.read(parent / name).with_metadata(metadata)
    staging = _staging_folder(parent)
    for file in manifest.files:
        try:
            os.link(parent / name / file, staging / file)
        except OSError:  # a file system without links
            shutil.copyfile(parent / name / file, staging / file)
    return manifest.publish(staging)


def _staging_folder(parent: Path) -> Path:
    folder = parent / f".{os.urandom(6).hex()}"
    folder.mkdir()
    return folder
