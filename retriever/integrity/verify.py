"""Verify an index: its passages against the documents of today, its parts against each other."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import BinocleError, DamagedError, InputError
from ...core.progress import OnProgress, ignore
from ...core.terms import STOP_WORDS
from ...indexes.manifest import IndexManifest
from ..documents.document import HIDDEN, Document, LineCounter, context_of, hidden_spans, metadata_of
from ..documents.scan import file_below
from ..indexing.indexer import key_of, own_key
from ..indexing.sync.picture_rows import languages_of
from ..indexing.sync.reader_versions import is_outdated
from ..readers.ocr import choose_languages
from ..store.derived import lexical, live_neighbourhood
from ..store.tables import PREVIOUS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from ..models.encoder import Encoder
    from ..models.identity import EncoderId
    from ..readers.pool.reading import Reading
    from ..store.snapshot import Snapshot
    from .wrong_vectors import VectorCheck, WrongVector

_SAMPLES = 50  # passages looked up in the full-text index
_TOGETHER = 10  # of them in one search
_BATCH_SIZE = 500  # documents read together with their chunks
_UNREADABLE = "cannot be read now"
_CHANGED = "has changed since it was indexed"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of an index."""

    kind: str  # "document", "passage", "vector", "neighbours", "store", or "vector", "full-text" or "inverted index"
    path: str  # of the document or of the index, or ""
    problem: str


@dataclass(frozen=True, slots=True)
class HiddenText:
    """The number of passages with text that a person does not see, and of their documents."""

    passages: int
    documents: int


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying an index."""

    faults: list[Fault]
    vectors: VectorCheck | None  # only of a deep verification
    hidden: HiddenText
    outdated: int  # documents that an earlier version of their reader read; the next run of `index` reads them again


def verify(
    snapshot: Snapshot,
    root: Path | None,
    encoder_of: Callable[[EncoderId], Encoder],
    *,
    deep: bool = False,
    progress: OnProgress = ignore,
) -> Verification:
    """Find the faults of a snapshot.

    :param root: the indexed folder, None if only documents were added.
    :param deep: also look for vectors that do not belong to their texts; a few per cent are embedded for that.
    """
    stored = list(faults(snapshot, root))
    hidden = _hidden_text(snapshot)
    outdated = sum(map(is_outdated, snapshot.document_rows.to_pylist()))
    if not deep:
        return Verification(stored, None, hidden, outdated)
    from .wrong_vectors import search  # few programs compare vectors with their texts

    vectors = search(snapshot, encoder_of(snapshot.head.encoder), progress)
    return Verification([*stored, *vector_faults(snapshot, vectors.wrong)], vectors, hidden, outdated)


def faults(snapshot: Snapshot, root: Path | None) -> Iterator[Fault]:
    """Read each document anew, and check the text, key, lines and vector of each chunk.

    :param root: the indexed folder, None when only documents were added.
    """
    snapshot.check_pages()
    rows = snapshot.document_rows.to_pylist()
    if snapshot.fallback:
        yield Fault("store", "", snapshot.fallback)
    yield from _store_faults(snapshot, rows)
    yield from _index_faults(snapshot)
    yield from _text_faults(snapshot)
    yield from _word_faults(snapshot)
    yield from _neighbour_faults(snapshot)
    if root is not None:
        yield from _document_faults(snapshot, root, [row for row in rows if row["source"] == "file"])
    added = [row for row in rows if row["source"] == "added"]
    for row, chunks, text in _with_chunks(snapshot, added):
        yield from _chunk_faults(row, chunks, text, Document.from_text(text))


def _hidden_text(snapshot: Snapshot) -> HiddenText:
    rows = snapshot.document_rows.to_pylist()
    concealed = {row["id"]: _concealed(row) for row in rows if row["source"] == "file" and HIDDEN in row["metadata"]}
    passages = [
        number
        for batch in snapshot.batches(["document", "char_start", "text"])
        for number, start, text in zip(*(column.to_pylist() for column in batch), strict=True)
        if (number in concealed or not text.isascii()) and hidden_spans(concealed.get(number), start, text)
    ]
    return HiddenText(len(passages), len(set(passages)))


def _concealed(row: dict[str, Any]) -> Any:
    with contextlib.suppress(DamagedError):  # another check reports it
        return metadata_of(row).get(HIDDEN)
    return None


def documents_to_drop(faults: Iterable[Fault]) -> set[str]:
    """The paths of documents with another text in the store than the one that was read.

    A file that cannot be read now is not among them: the stored text may be the last copy.
    """
    return {
        fault.path
        for fault in faults
        if fault.kind in ("passage", "store", "document") and not fault.problem.startswith((_UNREADABLE, _CHANGED))
    }


def changed_documents(faults: Iterable[Fault]) -> set[str]:
    """The paths of files with other bytes than when they were read."""
    return {fault.path for fault in faults if fault.kind == "document" and fault.problem == _CHANGED}


def vector_faults(snapshot: Snapshot, wrong: Iterable[WrongVector]) -> Iterator[Fault]:
    """Wrong vectors as faults."""
    paths = dict(zip(*(snapshot.document_rows[name].to_pylist() for name in ("id", "path")), strict=True))
    for row in wrong:
        label = f"passage {row.chunk} (characters {row.char_start} to {row.char_end})"
        problem = f"{label} has a vector that its text does not have (cosine {row.cosine:.4f})"
        yield Fault("vector", paths.get(row.document, f"document {row.document}"), problem)


def _store_faults(snapshot: Snapshot, rows: list[dict[str, Any]]) -> Iterator[Fault]:
    """Duplicate documents and chunks, and documents with another number of chunks than recorded."""
    paths: set[tuple[str, str]] = set()
    for row in rows:
        if (row["source"], row["path"]) in paths:
            yield Fault("store", row["path"], "is in the documents table twice")
        paths.add((row["source"], row["path"]))
    expected = {row["id"]: row["chunks"] for row in rows if row["chunks"]}
    chunk_ids = snapshot.chunk_ids
    numbers, counts = np.unique(chunk_ids["document"].to_numpy(), return_counts=True)
    counted = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    names = {row["id"]: row["path"] for row in rows}
    for number in sorted(expected.keys() | counted.keys()):
        if expected.get(number, 0) != counted.get(number, 0):
            problem = f"should have {expected.get(number, 0)} passages in the store but has {counted.get(number, 0)}"
            yield Fault("store", names.get(number, f"document {number}"), problem)
    if len(np.unique(chunk_ids["id"].to_numpy())) != len(chunk_ids):
        yield Fault("store", "", "two passages have the same id")


def _index_faults(snapshot: Snapshot) -> Iterator[Fault]:
    """The published index against the store: its files' checksums, and each vector by value."""
    name = snapshot.head.vectors
    if name is not None and snapshot.damage:
        yield Fault("vector index", name, str(snapshot.damage))
    elif name is not None:
        try:
            for part in map(snapshot.store.location.vectors, snapshot.head.parts):
                IndexManifest.read(part).check_files(part)
        except DamagedError as error:
            yield Fault("vector index", name, str(error))
    index = snapshot.index
    dim = snapshot.head.encoder.dim
    for batch in snapshot.batches(["id", "vector"]):
        ids = batch["id"].to_numpy()
        stored = batch["vector"].flatten().to_numpy().reshape(-1, dim)
        if not np.isfinite(stored).all():
            yield Fault("store", "", f"a vector of the passages {ids[0]} to {ids[-1]} is not finite")
        try:
            same = np.array_equal(index.reconstruct(ids), stored)
        except BinocleError as error:
            yield Fault("vector index", str(name), f"lacks passages of the store: {error}")
            return
        if not same:
            yield Fault("vector index", str(name), f"differs from the store in the passages {ids[0]} to {ids[-1]}")
    yield from _previous_faults(snapshot)


def _previous_faults(snapshot: Snapshot) -> Iterator[Fault]:
    """Check that each vector of the encoder before the last switch is whole and finite."""
    before = snapshot.head.previous
    if before is None:
        return
    for batch in snapshot.batches(["id", PREVIOUS]):
        vectors = batch[PREVIOUS].drop_null().to_pylist()
        if not all(len(vector) == 4 * before.dim and _is_finite(vector) for vector in vectors):
            ids = batch["id"]
            yield Fault("store", "", f"a previous vector of the passages {ids[0]} to {ids[-1]} is damaged")


def _is_finite(vector: bytes) -> bool:
    return bool(np.isfinite(np.frombuffer(vector, "<f4")).all())


def _document_faults(snapshot: Snapshot, root: Path, rows: list[dict[str, Any]]) -> Iterator[Fault]:
    indexed = sorted((row for row in rows if row["state"] == "indexed"), key=lambda row: row["path"])
    files = {row["id"]: file_below(root, row["path"]) for row in indexed}
    for row in indexed:
        if files[row["id"]] is None:
            yield Fault("document", row["path"], f"does not lie in {root}, or lies behind a symbolic link")
    by_languages: dict[str, list[dict[str, Any]]] = {}  # of the pictures; "" without OCR
    for row in indexed:
        if files[row["id"]]:
            by_languages.setdefault(languages_of(row), []).append(row)
    for languages, documents in by_languages.items():
        if lack := _lack_of(languages):
            yield from (Fault("document", row["path"], f"{_UNREADABLE}: {lack}") for row in documents)
        else:
            paths = [path for row in documents if (path := files[row["id"]])]
            yield from _reading_faults(snapshot, documents, paths, languages)


def _lack_of(languages: str) -> str:
    """The reason why pictures cannot be read in these languages here; "" if they can."""
    try:
        if languages:
            choose_languages(languages)
    except InputError as error:
        return str(error)
    return ""


def _reading_faults(
    snapshot: Snapshot, rows: list[dict[str, Any]], files: list[Path], languages: str
) -> Iterator[Fault]:
    """Read files again, and compare them with their rows.

    :param languages: to read pictures in; "" to read none.
    """
    from ..readers.pool.pool import ReaderPool

    with ReaderPool(ocr=languages) as pool:
        readings = pool.read_all(files)
        for row, chunks, text in _with_chunks(snapshot, rows):
            reading = next(readings)
            document, problem = reading.document, _changed(row, reading)
            if problem:
                yield Fault("document", row["path"], problem)
            elif is_outdated(row):
                yield from _chunk_faults(row, chunks, text)
            elif document is not None:
                problem = _differing(row, text, document)
                if problem:
                    yield Fault("document", row["path"], problem)
                yield from _chunk_faults(row, chunks, document.text, document)


def _differing(row: dict[str, Any], text: str, document: Document) -> str:
    """How the stored text of a document differs from the text of its file; "" if it does not."""
    if text != document.text:
        return "is stored with another text than it has"
    if _concealed(row) != document.metadata.get(HIDDEN):
        return "is stored without the places of its hidden text"
    return ""


def _text_faults(snapshot: Snapshot) -> Iterator[Fault]:
    """Check the full-text index: its checksums, and a search for a sample of passages by their own words.

    An index that is not trusted is skipped: searches never open its full-text index either.
    """
    if not snapshot.store.trusted:
        return
    try:
        snapshot.check_text(again=True)
    except DamagedError as error:
        yield Fault("full-text index", "", str(error))
        return
    table = snapshot.read("chunks", ["id"])
    step = max(1, len(table) // _SAMPLES)
    rows = snapshot.chunks_by_id(table["id"].to_pylist()[::step], ["context"])
    words = {number: _words(row["context"]) for number, row in rows.items()}
    passages = [number for number in rows if len(words[number]) >= 2]  # one may have the stem of a stop word
    try:
        for start in range(0, len(passages), _TOGETHER):
            for number in _not_found(snapshot, {number: words[number] for number in passages[start:][:_TOGETHER]}):
                yield Fault("full-text index", "", f"does not find passage {number} by its own words")
    except DamagedError as error:
        yield Fault("full-text index", "", str(error))


def _words(context: str) -> list[str]:
    """Return words of a passage that the full-text index has as they are: no stop word, and no part of `house42`."""
    words = {word.lower() for word in re.findall(r"\b[a-zA-Z]{5,30}\b", context)}
    return sorted(words.difference(STOP_WORDS))[:32]


def _not_found(snapshot: Snapshot, words: Mapping[int, list[str]]) -> list[int]:
    """Return the passages that the full-text index does not find by their own words.

    A search for several passages takes as long as a search for one. Each passage that it misses is searched for alone.
    """
    together = sorted(set().union(*words.values()))
    hits = snapshot.full_text(" ".join(together), len(words), f"id in ({', '.join(map(str, words))})")
    missed = words.keys() - set(hits["id"].to_pylist())
    return [
        number for number in sorted(missed) if not len(snapshot.full_text(" ".join(words[number]), 1, f"id = {number}"))
    ]


def _word_faults(snapshot: Snapshot) -> Iterator[Fault]:
    """Check the inverted index: its checksums and its values."""
    try:
        lexical.check(snapshot)
    except DamagedError as error:
        yield Fault("inverted index", "", str(error))


def _neighbour_faults(snapshot: Snapshot) -> Iterator[Fault]:
    """Check the neighbours of the passages: their checksums, and that a search can map them."""
    try:
        live_neighbourhood.check(snapshot)
    except DamagedError as error:
        yield Fault("neighbours", "", str(error))


def _with_chunks(
    snapshot: Snapshot, rows: list[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], str]]:
    """Each document row with its chunks in order and its stored text; documents are read in batches."""
    columns = [
        "id",
        "document",
        "key",
        "char_start",
        "char_end",
        "line_start",
        "line_end",
        "page",
        "heading",
        "text",
        "context",
    ]
    for start in range(0, len(rows), _BATCH_SIZE):
        batch = rows[start : start + _BATCH_SIZE]
        numbers = ",".join(str(row["id"]) for row in batch)
        chunks: dict[int, list[dict[str, Any]]] = {row["id"]: [] for row in batch}
        for chunk in snapshot.read("chunks", columns, f"document IN ({numbers})").to_pylist():
            chunks[chunk["document"]].append(chunk)
        texts = snapshot.documents_by_id([row["id"] for row in batch], ["text"])
        for row in batch:
            ordered = sorted(chunks[row["id"]], key=lambda chunk: chunk["char_start"])
            yield row, ordered, texts[row["id"]]["text"]


def _changed(row: dict[str, Any], reading: Reading) -> str:
    if reading.sha256 and reading.sha256 != row["sha256"]:
        return _CHANGED
    if reading.document is None:
        return f"{_UNREADABLE}: {reading.reason}"
    return ""


def _chunk_faults(
    row: dict[str, Any], chunks: list[dict[str, Any]], text: str, document: Document | None = None
) -> Iterator[Fault]:
    """Compare each chunk with the text of its document, and its lines and page with the document, if it is known."""
    lines = LineCounter(document) if document else None
    for chunk in chunks:
        label = f"passage {chunk['id']} (characters {chunk['char_start']} to {chunk['char_end']})"
        context = context_of(chunk["heading"], chunk["text"])
        if text[chunk["char_start"] : chunk["char_end"]] != chunk["text"]:
            yield Fault("passage", row["path"], f"{label} differs from the text of the document there")
        elif context != chunk["context"] or chunk["key"] not in (key_of(context), own_key(row["path"], context)):
            yield Fault("passage", row["path"], f"{label} differs from the text that was embedded")
        elif (
            document
            and lines
            and (chunk["line_start"], chunk["line_end"], chunk["page"])
            != (
                lines.at(chunk["char_start"]),
                lines.at(max(chunk["char_start"], chunk["char_end"] - 1)),
                document.page_at(chunk["char_start"]),
            )
        ):
            yield Fault("passage", row["path"], f"{label} is not on the lines or the page that it cites")
