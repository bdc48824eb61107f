"""Documents and chunks in a LanceDB database: the single source of truth.

An index folder holds

    documents.lance  chunks.lance    two tables that `lancedb.connect(folder)` opens
    HEAD.json                        which version of each is committed, and which vector index is published
    settings.json                    what the index was made for: the encoder and its fingerprint, the folder
    vectors/                         published vector indexes, caches of chunks.lance
    lock  lock.json                  held by the one writer, and who that is

A commit writes rows to the tables and then renames a new HEAD.json into place. That rename is the commit: readers
open the versions that HEAD names, so what a killed writer left behind is never seen, and the next writer takes the
tables back to HEAD before it goes on. Lance itself is used rather than the `lancedb` package because it imports six
times as fast and reads and writes the same tables.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import time
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import lance
import numpy as np
import pyarrow as pa

from ..indexes.errors import DamagedError, LockedError, NoIndexError, StoreError
from ..indexes.flat import FlatIndex
from ..indexes.kinds import KINDS
from ..indexes.published import Published, publish

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ..indexes.vector_index import VectorIndex

_T = TypeVar("_T")
FORMAT = 1
# Rows that may be newer than the vector index, or deleted from it, before it is built anew: they are searched
# exactly or masked meanwhile, so this trades a little search time for a lot of writing.
_STALE_ROWS = 1_000
_STALE_SHARE = 0.1
_KEEP_VERSIONS = timedelta(minutes=10)  # a reader may still be at an older version for this long


def document_schema() -> pa.Schema:
    return pa.schema(
        {
            "id": pa.int64(),
            "path": pa.string(),  # relative to the folder, "/" between names; the caller's name for an added document
            "source": pa.string(),  # "file" or "added"
            "state": pa.string(),  # "indexed", "skipped" or "failed"
            "reason": pa.string(),  # why it was skipped or failed, else ""
            "size": pa.int64(),
            "mtime_ns": pa.int64(),  # when it was modified; of an added document 0
            "settled": pa.bool_(),  # whether a later change is sure to show in mtime_ns
            "sha256": pa.string(),  # of the file's bytes, or of the added text
            "format": pa.string(),
            "title": pa.string(),
            "metadata": pa.string(),  # JSON object
            "chunks": pa.int32(),
            "text": pa.large_string(),  # what the reader extracted; chunks are slices of it
        }
    )


def chunk_schema(dim: int) -> pa.Schema:
    return pa.schema(
        {
            "id": pa.int64(),  # ascending, never used twice
            "document": pa.int64(),
            "key": pa.int64(),  # hash of the context: what is embedded once
            "char_start": pa.int64(),
            "char_end": pa.int64(),
            "line_start": pa.int32(),
            "line_end": pa.int32(),
            "page": pa.int32(),
            "heading": pa.list_(pa.string()),
            "text": pa.string(),
            "context": pa.string(),  # heading path and text: what the encoder and full-text search see
            "vector": pa.list_(pa.float32(), dim),
        }
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """What an index was made for. Written once."""

    format: int
    folder: str | None  # absolute path of the indexed folder; None when only documents were added
    model: str
    fingerprint: str
    dim: int

    @classmethod
    def read(cls, file: Path) -> Settings:
        found = _from_json(cls, file)
        texts = (found.model, found.fingerprint, found.folder or "")
        if not all(isinstance(text, str) for text in texts) or not _is_count(found.dim) or not 0 < found.dim < 2**16:
            raise DamagedError(f"{file} is not what was written: remove the folder {file.parent} and index again")
        return found


@dataclass(frozen=True, slots=True)
class Head:
    """The committed state: table versions, next free ids, and the published vector index."""

    documents: int
    chunks: int
    next_document: int = 0
    next_chunk: int = 0
    rows: int = 0  # grows when rows of chunks come or go: what a vector index covers
    vectors: str | None = None
    commits: int = 0  # grows by one a commit: readers compare it to know whether anything changed

    @classmethod
    def read(cls, file: Path) -> Head:
        found = _from_json(cls, file)
        counts = [value for name, value in asdict(found).items() if name != "vectors"]
        named = found.vectors is None or (isinstance(found.vectors, str) and re.fullmatch(r"[\w-]+", found.vectors))
        if not all(map(_is_count, counts)) or not named:
            raise DamagedError(f"{file} is not what was written: remove the folder {file.parent} and index again")
        return found


class Store:
    """An index folder. Reading needs no lock; `write` takes the only one."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings

    @classmethod
    def create(cls, path: Path, settings: Settings) -> Store:
        """Make an empty index folder, or finish one that was never finished."""
        if path.exists() and any(path.iterdir()) and not (path / "lock").exists():
            raise StoreError(f"{path} is not empty and not an index: give another folder with --index")
        path.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if not (path / "HEAD.json").exists():
                (path / ".gitignore").write_text("*\n", "utf-8")
                for name in ("documents.lance", "chunks.lance", "vectors"):
                    shutil.rmtree(path / name, ignore_errors=True)
                documents = lance.write_dataset(document_schema().empty_table(), path / "documents.lance")
                chunks = lance.write_dataset(chunk_schema(settings.dim).empty_table(), path / "chunks.lance")
                chunks.create_scalar_index("context", "INVERTED", **FULL_TEXT)
                _write_json(path / "settings.json", asdict(settings))
                _write_json(path / "HEAD.json", asdict(Head(documents.version, chunks.version)))
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Store:
        """
        :raises NoIndexError: when there is no index in that folder.
        :raises DamagedError: when its settings are not what was written.
        """
        if not (path / "HEAD.json").is_file():
            raise NoIndexError(f"no index at {path}: make one with 'binocle index FOLDER'")
        settings = Settings.read(path / "settings.json")
        if settings.format != FORMAT:
            raise StoreError(f"{path} has format {settings.format}, this version reads {FORMAT}: index again")
        return cls(path, settings)

    def head(self) -> Head:
        return Head.read(self.path / "HEAD.json")

    def set_folder(self, folder: str) -> None:
        """Say which folder this index is of, for an index made by adding documents."""
        with _locked(self.path):
            self.settings = replace(self.settings, folder=folder)
            _write_json(self.path / "settings.json", asdict(self.settings))

    def snapshot(self) -> Snapshot:
        """The committed state, for reading. It stays as it is while others write."""
        return Snapshot(self, self.head())

    @contextlib.contextmanager
    def write(self) -> Iterator[Writer]:
        """Hold the writer's lock.

        :raises LockedError: at once, naming the process that holds it.
        """
        with _locked(self.path):
            yield Writer(self)


class Snapshot:
    """One committed state of the store."""

    def __init__(self, store: Store, head: Head) -> None:
        self.store = store
        self.head = head

    @cached_property
    def documents(self) -> lance.LanceDataset:
        return _dataset(self.store.path / "documents.lance", self.head.documents)

    @cached_property
    def chunks(self) -> lance.LanceDataset:
        return _dataset(self.store.path / "chunks.lance", self.head.chunks)

    def read(self, table: Literal["documents", "chunks"], columns: list[str], where: str | None = None) -> pa.Table:
        """Columns of the rows for which a condition in Lance's SQL holds.

        :raises DamagedError: when a file of the table is missing or not what was written.
        """
        with _reading(self.store.path / f"{table}.lance"):
            return getattr(self, table).to_table(columns=columns, filter=where)

    def full_text(self, words: str, limit: int, where: str | None = None) -> pa.Table:
        """Columns `id` and `_score` (BM25) of the chunks that hold any of these words, best first."""
        from lance.query import MatchQuery

        try:
            return self.chunks.scanner(
                columns=["id", "_score"],
                full_text_query=MatchQuery(words, "context"),
                filter=where,
                prefilter=where is not None,
                limit=limit,
            ).to_table()
        except _LANCE_ERRORS as error:
            raise DamagedError(
                f"the full-text index of {self.store.path} is damaged ({_first_line(error)}): "
                "run 'binocle verify --repair'"
            ) from error

    @cached_property
    def document_rows(self) -> pa.Table:
        """Every document, without its text."""
        return self.read("documents", [name for name in document_schema().names if name != "text"])

    @cached_property
    def chunk_ids(self) -> pa.Table:
        """Columns `id` and `document` of every chunk, ids ascending."""
        return self.read("chunks", ["id", "document"]).sort_by("id")

    def documents_by_id(self, ids: Sequence[int], columns: Sequence[str] | None = None) -> dict[int, dict[str, Any]]:
        return self._by_id("documents", ids, [*(columns or self.document_rows.column_names), "id"])

    def chunks_by_id(self, ids: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
        return self._by_id("chunks", ids, [*columns, "id"])

    def _by_id(
        self, table: Literal["documents", "chunks"], ids: Sequence[int], columns: list[str]
    ) -> dict[int, dict[str, Any]]:
        if not ids:
            return {}
        rows = self.read(table, list(dict.fromkeys(columns)), _among("id", ids)).to_pylist()
        return {row["id"]: row for row in rows}

    @cached_property
    def index(self) -> LiveIndex:
        """The vector index of exactly these chunks."""
        published, manifest = self._published()
        if manifest is not None and manifest.covers == self.head.rows:
            return LiveIndex(published, None, None)
        live = self.chunk_ids["id"].to_numpy()
        held = np.isin(published.ids, live, assume_unique=True)
        newest = int(published.ids[-1]) if len(published.ids) else -1
        newer = self.read("chunks", ["id", "vector"], f"id > {newest}").sort_by("id")
        tail = FlatIndex(newer["id"].to_numpy(), _matrix(newer["vector"], self.store.settings.dim))
        return LiveIndex(published, None if held.all() else held, tail if len(newer) else None)

    def _published(self) -> tuple[VectorIndex, Published | None]:
        nothing = FlatIndex(np.empty(0, np.int64), np.empty((0, self.store.settings.dim), np.float32))
        if self.head.vectors is None:
            return nothing, None
        folder = self.store.path / "vectors" / self.head.vectors
        try:
            manifest = Published.read(folder)
            return manifest.load(folder, KINDS), manifest
        except DamagedError:
            return (
                nothing,
                None,
            )  # the index is a cache: what it lacks is searched exactly; `verify` reports it

    def batches(self, columns: list[str], *, rows: int = 8_192) -> Iterator[pa.RecordBatch]:
        """Columns of every chunk in order of id, in bounded memory: rows are appended with ascending ids."""
        with _reading(self.store.path / "chunks.lance"):
            yield from self.chunks.to_batches(columns=columns, batch_size=rows, scan_in_order=True)


@dataclass(frozen=True, slots=True)
class LiveIndex:
    """A published index made current: newer rows are searched exactly, deleted ones masked."""

    published: VectorIndex
    held: NDArray[np.bool_] | None  # which of the published rows still exist; None: all
    tail: FlatIndex | None

    def search(
        self, vectors: NDArray[np.float32], k: int, *, allowed: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """As `VectorIndex.search`, but `allowed` are ids."""
        mask = self.held
        if allowed is not None:
            passing = np.isin(self.published.ids, allowed)
            mask = passing if mask is None else mask & passing
        scores, ids = self.published.search(vectors, k, allowed=mask)
        if self.tail is None:
            return scores, ids
        passing_tail = None if allowed is None else np.isin(self.tail.ids, allowed)
        tail_scores, tail_ids = self.tail.search(vectors, k, allowed=passing_tail)
        scores, ids = np.hstack([scores, tail_scores]), np.hstack([ids, tail_ids])
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, best, 1), np.take_along_axis(ids, best, 1)

    def reconstruct(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of these ids, in their order."""
        if self.tail is None:
            return self.published.reconstruct(ids)
        newer = ids >= self.tail.ids[0]
        vectors = np.empty((len(ids), self.tail.vectors.shape[1]), np.float32)
        vectors[newer] = self.tail.reconstruct(ids[newer])
        if not newer.all():
            vectors[~newer] = self.published.reconstruct(ids[~newer])
        return vectors


class Writer:
    """The one process that writes. Each `commit` is atomic; nothing is visible before it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.head = store.head()
        self._staged = 0  # the id after the last staged chunk
        self._recover()

    def _recover(self) -> None:
        """Take tables that a killed writer left ahead of HEAD back to it."""
        versions: dict[str, Any] = {}
        for name in ("documents", "chunks"):
            committed = getattr(self.head, name)
            table = _dataset(self._store.path / f"{name}.lance", committed)
            if table.latest_version != committed:
                table.restore()  # type: ignore[no-untyped-call]
                versions[name] = table.latest_version
        if versions:
            self._move(replace(self.head, **versions))

    def snapshot(self) -> Snapshot:
        return Snapshot(self._store, self.head)

    def stage(self, chunks: pa.Table) -> None:
        """Write chunk rows that the next `commit` makes visible."""
        with _writing(self._store.path):
            lance.write_dataset(chunks, self._store.path / "chunks.lance", mode="append")
        self._staged = max(self._staged, _next(chunks))

    def commit(self, *, drop: Sequence[int], documents: pa.Table) -> None:
        """As one step: remove the documents with these ids and their chunks, add these rows and what was staged."""
        with _writing(self._store.path):
            path = self._store.path
            chunks, rows = _dataset(path / "chunks.lance"), self.snapshot().documents
            if drop:
                chunks.delete(_among("document", drop))
                rows.delete(_among("id", drop))
            if len(documents):
                rows = lance.write_dataset(documents, path / "documents.lance", mode="append")
            head = replace(
                self.head,
                documents=rows.version,
                chunks=chunks.version,
                next_document=max(self.head.next_document, _next(documents)),
                next_chunk=max(self.head.next_chunk, self._staged),
            )
            self._move(replace(head, rows=head.rows + (head.chunks != self.head.chunks)))

    def staged(self, columns: list[str], where: str) -> pa.Table:
        """Columns of the chunks for which a condition holds, those that are only staged included."""
        path = self._store.path / "chunks.lance"
        with _reading(path):
            return lance.dataset(path).to_table(columns=columns, filter=where)

    def replace_rows(self, documents: pa.Table, *, drop: Sequence[int] = ()) -> None:
        """Replace documents' own rows, by id, and drop rows that have no chunks; all chunks stay."""
        with _writing(self._store.path):
            table = self.snapshot().documents
            table.delete(_among("id", [*documents["id"].to_pylist(), *drop]))
            table = lance.write_dataset(documents, self._store.path / "documents.lance", mode="append")
            self._move(replace(self.head, documents=table.version))

    def forget(self, rows: Sequence[dict[str, Any]], reason: str) -> None:
        """Remove documents, leave a row that says why for those that are files, and erase them from the disk."""
        kept = [
            {**row, "id": self.head.next_document + place, "state": "skipped", "reason": reason, "chunks": 0}
            for place, row in enumerate(row for row in rows if row["source"] == "file")
        ]
        blank = {"title": "", "metadata": "{}", "text": ""}
        table = pa.Table.from_pylist([{**row, **blank} for row in kept], document_schema())
        self.commit(drop=[row["id"] for row in rows], documents=table)
        self.finish(rebuild=True)
        self._tidy(erase=True)

    def drop_orphans(self, documents: Sequence[int]) -> None:
        """Remove these documents, and every chunk whose document is not in the table."""
        snapshot = self.snapshot()
        owners = set(snapshot.chunk_ids["document"].to_pylist()) - set(snapshot.document_rows["id"].to_pylist())
        self.commit(drop=[*documents, *owners], documents=document_schema().empty_table())

    def finish(self, *, rebuild: bool = False) -> None:
        """Bring the full-text index up to date, the vector index too if it is stale, and tidy away old versions."""
        with _writing(self._store.path):
            self._index_text(rebuild=rebuild)
            snapshot = self.snapshot()
            if rebuild or self._is_stale(snapshot):
                self._publish(snapshot)
            self._tidy()

    def _index_text(self, *, rebuild: bool) -> None:
        table = self.snapshot().chunks
        if rebuild:
            table.create_scalar_index("context", "INVERTED", replace=True, **FULL_TEXT)
        else:
            table.optimize.optimize_indices()
        if table.latest_version != self.head.chunks:
            self._move(replace(self.head, chunks=table.latest_version))

    def _is_stale(self, snapshot: Snapshot) -> bool:
        if self.head.vectors is None:
            return bool(len(snapshot.chunk_ids))
        index = snapshot.index
        masked = 0 if index.held is None else int((~index.held).sum())
        newer = 0 if index.tail is None else len(index.tail.ids)
        return masked + newer > max(_STALE_ROWS, _STALE_SHARE * len(snapshot.chunk_ids))

    def _publish(self, snapshot: Snapshot) -> None:
        dim = self._store.settings.dim
        rows = ((batch["id"].to_numpy(), _matrix(batch["vector"], dim)) for batch in snapshot.batches(["id", "vector"]))
        parent = self._store.path / "vectors"
        name = publish(parent, "flat", KINDS["flat"], rows, dim=dim, covers=self.head.rows)
        self._move(replace(self.head, vectors=name))

    def _tidy(self, *, erase: bool = False) -> None:
        """Merge small fragments when there are many, and remove versions and indexes that no reader can be at.

        :param erase: leave nothing of deleted rows, even if a reader must then open the index again.
        """
        snapshot = self.snapshot()
        keep = timedelta(0) if erase else _KEEP_VERSIONS
        for name, table in (("documents", snapshot.documents), ("chunks", snapshot.chunks)):
            if erase or len(table.get_fragments()) > 32:
                table.optimize.compact_files(materialize_deletions=True, materialize_deletions_threshold=0.0)
                moved: dict[str, Any] = {name: table.latest_version}
                self._move(replace(self.head, **moved))
            table.cleanup_old_versions(keep)
        cutoff = time.time() - keep.total_seconds()
        for folder in (self._store.path / "vectors").glob("*"):
            if folder.name != self.head.vectors and folder.stat().st_mtime < cutoff:
                shutil.rmtree(folder, ignore_errors=True)

    def _move(self, head: Head) -> None:
        """The commit itself."""
        self.head = replace(head, commits=self.head.commits + 1)
        _write_json(self._store.path / "HEAD.json", asdict(self.head))


# Lance's tokenizer for full text: Unicode word boundaries, with a dictionary for Chinese, Japanese and Thai; also
# split at punctuation, so that the parts of snake_case are found. English is stemmed (Snowball), its stop words left
# out. Scores are BM25 with k1 1.2 and b 0.75.
FULL_TEXT: dict[str, Any] = {
    "base_tokenizer": "icu/split",
    "language": "English",
    "stem": True,
    "remove_stop_words": True,
    "lower_case": True,
    "ascii_folding": True,
    "with_position": False,
}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    holder = path / "lock.json"
    try:
        with FileLock(path / "lock", timeout=0):
            _write_json(holder, {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%H:%M:%S")})
            yield
    except Timeout:
        try:
            who = _read_json(holder)
            whose = f"process {who['pid']} on {who['host']}, since {who['since']}"
        except (StoreError, KeyError, TypeError):
            whose = "another process"
        raise LockedError(f"{path} is being written by {whose}: try again when it has finished") from None


def _dataset(path: Path, version: int | None = None) -> lance.LanceDataset:
    with _reading(path):
        return lance.dataset(path, version=version)


@contextlib.contextmanager
def _reading(table: Path) -> Iterator[None]:
    """Lance's errors, of many kinds, as ours."""
    try:
        yield
    except StoreError:
        raise
    except _LANCE_ERRORS as error:
        raise DamagedError(
            f"{table} is damaged ({_first_line(error)}): remove the folder {table.parent} and index again"
        ) from error


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except _LANCE_ERRORS as error:
        raise StoreError(f"cannot write to {path} ({_first_line(error)}); what was committed before is kept") from error


_LANCE_ERRORS = (OSError, ValueError, RuntimeError, pa.ArrowException)


def _first_line(error: Exception) -> str:
    """Lance's message without the place in its source."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].split(", /")[0][:160]


def _among(column: str, ids: Sequence[int]) -> str:
    return f"{column} IN ({','.join(map(str, map(int, ids)))})" if len(ids) else "false"


def _matrix(column: Any, dim: int) -> NDArray[np.float32]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values: NDArray[np.float32] = array.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(-1, dim)


def _next(table: pa.Table) -> int:
    return max(table["id"].to_pylist(), default=-1) + 1


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(
            f"{file} cannot be read ({error}): remove the folder {file.parent} and index again"
        ) from None
    if not isinstance(value, dict):
        raise DamagedError(f"{file} is not a JSON object: remove the folder {file.parent} and index again")
    return value


def _from_json(kind: type[_T], file: Path) -> _T:
    try:
        return kind(**_read_json(file))
    except TypeError as error:
        raise DamagedError(
            f"{file} is not what was written ({error}): remove the folder {file.parent} and index again"
        ) from None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


def _write_json(file: Path, value: dict[str, Any]) -> None:
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    with aside.open("w", encoding="utf-8") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(file)
