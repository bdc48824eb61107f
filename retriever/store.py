"""Documents and chunks in a LanceDB database: the single source of truth.

An index folder holds

    documents.lance  chunks.lance    two tables that `lancedb.connect(folder)` opens
    HEAD.json                        which version of each is committed, which vector index, and the encoder
    settings.json                    what the index was made for: the folder
    vectors/                         published vector indexes, caches of chunks.lance
    switching/                       vectors of another encoder, while a switch to it embeds the passages anew
    lock  lock.json                  held by the one writer, and who that is

A commit writes rows to the tables and then renames a new HEAD.json into place. That rename is the commit: readers
open the versions that HEAD names, so what a killed writer left behind is never seen, and the next writer takes the
tables back to HEAD before it goes on. HEAD names the encoder too, so a switch to another is a commit like any other,
and the vectors of one never meet the name of the other. Lance itself is used rather than the `lancedb` package
because it imports six times as fast and reads and writes the same tables.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import lance

from ..indexes.errors import LockedError, NoIndexError, StoreError
from .settings import FORMAT, EncoderId, Head, Settings, read_json, write_json
from .snapshot import Snapshot
from .tables import FULL_TEXT, chunk_schema, document_schema
from .writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Store:
    """An index folder. Reading needs no lock; `write` takes the only one."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings

    @classmethod
    def create(cls, path: Path, encoder: EncoderId, folder: str | None = None) -> Store:
        """Make an empty index folder, or finish one that was never finished.

        :param folder: what is to be indexed, None for added documents only.
        """
        if path.exists() and any(path.iterdir()) and not (path / "lock").exists():
            raise StoreError(f"{path} is not empty and not an index: give another folder with --index")
        path.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if not (path / "HEAD.json").exists():
                (path / ".gitignore").write_text("*\n", "utf-8")
                for name in ("documents.lance", "chunks.lance", "vectors"):
                    shutil.rmtree(path / name, ignore_errors=True)
                documents = lance.write_dataset(document_schema().empty_table(), path / "documents.lance")
                chunks = lance.write_dataset(chunk_schema(encoder.dim).empty_table(), path / "chunks.lance")
                chunks.create_scalar_index("context", "INVERTED", **FULL_TEXT)
                Settings(FORMAT, folder).write(path / "settings.json")
                Head(documents.version, chunks.version, encoder).write(path / "HEAD.json")
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Store:
        """
        :raises NoIndexError: when there is no index in that folder.
        :raises DamagedError: when its settings are not what was written.
        """
        if not (path / "HEAD.json").is_file():
            raise NoIndexError(f"no index at {path}: make one with 'binocle index FOLDER'")
        return cls(path, Settings.read(path / "settings.json"))

    def head(self) -> Head:
        return Head.read(self.path / "HEAD.json", self.settings.encoder)

    def set_folder(self, folder: str) -> None:
        """Say which folder this index is of, for an index made by adding documents."""
        with _locked(self.path):
            self._modernise()
            self.settings = replace(self.settings, folder=folder)
            self.settings.write(self.path / "settings.json")

    def snapshot(self) -> Snapshot:
        """The committed state, for reading. It stays as it is while others write."""
        return Snapshot(self, self.head())

    @contextlib.contextmanager
    def write(self) -> Iterator[Writer]:
        """Hold the writer's lock.

        :raises LockedError: at once, naming the process that holds it.
        """
        with _locked(self.path):
            self._modernise()
            yield Writer(self)

    def _modernise(self) -> None:
        """Have HEAD name the encoder, where an earlier version left that to the settings. Killed anywhere: either."""
        self.settings = Settings.read(self.path / "settings.json")
        if self.settings.format != FORMAT:
            self.head().write(self.path / "HEAD.json")
            self.settings = replace(self.settings, format=FORMAT, encoder=None)
            self.settings.write(self.path / "settings.json")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    holder = path / "lock.json"
    try:
        with FileLock(path / "lock", timeout=0):
            write_json(holder, {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%H:%M:%S")})
            yield
    except Timeout:
        try:
            who = read_json(holder)
            whose = f"process {who['pid']} on {who['host']}, since {who['since']}"
        except (StoreError, KeyError, TypeError):
            whose = "another process"
        raise LockedError(f"{path} is being written by {whose}: try again when it has finished") from None
