"""Read databases: tables of SQLite and Parquet files, a line for each row, under their names.

SQLite runs on the bytes in memory: no other file is opened, and no extension, view, trigger or virtual table runs.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any

from ...core.errors import UnreadableError, UnsupportedError
from ..documents.document import UNREAD
from .document_builder import DocumentBuilder, table_row
from .table_rows import add_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..documents.document import Document

_MAX_CHARACTERS = 32_000_000  # of all rows: those beyond are left out
_MAX_TABLES = 1_000
_MAX_VALUE = 10_000_000  # bytes that SQLite may put into one value
_BATCH = 1_000  # rows
_TABLES = "SELECT name, sql LIKE 'CREATE VIRTUAL%' FROM sqlite_schema WHERE type = 'table' ORDER BY rowid"
# Tables of an index behind a virtual table. The text of a full-text table NAME is in the table NAME_content.
_INDEXES = ("_data", "_idx", "_docsize", "_config", "_segments", "_segdir", "_stat", "_node", "_parent", "_rowid")


def read_sqlite(data: bytes, format_name: str) -> Document:
    """Read the tables of an SQLite database; tables count as pages."""
    if not data.startswith(b"SQLite format 3\0"):
        raise UnsupportedError("no SQLite database")
    rows = _Rows()
    try:
        with closing(sqlite3.connect(":memory:")) as database:
            _confine(database, data)
            for number, table in enumerate(_tables(database), 1):
                cursor = database.execute(f"SELECT * FROM {_quoted(table)}")  # noqa: S608 - a quoted name
                columns = [str(column[0]) for column in cursor.description]
                rows.add(number, table, columns, cursor)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise UnreadableError(f"damaged: {str(error)[:200]}") from None
    return rows.document(format_name)


def _tables(database: sqlite3.Connection) -> list[str]:
    """Return the names of the tables with rows of the user's."""
    tables = {str(name): bool(is_virtual) for name, is_virtual in database.execute(_TABLES).fetchmany(_MAX_TABLES)}
    indexes = {name + ending for name, is_virtual in tables.items() if is_virtual for ending in ("", *_INDEXES)}
    return [name for name in tables if name not in indexes and not name.startswith("sqlite_")]


def _confine(database: sqlite3.Connection, data: bytes) -> None:
    """Open a database in memory so that none of its content can run or write."""
    rollback = data[:18] + b"\1\1" + data[20:]  # not WAL, which needs a second file
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.deserialize(rollback)
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
        database.execute(f"PRAGMA {setting}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def read_parquet(data: bytes, format_name: str) -> Document:
    """Read a Parquet file as one table."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = _Rows()
    try:
        with parquet.ParquetFile(pa.BufferReader(data)) as file:
            columns = [str(name) for name in file.schema_arrow.names]
            batches = file.iter_batches(_BATCH, use_threads=False)
            rows.add(None, "", columns, (tuple(row.values()) for batch in batches for row in batch.to_pylist()))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnreadableError(f"damaged: {str(error).partition(chr(10))[0][:200]}") from None
    return rows.document(format_name)


class _Rows:
    """Adds the rows of tables to a builder, as many as a document may have."""

    def __init__(self) -> None:
        self._builder = DocumentBuilder()
        self._left = _MAX_CHARACTERS
        self._unread: list[str] = []

    def add(self, page: int | None, name: str, columns: list[str], rows: Iterable[Iterable[Any]]) -> None:
        """Add a table.

        :param page: its number, None if the file has one alone.
        """
        add_rows(self._builder, self._lines(name, chain([columns], rows)), page, name, columns)

    def _lines(self, name: str, rows: Iterable[Iterable[Any]]) -> Iterator[str]:
        for number, row in enumerate(rows):
            if self._left < 0:
                self._unread.append(f"{name} only {max(number - 1, 0):,} rows".strip())
                return
            line = table_row(enumerate(map(_shown, row)), "\t")
            self._left -= len(line)
            yield line

    def document(self, format_name: str) -> Document:
        if self._unread:
            self._builder.metadata[UNREAD] = ", ".join(self._unread)[:300] + " were read"
        return self._builder.document(format_name)


def _shown(value: Any) -> str:
    """Write a value on one line; binary data is left out."""
    if value is None or isinstance(value, (bytes, memoryview)):
        return ""
    if isinstance(value, float):
        return f"{value:.12g}"
    return " ".join(str(value).split())
