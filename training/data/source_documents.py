"""Documents that training pairs are generated from: of an index or a test collection, whole or split in two."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import InputError
from ...retriever.documents.document import context_of
from . import beir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...retriever.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SourcePassage:
    """A passage of a document."""

    text: str
    heading: tuple[str, ...] = ()  # the titles above the text, the document's first, as in `Chunk.heading`

    @property
    def context(self) -> str:
        """The text that the encoder reads: the same as `Chunk.context`."""
        return context_of(self.heading, self.text)


@dataclass(frozen=True, slots=True)
class Source:
    """A document: its path or id, its title ("" if it has none) and its passages in order."""

    id: str
    title: str
    passages: tuple[SourcePassage, ...]


@dataclass(frozen=True, slots=True)
class _Indexed:
    snapshot: Snapshot

    def __iter__(self) -> Iterator[Source]:
        rows = self.snapshot.read("documents", ["id", "path", "title"], "chunks > 0").to_pylist()
        documents = {row["id"]: row for row in rows}
        # A document's chunks have neighbouring ids, and come in their order.
        for number, chunks in groupby(self._chunks(), key=lambda chunk: chunk[0]):
            row = documents[number]
            yield Source(row["path"], row["title"], tuple(passage for _, passage in chunks))

    def _chunks(self) -> Iterator[tuple[int, SourcePassage]]:
        for batch in self.snapshot.batches(["document", "heading", "text"]):
            for row in batch.to_pylist():
                yield row["document"], SourcePassage(row["text"], tuple(row["heading"]))


@dataclass(frozen=True, slots=True)
class _Corpus:
    folder: Path

    def __iter__(self) -> Iterator[Source]:
        for row in beir.documents(self.folder):
            heading = (row["title"],) if row["title"] else ()
            yield Source(row["id"], row["title"], (SourcePassage(row["text"], heading),))


@dataclass(frozen=True, slots=True)
class _Share:
    documents: Iterable[Source]
    share: float
    seed: int
    inside: bool

    def __iter__(self) -> Iterator[Source]:
        for source in self.documents:
            if (_position(source.id, self.seed) < self.share) == self.inside:
                yield source


def from_index(snapshot: Snapshot) -> Iterable[Source]:
    """Iterate over the indexed documents, any number of times; one is in memory at a time."""
    return _Indexed(snapshot)


def from_corpus(folder: str | Path) -> Iterable[Source]:
    """Iterate over the documents of a folder in BEIR's layout, like `from_index`; each is one passage below a title."""
    return _Corpus(Path(folder))


def split(documents: Iterable[Source], share: float, seed: int = 0) -> tuple[Iterable[Source], Iterable[Source]]:
    """Split documents into those to train on and about `share` held out, by id and seed."""
    if not 0 < share < 1:
        raise InputError(f"the share of documents to hold out lies between 0 and 1, but {share!r} came")
    return _Share(documents, share, seed, inside=False), _Share(documents, share, seed, inside=True)


def sample(documents: Iterable[Source], passages: int, seed: int) -> Iterable[Source]:
    """Choose documents until they have `passages` passages together; all documents if they have fewer."""
    positions = sorted((_position(source.id, seed + 1), len(source.passages)) for source in documents)
    total = 0
    for position, count in positions:
        total += count
        if total >= passages:
            return _Share(documents, math.nextafter(position, 1), seed + 1, inside=True)
    return documents


def _position(name: str, seed: int) -> float:
    """Map a name to a number in [0, 1), the same on every machine."""
    digest = hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
