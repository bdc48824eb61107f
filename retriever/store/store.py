"""Documents and chunks in a LanceDB database: the single source of truth.

An index folder holds

    documents.lance  chunks.lance    two tables that `lancedb.connect(folder)` opens
    HEAD.json                        which version of each is committed, which vector index, and the encoder;
                                     whether what was deleted is still to be erased
    settings.json                    what the index was made for: the folder
    vectors/                         published vector indexes, caches of chunks.lance
    switching/                       vectors of another encoder, while a switch to it embeds the passages anew
    queries-*.npy                    vectors of the queries that a recall was proven with, asked or made of passages
    lock  lock.json                  held by the one writer, and who that is

On object storage (`s3://BUCKET/PREFIX`) the same objects lie below the prefix: see `place`.

A commit writes rows to the tables and then renames a new HEAD.json into place. That rename is the commit: readers
open the versions that HEAD names, so what a killed writer left behind is never seen, and the next writer takes the
tables back to HEAD before it goes on. HEAD names the encoder too, so a switch to another is a commit like any other,
and the vectors of one never meet the name of the other. Lance itself is used rather than the `lancedb` package
because it imports six times as fast and reads and writes the same tables.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.errors import NoIndexError, StoreError
from .head import FORMAT, HEAD, Head, Settings
from .location import NEW
from .open_location import open_location
from .snapshot import Snapshot
from .tables import FULL_TEXT, chunk_schema, document_schema, writing
from .writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ...indexes.base import VectorIndex
    from ...indexes.manifest import IndexManifest
    from ...indexes.registry import IndexSpec
    from ...indexes.sharded import BuiltShards
    from ..models.identity import EncoderId
    from .location import Location
    from .vector_index import EncoderOf


class Store:
    """An index folder. Reading needs no lock; `write` takes the only one."""

    def __init__(self, place: Location, settings: Settings) -> None:
        self.place = place
        self.settings = settings
        self.gpu = False  # whether the vectors are to be compared on GPUs
        # Who else searches vectors, and builds what is searched, where others do:
        self.serve: Callable[[Store, Head], tuple[VectorIndex, IndexManifest]] | None = None
        self.spread: Callable[[Snapshot, IndexSpec], BuiltShards | None] | None = None

    @property
    def path(self) -> Path:
        """The index folder; of an index on object storage, where this machine keeps what it needs of it at hand."""
        return self.place.cache

    @classmethod
    def create(cls, where: Path | Location, encoder: EncoderId, folder: str | None = None) -> Store:
        """Make an empty index folder, or finish one that was never finished.

        :param folder: what is to be indexed, None for added documents only.
        """
        place = open_location(where)
        if not (place.is_free() or _is_index(place)):
            raise StoreError(f"{place} is not empty and not an index: give another folder with --index")
        with place.locked(), writing(place):
            if not _is_index(place):
                place.prepare()
                Settings(FORMAT, folder).write(place)  # first: it says whose the tables beside it are
                documents = place.table("documents").write(document_schema().empty_table())
                chunks = place.table("chunks").write(chunk_schema(encoder.dim).empty_table())
                chunks.create_scalar_index("context", "INVERTED", **FULL_TEXT)
                Head(documents.version, chunks.version, encoder).write(place, over=NEW)
        return cls.open(place)

    @classmethod
    def open(cls, where: Path | Location) -> Store:
        """
        :raises NoIndexError: when there is no index in that folder.
        :raises DamagedError: when its settings are not what was written.
        """
        place = open_location(where)
        if not _is_index(place):
            raise NoIndexError(f"no index at {place}: make one with 'binocle index FOLDER'")
        return cls(place, Settings.read(place))

    def head(self) -> Head:
        return self.tagged_head()[0]

    def tagged_head(self) -> tuple[Head, str]:
        """The committed state, and what a writer commits the next one over."""
        return Head.read(self.place, self.settings.encoder)

    def set_folder(self, folder: str) -> None:
        """Say which folder this index is of, for an index made by adding documents."""
        with self.place.locked(), writing(self.place):
            self._modernise()
            self.settings = replace(self.settings, folder=folder)
            self.settings.write(self.place)

    def snapshot(self) -> Snapshot:
        """The committed state, for reading. It stays as it is while others write."""
        return Snapshot(self, self.head())

    @contextlib.contextmanager
    def write(self, encoder_of: EncoderOf | None = None) -> Iterator[Writer]:
        """Hold the writer's lock.

        :param encoder_of: loads an encoder, to make queries with that a recall is proven with.
        :raises LockedError: at once, naming the process that holds it.
        """
        with self.place.locked():
            with writing(self.place):
                self._modernise()
                writer = Writer(self, encoder_of)
            yield writer

    def _modernise(self) -> None:
        """Have HEAD name the encoder, where an earlier version left that to the settings. Killed anywhere: either."""
        self.settings = Settings.read(self.place)
        if self.settings.format != FORMAT:
            head, tag = self.tagged_head()
            head.write(self.place, over=tag)
            self.settings = replace(self.settings, format=FORMAT, encoder=None)
            self.settings.write(self.place)


def _is_index(place: Location) -> bool:
    try:
        place.read(HEAD)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    except OSError:
        return True  # what is wrong with it is said when it is read
    return True
