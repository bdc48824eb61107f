"""The store: documents and chunks in two Lance tables, the single source of truth.

An index folder holds

    documents.lance  chunks.lance    two tables that `lancedb.connect(folder)` opens
    HEAD.previous.json               the state before, to fall back to if HEAD.json or its state is damaged
    HEAD.json                        the committed state: a version of each table, the vector index, the encoder,
                                     whether deleted rows are still to be erased from the disk, and the key that
                                     hashes the names of forgotten files
    settings.json                    the indexed folder or folders, the excluded patterns, and the languages of OCR
    full-text.json                   checksums of the segments of Lance's full-text index
    vectors/                         caches of chunks.lance: published vector indexes, segments of the inverted
                                     index, and neighbours of the passages
    switching/                       vectors of another encoder, while a switch to it embeds the passages anew
    queries-*.npy                    vectors of the queries that measured the vector index
    relevance-*.json                 how often the index is wrong about having an answer
    scanned.json                     when the last complete scan of the folder began
    heads.json                       the models that fill keys of the documents' metadata
    erase.json                       the deadline for erasing deleted rows from the disk, if some are there
    lock  lock.json                  the writer's lock, and the process that has it

On object storage (`s3://BUCKET/PREFIX`) the same objects lie below the prefix: see `location`.

A commit writes rows to the tables and then renames a new HEAD.json into place. That rename is the commit. Readers open
the versions that HEAD names, so they never see the leftovers of a killed writer. The next writer takes the tables back
to HEAD before it goes on. HEAD names the encoder too: a switch to another is a commit like any other, and the vectors
of one never meet the name of the other.

The index uses Lance itself, not the `lancedb` package: Lance imports six times as fast, and its tables are the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.errors import DamagedError, NoIndexError, StoreError, UntrustedError
from .derived import text_checksums
from .foreign import trust
from .foreign.confinement import check_files
from .head import FORMAT, Head, Settings, is_index, removal, removed_meanwhile
from .locations.location import ANY, HEAD, NEW, PREVIOUS
from .locations.open_location import is_s3, open_location
from .tables import FULL_TEXT, check, chunk_schema, document_schema, writing
from .tombstones import new_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ..models.identity import EncoderId
    from .locations.location import Location


@dataclass(frozen=True, slots=True)
class Store:
    """An open index: its location and its settings. `Snapshot` reads it, `open_writer` writes it."""

    location: Location
    settings: Settings
    trusted: bool  # otherwise nothing is written, and no model is loaded by a name from the index

    @property
    def path(self) -> Path:
        """The index folder; of an index on object storage, this machine's cache of it."""
        return self.location.cache

    @classmethod
    def create(
        cls,
        path: Path | Location,
        encoder: EncoderId,
        folder: str | None = None,
        *,
        folders: tuple[str, ...] = (),
        exclude: tuple[str, ...] = (),
        ocr: str = "",
    ) -> Store:
        """Create an empty index, or finish an unfinished one.

        :param folder: the folder to index, None for added documents only.
        :param folders: of a collection; see `Settings`, also for the other parameters.
        :raises StoreError: when something else is there.
        """
        location, new = open_location(path), False
        if not (location.is_free() or is_index(location)):
            raise _occupied(location)
        with location.locked(), writing(location):
            if not is_index(location):
                location.prepare()
                settings, new = Settings(FORMAT, folder, None, trust.new_id(), folders, exclude, ocr), True
                settings.write(location)  # first: it shows that the tables beside it are ours
                documents = location.table("documents").write(document_schema().empty_table())
                chunks = location.table("chunks").write(chunk_schema(encoder.dim).empty_table())
                chunks.create_scalar_index("context", "INVERTED", **FULL_TEXT)
                for name, table in (("documents", documents), ("chunks", chunks)):
                    check(location.table(name), table)  # else each later commit would find the damage
                head = Head(documents.version, chunks.version, encoder, tombstone_key=new_key())
                trust.remember(location, str(settings.id))
                head.write(location, over=NEW)
                text_checksums.note(location, text_checksums.segments(chunks))  # no file of an unfinished index
        return cls.open(location, trusted=new)

    @classmethod
    def open(cls, path: Path | Location, *, trusted: bool = False) -> Store:
        """Open an existing index.

        :param trusted: trust this index, even if the user did not make or allow it.
        :raises NoIndexError: when there is no index.
        :raises StoreError: when a symbolic link or a special file is in its folder.
        :raises DamagedError: when its settings cannot be read.
        """
        location = open_location(path)
        if not is_index(location):
            there = f" --index {location}" if is_s3(str(location)) else ""
            raise NoIndexError(f"no index at {location}: make one with 'binocle index FOLDER{there}'")
        check_files(location.cache)
        settings = Settings.read(location)
        return cls(location, settings, trusted or trust.is_trusted(location, settings.id))

    def check_trusted(self) -> None:
        """Check that the user made this index or allowed it.

        :raises UntrustedError: with the command that allows it.
        """
        if not self.trusted:
            raise UntrustedError(
                f"{self.location} is read-only: you did not make it here, or an earlier version did. "
                f"If you know where it comes from, allow it once by '{trust.command(self.location)}'"
            )

    def repairing(self, remedy: str) -> str:
        """Name the command that repairs the index; for an untrusted index, first the command that allows it.

        :param remedy: the effect of the repair, such as "builds it anew".
        """
        repair = f"'binocle verify --repair' {remedy}"
        if self.trusted:
            return repair
        allowing = f"if you know where the index comes from, '{trust.command(self.location)}' allows a repair"
        return f"{allowing}, then {repair}"

    def read_settings(self) -> Store:
        """Return this store with its present settings."""
        return replace(self, settings=Settings.read(self.location))

    def head(self) -> Head:
        """Read the committed state."""
        return self.tagged_head()[0]

    def head_or_previous(self) -> tuple[Head, str]:
        """Read the committed state; if that fails, the state before, with the reason."""
        try:
            return self.head(), ""
        except DamagedError as error:
            previous = self.previous()
            if previous is None:
                raise
            return previous, str(error)

    def tagged_head(self) -> tuple[Head, str]:
        """Read the committed state and its tag, which a writer names to replace it.

        :raises DamagedError: when it cannot be read.
        """
        try:
            return Head.read(self.location, self.settings.encoder)
        except DamagedError as error:
            if self.previous() is None:
                raise
            raise with_way_back(self, error) from error

    def previous(self) -> Head | None:
        """Read the state before the committed one; None if it was not kept or cannot be read."""
        try:
            return Head.read(self.location, self.settings.encoder, file=PREVIOUS)[0]
        except StoreError:
            return None


def _occupied(location: Location) -> StoreError:
    """Return the error of a place where no index can be made."""
    with contextlib.suppress(StoreError):
        Settings.read(location)
        return DamagedError(f"there is no {location}/{HEAD}: {removal(location)}")
    return StoreError(f"{location} is not empty and not an index: give another folder with --index")


def with_way_back(store: Store, error: DamagedError) -> DamagedError:
    """Return the error of a damaged state with the advice to go back to the state before."""
    if "verify --repair" in str(error):
        return error
    reason, *_ = str(error).split(": remove the folder")
    return DamagedError(f"{reason}: {store.repairing('goes back to the state before the last commit')}")


@contextlib.contextmanager
def locked(location: Location) -> Iterator[None]:
    """Hold the writer's lock of an existing index.

    :raises NoIndexError: when the process that had the lock before removed the index.
    """
    with location.locked():
        if not is_index(location):
            location.abandon()
            raise removed_meanwhile(location)
        yield


def go_back(store: Store, damaged: Head | None) -> None:
    """Commit the state before the damaged one again.

    :param damaged: the damaged state; None if it cannot be read. If another state is committed now, that stays.
    """
    store.check_trusted()
    with locked(store.location), writing(store.location):
        previous, present = store.previous(), None
        with contextlib.suppress(DamagedError):
            present = store.head()
        if previous is not None and present == damaged:
            replace(previous, commits=previous.commits + 2).write(store.location, over=ANY)


def allow(store: Store) -> Store:
    """Trust an index from now on. One of an earlier version gets an id.

    :raises StoreError: when it needs an id and cannot be written.
    """
    index_id = store.settings.id
    if index_id is None:
        with locked(store.location), writing(store.location):
            store = upgrade(store)
            index_id = store.settings.id or trust.new_id()
            store = replace(store, settings=replace(store.settings, id=index_id))
            store.settings.write(store.location)
    trust.remember(store.location, index_id)
    return replace(store, trusted=True)


def change_settings(store: Store, change: Callable[[Settings], Settings]) -> Store:
    """Change the folder of an index, the folders of a collection, the excluded patterns, or the languages of OCR.

    :param change: gets the present settings, under the lock.
    """
    store.check_trusted()
    with locked(store.location), writing(store.location):
        store = upgrade(store)
        settings = change(store.settings)
        if settings != store.settings:
            settings.write(store.location)
        return replace(store, settings=settings)


def upgrade(store: Store) -> Store:
    """Read the settings again, under the lock, and bring an earlier format up to date.

    HEAD then names the encoder, which format 1 left to the settings. A kill between the two writes does no harm.
    The rows of format 2 for forgotten files have names; a writer replaces them.
    """
    store = store.read_settings()
    if store.settings.format >= FORMAT:
        return store
    head, tag = store.tagged_head()
    head.write(store.location, over=tag)
    settings = replace(store.settings, format=FORMAT, encoder=None)
    settings.write(store.location)
    return replace(store, settings=settings)
