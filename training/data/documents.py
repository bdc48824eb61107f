"""Documents as training pairs are made of them: from an index or a test collection, whole or split in two."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import InputError
from . import beir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...retriever.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Passage:
    """`heading` is the path of titles above the text, the document's first, as `Chunk.heading` is."""

    text: str
    heading: tuple[str, ...] = ()

    @property
    def context(self) -> str:
        """What the encoder sees of it: the same as `Chunk.context`."""
        return f"{' > '.join(self.heading)}\n{self.text}" if self.heading else self.text


@dataclass(frozen=True, slots=True)
class Source:
    """A document: its path or id, its title ("" if it has none) and its passages in order."""

    id: str
    title: str
    passages: tuple[Passage, ...]


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

    def _chunks(self) -> Iterator[tuple[int, Passage]]:
        for batch in self.snapshot.batches(["document", "heading", "text"]):
            for row in batch.to_pylist():
                yield row["document"], Passage(row["text"], tuple(row["heading"]))


@dataclass(frozen=True, slots=True)
class _Corpus:
    folder: Path

    def __iter__(self) -> Iterator[Source]:
        for row in beir.documents(self.folder):
            heading = (row["title"],) if row["title"] else ()
            yield Source(row["id"], row["title"], (Passage(row["text"], heading),))


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
    """The indexed documents, to be iterated as often as wanted; one is in memory at a time."""
    return _Indexed(snapshot)


def from_corpus(folder: str | Path) -> Iterable[Source]:
    """The documents of a folder in BEIR's layout, each one passage below its title; as `from_index`."""
    return _Corpus(Path(folder))


def split(documents: Iterable[Source], share: float, seed: int = 0) -> tuple[Iterable[Source], Iterable[Source]]:
    """Documents to train on, and about `share` of all held out: which is where follows from its id and the seed."""
    if not 0 < share < 1:
        raise InputError(f"the share of documents to hold out lies between 0 and 1, but {share!r} came")
    return _Share(documents, share, seed, inside=False), _Share(documents, share, seed, inside=True)


def sample(documents: Iterable[Source], wanted: int, seed: int) -> Iterable[Source]:
    """Documents that hold as many passages as wanted, or hardly more; all where they hold no more in all."""
    places = sorted((_position(source.id, seed + 1), len(source.passages)) for source in documents)
    total = 0
    for place, passages in places:
        total += passages
        if total >= wanted:
            return _Share(documents, math.nextafter(place, 1), seed + 1, inside=True)
    return documents


def _position(name: str, seed: int) -> float:
    """Where a name falls in [0, 1), the same on every machine."""
    digest = hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
