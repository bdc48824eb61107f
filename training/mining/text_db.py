"""The texts of a mining run in a SQLite file: queries, documents and positives, each text once."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import unicodedata
from typing import TYPE_CHECKING

import numpy as np

from ...core.words import split_words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ...core.arrays import Ids


_BLOCK_TEXTS = 1_024  # encoded together: enough for batches of equal lengths, small beside a model's weights
_BLOCK_CHARACTERS = 4_000_000
_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -65536; -- KiB
BEGIN;
CREATE TABLE queries (id INTEGER PRIMARY KEY, digest BLOB UNIQUE, text TEXT) STRICT;
CREATE TABLE documents (id INTEGER PRIMARY KEY, digest BLOB UNIQUE, name TEXT, text TEXT) STRICT;
CREATE TABLE positives (query INTEGER, document INTEGER, PRIMARY KEY (query, document)) STRICT, WITHOUT ROWID;
"""


class TextDatabase:
    """Queries and documents, numbered from 0 in the order of their arrival. Fill it first, then read."""

    def __init__(self, tables: sqlite3.Connection) -> None:
        self._tables = tables
        self.queries = 0
        self.documents = 0
        self.pairs = 0
        self.has_names = False  # whether rows of training data name their documents

    @classmethod
    def create(cls, file: Path) -> TextDatabase:
        """Create the tables in a new SQLite file."""
        tables = sqlite3.connect(file, isolation_level=None)
        tables.executescript(_SCHEMA)
        return cls(tables)

    def close(self) -> None:
        """Close the SQLite file; later calls of any method fail."""
        self._tables.close()

    def add_pair(self, query: str, positive: str, name: str = "") -> None:
        """Add a row of training data, unless it is there.

        :param name: of the positive's document, if documents have names.
        """
        number = self._number("queries", query)
        if number is None:
            number = self.queries
            self._tables.execute("INSERT INTO queries VALUES (?, ?, ?)", (number, _digest(query), query))
            self.queries += 1
        self.has_names |= bool(name)
        answer = self.add_document(positive, name)
        added = self._tables.execute("INSERT OR IGNORE INTO positives VALUES (?, ?)", (number, answer))
        self.pairs += added.rowcount

    def add_document(self, text: str, name: str = "") -> int:
        """Add a text of the corpus and return its number; a text that is there only gets a missing name."""
        number = self._number("documents", text)
        if number is None:
            number = self.documents
            self._tables.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", (number, _digest(text), name, text))
            self.documents += 1
        elif name:
            self._tables.execute("UPDATE documents SET name = ? WHERE id = ? AND name = ''", (name, number))
        return number

    def named_documents(self) -> Iterator[tuple[str, str]]:
        """Yield name and text of every document in order."""
        yield from self._tables.execute("SELECT name, text FROM documents ORDER BY id")

    def document_blocks(self) -> Iterator[tuple[Ids, list[str]]]:
        """Yield numbers and texts of all documents in order, in blocks to encode together."""
        texts: list[str] = []
        first = length = 0
        for _, text in self.named_documents():
            if len(texts) == _BLOCK_TEXTS or (texts and length + len(text) > _BLOCK_CHARACTERS):
                yield np.arange(first, first + len(texts)), texts
                first, length, texts = first + len(texts), 0, []
            texts.append(text)
            length += len(text)
        if texts:
            yield np.arange(first, first + len(texts)), texts

    def query_texts(self, first: int, end: int) -> list[str]:
        """Return the texts of queries `first` to `end` - 1."""
        rows = self._tables.execute("SELECT text FROM queries WHERE id >= ? AND id < ? ORDER BY id", (first, end))
        return [text for (text,) in rows]

    def positives(self, first: int, end: int) -> tuple[Ids, Ids]:
        """Return the query, counted from `first`, and the document of each pair: both of shape (pairs,), in order."""
        rows = self._tables.execute(
            "SELECT query, document FROM positives WHERE query >= ? AND query < ? ORDER BY query, document",
            (first, end),
        )
        both = np.array(rows.fetchall(), np.int64).reshape(-1, 2)
        return both[:, 0] - first, both[:, 1]

    def texts(self, ids: Ids) -> dict[int, str]:
        """Return the texts of these documents."""
        return {number: text for number, (_, text) in self.named(ids).items()}

    def named(self, ids: Ids) -> dict[int, tuple[str, str]]:
        """Return name and text of each of these documents."""
        numbers = json.dumps(np.unique(ids).tolist())  # SQLite limits the parameters of a statement
        rows = self._tables.execute(
            "SELECT id, name, text FROM documents WHERE id IN (SELECT value FROM json_each(?))", (numbers,)
        )
        return {number: (name, text) for number, name, text in rows}

    def keys(self) -> tuple[Ids, Ids]:
        """Return `text_key` and `name_key` of each document, both of shape (documents,)."""
        keys = np.empty((2, self.documents), np.int64)
        for number, (name, text) in enumerate(self.named_documents()):
            keys[:, number] = text_key(text), name_key(name)
        return keys[0], keys[1]

    def _number(self, table: str, text: str) -> int | None:
        row = self._tables.execute(f"SELECT id FROM {table} WHERE digest = ?", (_digest(text),)).fetchone()  # noqa: S608
        return None if row is None else int(row[0])


def join_words(text: str) -> str:
    """Join the words of a text in one case and form by single spaces; a text without words keeps its signs.

    Accents count, and so do the signs of C++ and C#: different texts must stay different.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(split_words(folded, signs=True)) or "".join(folded.split())


def text_key(text: str) -> int:
    """Return a key that is equal for texts with the same words, whatever their case, signs and white space."""
    return _integer(join_words(text))


def name_key(name: str) -> int:
    """Return a key that is equal for texts of one document; 0 for a text without a name, which equals no other."""
    return _integer(name) if name else 0


def _integer(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True) or 1


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
