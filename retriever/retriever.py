"""Retriever: an index of documents, to fill and to search. It joins the parts and holds no algorithm."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..indexes.errors import EncoderMismatchError, InputError, NoIndexError
from . import context as contexts
from . import encoder as encoders
from . import query as queries
from . import verify as verification
from .document import Document
from .model_folder import DEFAULT_MODEL
from .settings import FORMAT, Settings
from .snapshot import Snapshot
from .store import Store
from .sync import FORGOTTEN, Indexer, Progress, Report, sync
from .where import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Where = str | Sequence[str] | Mapping[str, Any] | None

INDEX_NAME = ".binocle"
_ADD_BATCH = 1_000  # documents looked at together, of which the last of each id counts


class Retriever:
    """One index. Safe to share among threads; other processes may read it and one may write it meanwhile.

    >>> retriever = Retriever.open("docs")  # doctest: +SKIP
    >>> retriever.sync()  # doctest: +SKIP
    >>> retriever.search("how do I cancel a task?", k=3)  # doctest: +SKIP
    """

    def __init__(self, path: Path, *, model: str | None = None) -> None:
        self.path = path
        self._model = model
        self._lock = threading.RLock()
        self._encoder: encoders.Encoder | None = None
        self._current: Snapshot | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, model: str | None = None) -> Retriever:
        """Open the index at `path`, or of the folder `path`; it is made when something is first put in.

        An existing index is opened as it is. A folder with something in it gets its index in `.binocle` inside;
        a new or empty folder becomes the index itself.

        :param model: a sentence-transformers folder or name for a new index, all-MiniLM-L6-v2 unless given.
        """
        place = Path(path).expanduser()
        if place.exists() and not place.is_dir():
            raise InputError(f"{path} is a file: expected a folder of documents or an index")
        is_index = (place / "HEAD.json").exists() or (place / "lock").exists() or place.name == INDEX_NAME
        if not is_index and place.is_dir() and any(place.iterdir()):
            place = place / INDEX_NAME
        return cls(place.resolve(), model=model)

    # Filling

    def sync(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        retry: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> Report:
        """Bring the index in line with a folder; what is already embedded is not embedded again.

        :param folder: the folder that holds `.binocle`, or the one indexed before, unless given.
        :param retry: read again what failed before or was forgotten.
        :raises LockedError: when another process is writing.
        :raises EncoderMismatchError: when the index was made with another encoder.
        """
        root = self._root_to_sync(folder)
        encoder = self._load_encoder()
        store = self._store_for(encoder, root)
        with store.write() as writer:
            return sync(writer, root, encoder, retry=retry, leave_out=self.path, progress=progress)

    def add(self, documents: Iterable[Mapping[str, Any]]) -> Report:
        """Add documents that are not files, or replace those of the same id.

        :param documents: mappings with `text` and, if wanted, `id` (a name, unique among added documents; else made
            from the text), `title` and `metadata` (strings, numbers, booleans or lists of them).
        """
        began = time.monotonic()
        given = enumerate(documents)
        encoder = self._load_encoder()
        report = Report()
        with self._store_for(encoder, None).write() as writer:
            snapshot = writer.snapshot()
            known = {
                row["path"]: (row["id"], row["sha256"])
                for row in snapshot.document_rows.to_pylist()
                if row["source"] == "added"
            }
            before = snapshot.chunks.count_rows()
            indexer = Indexer(writer, encoder, report)
            while some := [_added(number, document) for number, document in islice(given, _ADD_BATCH)]:
                for name, (sha256, document) in {name: (sha, document) for name, sha, document in some}.items():
                    number, held = known.get(name, (None, ""))
                    if held == sha256:
                        report.unchanged += 1
                        continue
                    report.indexed += 1
                    row = {
                        "path": name,
                        "source": "added",
                        "sha256": sha256,
                        "size": len(document.text.encode()),
                    }
                    known[name] = indexer.add(row, document, replaces=number), sha256
                indexer.commit()
            writer.finish()
            report.count_chunks(before, writer.snapshot().chunks.count_rows())
        report.seconds = time.monotonic() - began
        return report

    def delete(self, *paths: str) -> int:
        """Take documents out of the index for good: by path, by an added document's id, or a folder by "name/".

        A file that is still there stays out until `sync(retry=True)`. What was stored of it is erased from disk.
        Gives the number of documents removed.
        """
        with self._open_store().write() as writer:
            rows = writer.snapshot().document_rows.to_pylist()
            chosen = [row for row in rows if any(_names(path, row["path"]) for path in paths)]
            indexed = [row for row in chosen if row["reason"] != FORGOTTEN]
            if indexed:
                writer.forget(indexed, FORGOTTEN)
        return len(indexed)

    # Searching

    def search(self, query: str, k: int = 10, *, mode: str = "hybrid", where: Where = None) -> list[queries.Hit]:
        """The k passages that answer best, best first.

        :param mode: "hybrid" (words and meaning), "semantic" or "lexical".
        :param where: filters such as `"path=docs/**"`, `["type=pdf", "modified>=2026-01-01"]` or
            `{"author": "Ada"}`: see `retriever.where`.
        :raises NoIndexError: when there is no index yet.
        :raises EncoderMismatchError: when the encoder is not the one that the index was made with.
        """
        query = queries.check(query, k, mode)
        chosen = parse(where)
        return self._answer(queries.Query(self.snapshot(), query, lambda: self._query_vector(query)), k, mode, chosen)

    def similar(self, path: str, line: int, k: int = 10, *, where: Where = None) -> list[queries.Hit]:
        """The passages most like the one that stands on a line of a document, itself left out."""
        queries.check("-", k, "semantic")
        snapshot = self.snapshot()
        document = self.document(path)
        self.text(path)
        chunks = self._chunks_of(document, ["id", "char_start", "line_start", "line_end", "vector"])
        _check_lines(document, chunks, line, line)
        nearest = min(chunks, key=lambda row: (max(row["line_start"] - line, line - row["line_end"], 0), row["id"]))
        import numpy as np

        vector = np.array([nearest["vector"]], np.float32)
        query = queries.Query(snapshot, "", lambda: vector)
        return self._answer(query, k, "semantic", parse(where), without=nearest["id"])

    def context(self, query: str, *, max_tokens: int = 2_000, k: int = 50, where: Where = None) -> contexts.Context:
        """The best passages for a prompt, packed into at most `max_tokens` of the encoder's tokens.

        Passages are deduplicated, neighbours are joined, and each is preceded by its numbered citation.
        """
        if max_tokens < 1:
            raise InputError(f"max_tokens is how long the context may be, at least 1, not {max_tokens}")
        hits = self.search(query, k, where=where)
        encoder = self._load_encoder()
        texts = self.snapshot().documents_by_id(sorted({hit.document for hit in hits}), ["text"])
        documents = {number: row["text"] for number, row in texts.items()}
        return contexts.pack(hits, documents, lambda text: len(encoder.offsets([text])[0]), max_tokens)

    # Looking inside

    def snapshot(self) -> Snapshot:
        """The committed state now; the same object until something is committed."""
        store = self._open_store()
        head = store.head()
        with self._lock:
            if self._current is None or self._current.head != head:
                self._current = Snapshot(store, head)
            return self._current

    @property
    def folder(self) -> Path | None:
        """The folder that is indexed."""
        folder = self._open_store().settings.folder
        return None if folder is None else Path(os.path.normpath(self.path / folder))

    def documents(self) -> list[dict[str, Any]]:
        """Every document and what became of it, by path: the documents table without the texts."""
        return sorted(self.snapshot().document_rows.to_pylist(), key=lambda row: (row["path"], row["source"]))

    def document(self, path: str) -> dict[str, Any]:
        """The row of one document, its text included."""
        row = next((row for row in self.documents() if row["path"] == path), None)
        if row is None:
            raise InputError(f"{path} is not in the index: 'binocle files' lists what is")
        columns = [*row, "text"]
        return self.snapshot().documents_by_id([row["id"]], columns)[row["id"]]

    def text(self, path: str) -> str:
        """The text that was read from a document.

        :raises InputError: when none was, with the reason.
        """
        row = self.document(path)
        if not row["chunks"]:
            raise InputError(f"{path} is in the index without a text ({row['reason'] or 'it is empty'})")
        text: str = row["text"]
        return text

    def lines(self, path: str, first: int, last: int) -> str:
        """What stands on these lines of a document, counted as its citations count them.

        Where the citations' lines are those of the source (HTML, XML) and not of the text, the passages there.
        """
        self.text(path)
        row = self.document(path)
        chunks = self._chunks_of(row, ["char_start", "line_start", "line_end", "text"])
        _check_lines(row, chunks, first, last)
        if all(1 + row["text"].count("\n", 0, chunk["char_start"]) == chunk["line_start"] for chunk in chunks):
            return "\n".join(row["text"].split("\n")[max(0, first - 1) : last])
        return "\n\n".join(
            chunk["text"] for chunk in chunks if chunk["line_start"] <= last and chunk["line_end"] >= first
        )

    def verify(self) -> list[verification.Fault]:
        """What is wrong with the index, as `verify.faults` finds it. Nothing, if all is well."""
        return list(verification.faults(self.snapshot(), self.folder))

    def repair(self) -> Report | None:
        """Build both indexes anew from the store, drop documents whose chunks are faulty, and sync the folder."""
        faulty = {fault.path for fault in self.verify() if fault.kind in ("chunk", "store", "document")}
        with self._open_store().write() as writer:
            rows = [row for row in writer.snapshot().document_rows.to_pylist() if row["path"] in faulty]
            rows = [row for row in rows if row["source"] == "file"]
            writer.drop_orphans([row["id"] for row in rows])
            writer.finish(rebuild=True)
        return self.sync() if self.folder else None

    # The parts

    def _chunks_of(self, row: dict[str, Any], columns: list[str]) -> list[dict[str, Any]]:
        """The chunks of a document in order."""
        table = self.snapshot().read("chunks", columns, f"document = {row['id']}")
        return sorted(table.to_pylist(), key=lambda chunk: chunk["char_start"])

    def _answer(
        self, query: queries.Query, k: int, mode: str, where: Any, without: int | None = None
    ) -> list[queries.Hit]:
        return query.hits(k, mode=mode, where=where, without=without)

    def _query_vector(self, query: str) -> NDArray[np.float32]:
        return self._load_encoder().encode([query], kind="query")

    def _open_store(self) -> Store:
        return Store.open(self.path)

    def _store_for(self, encoder: encoders.Encoder, root: Path | None) -> Store:
        """The store, made if there is none; its folder set if it had none."""
        inside = root is not None and self.path == root.resolve() / INDEX_NAME
        folder = None if root is None else (".." if inside else str(root.resolve()))
        try:
            store = self._open_store()
        except NoIndexError:
            settings = Settings(FORMAT, folder, encoder.name, encoder.fingerprint, encoder.dim)
            return Store.create(self.path, settings)
        if folder is not None and store.settings.folder is None:
            store.set_folder(folder)
        return store

    def _root_to_sync(self, folder: str | os.PathLike[str] | None) -> Path:
        try:
            indexed = self.folder
        except NoIndexError:
            indexed = None
        beside = self.path.parent if self.path.name == INDEX_NAME else None
        root = Path(folder).expanduser() if folder is not None else indexed or beside
        if root is None:
            raise InputError("which folder? This index holds added documents only: call sync(folder)")
        if not root.exists():
            raise InputError(f"there is no folder {root}")
        if not root.is_dir():
            raise InputError(f"{root} is a file: expected a folder of documents")
        if indexed is not None and root.resolve() != indexed.resolve():
            raise InputError(f"the index at {self.path} is of {indexed}, not of {root}: give another with --index")
        return root

    def _load_encoder(self) -> encoders.Encoder:
        """The encoder of this index, which is the one asked for, or there is an error."""
        with self._lock:
            if self._encoder is None:
                try:
                    settings = self._open_store().settings
                except NoIndexError:
                    settings = None
                name = self._model or (settings.model if settings else DEFAULT_MODEL)
                loaded = encoders.load(name)
                if settings and loaded.fingerprint != settings.fingerprint:
                    raise EncoderMismatchError(
                        f"the index at {self.path} was made with {settings.model} (fingerprint "
                        f"{settings.fingerprint[:8]}) but {name} has {loaded.fingerprint[:8]}: use that model, or "
                        "index into another folder with --index"
                    )
                self._encoder = loaded
            return self._encoder


@dataclass(frozen=True, slots=True)
class Status:
    """What an index holds."""

    path: str
    folder: str | None
    model: str
    fingerprint: str
    dim: int
    documents: dict[str, int]  # by state
    chunks: int
    bytes: int
    vector_index: str | None
    newer_rows: int  # not in the vector index yet: searched exactly
    deleted_rows: int  # still in the vector index: masked


def status(retriever: Retriever) -> Status:
    """Measure an index."""
    snapshot = retriever.snapshot()
    settings = snapshot.store.settings
    states = {"indexed": 0, "skipped": 0, "failed": 0}
    for state in snapshot.document_rows["state"].to_pylist():
        states[state] = states.get(state, 0) + 1
    index = snapshot.index
    folder = retriever.folder
    return Status(
        path=str(retriever.path),
        folder=str(folder) if folder else None,
        model=settings.model,
        fingerprint=settings.fingerprint,
        dim=settings.dim,
        documents=states,
        chunks=snapshot.chunks.count_rows(),
        bytes=sum(file.stat().st_size for file in retriever.path.rglob("*") if file.is_file()),
        vector_index=snapshot.head.vectors,
        newer_rows=0 if index.tail is None else len(index.tail.ids),
        deleted_rows=0 if index.held is None else int((~index.held).sum()),
    )


def _names(path: str, row_path: str) -> bool:
    path = path.removeprefix("./")
    return row_path == path or (path.endswith("/") and row_path.startswith(path))


def _check_lines(row: dict[str, Any], chunks: list[dict[str, Any]], first: int, last: int) -> None:
    lines = max(1 + row["text"].count("\n"), *(chunk["line_end"] for chunk in chunks))
    if not 1 <= first <= last or first > lines:
        asked = f"line {first}" if first == last else f"lines {first}-{last}"
        raise InputError(f"{row['path']} has lines 1 to {lines}, there is no {asked}")


_FIELDS = {"id", "text", "title", "metadata"}


def _added(number: int, given: Mapping[str, Any]) -> tuple[str, str, Document]:
    """Id, sha256 and document of what a caller adds."""
    if not hasattr(given, "keys"):
        raise InputError(f"document {number} is of type {type(given).__name__}: expected a mapping with 'text'")
    unknown = set(given) - _FIELDS
    if unknown:
        raise InputError(f"document {number} has {sorted(unknown)}: expected only {sorted(_FIELDS)}")
    text, title, metadata = given.get("text"), given.get("title") or "", given.get("metadata") or {}
    if not isinstance(text, str) or not isinstance(title, str):
        raise InputError(f"document {number} has no text: expected a mapping whose 'text' and 'title' are strings")
    for key, value in metadata.items() if isinstance(metadata, dict) else [(None, None)]:
        members = value if isinstance(value, list) else [value]
        if not isinstance(key, str) or not all(isinstance(member, (str, int, float, bool)) for member in members):
            raise InputError(
                f"document {number} has metadata {key!r}: {value!r}: expected a mapping of names to strings, numbers, "
                "booleans or lists of them"
            )
    text = text.replace("\r\n", "\n").encode("utf-8", "replace").decode()
    document = Document.from_text(text, title=title, metadata=dict(metadata))
    sha256 = hashlib.sha256(f"{text}\0{title}\0{sorted(metadata.items())}".encode("utf-8", "replace")).hexdigest()
    name = given.get("id")
    if name is not None and (not isinstance(name, str) or not name):
        raise InputError(f"document {number} has id {name!r}: expected a string that is not empty")
    return name or sha256[:16], sha256, document
