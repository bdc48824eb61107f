"""The two tables of an index, and Lance's ways of reading them with its many errors made ours."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa

from ...core import forking as forked
from ...core.errors import BinocleError, DamagedError, StoreError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray


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
            "sha256": pa.string(),  # of the file's bytes; of an added document of its text, title and metadata
            "format": pa.string(),
            "title": pa.string(),
            "metadata": pa.string(),  # JSON object
            "chunks": pa.int32(),
            "text": pa.large_string(),  # what the reader extracted; chunks are slices of it
        }
    )


PREVIOUS = "previous_vector"


def chunk_schema(dim: int, *, keeps: bool = False) -> pa.Schema:
    """
    :param keeps: with the vectors of the encoder before a switch, bytes of float32: LanceDB would take a second column
        of vectors for another one to search.
    """
    kept = {PREVIOUS: pa.binary()} if keeps else {}  # null where a chunk came after the switch
    return pa.schema(
        {
            "id": pa.int64(),  # given in ascending order, never used twice; rows may lie in another
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
            **kept,
        }
    )


# Lance's tokenizer for full text: Unicode word boundaries, with a dictionary for Chinese, Japanese and Thai; also
# split at punctuation, so that the parts of snake_case are found. English is stemmed (Snowball), then its stop words
# are left out, which spares those that stemming changes (any, because): hybrid search does no better without them.
# Scores are BM25 with k1 1.2 and b 0.75.
#
# Lance's own list for English is that of every language it knows, which would lose c, os, dir, care and multi.
_STOP_WORDS = (
    "a about after again against all also am an and are as at be been below between both but by can did do down each "
    "few for from further had has have he her him himself his how i if in into is it itself its just me more most my "
    "myself now of off on or other our ours out over own same she should so some such than that the their them then "
    "there these they this those through to too under until up was we were what when where which while who whom will "
    "with you your yourself"
)
FULL_TEXT: dict[str, Any] = {
    "base_tokenizer": "icu/split",
    "language": "English",
    "stem": True,
    "remove_stop_words": True,
    "custom_stop_words": _STOP_WORDS.split(),
    "lower_case": True,
    "ascii_folding": True,
    "with_position": False,
}


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Where a table lies, as Lance opens it."""

    uri: str
    options: dict[str, str] | None = None  # of the object storage

    def __str__(self) -> str:
        return self.uri

    def at(self, version: int | None = None) -> lance.LanceDataset:
        return lance.dataset(self.uri, version=version, storage_options=self.options)

    def write(self, rows: Any, **how: Any) -> lance.LanceDataset:
        return lance.write_dataset(rows, self.uri, storage_options=self.options, **how)

    def fragments(self, rows: pa.Table) -> list[Any]:
        """Write rows that are no part of the table until `append` makes them one."""
        return list(
            lance.fragment.write_fragments(
                rows, self.uri, schema=rows.schema, mode="append", storage_options=self.options
            )
        )

    def append(self, fragments: list[Any], version: int) -> lance.LanceDataset:
        """Make fragments rows of the table, whose latest version this is."""
        operation = lance.LanceOperation.Append(fragments)
        return lance.LanceDataset.commit(self.uri, operation, read_version=version, storage_options=self.options)


def open_table(table: TableLocation, version: int | None = None) -> lance.LanceDataset:
    forked.check()
    with reading(table):
        return table.at(version)


def check(location: TableLocation, version: int, known: frozenset[str] = frozenset()) -> frozenset[str]:
    """Make sure that a version's files are as long as Lance meant: on a full disk it may not notice that they are not.

    Gives their names, and those of the parts of its indexes.

    :param known: names that an earlier call gave: files do not change once they are written.
    :raises OSError: naming a file that was cut short.
    """
    if "://" in location.uri:
        return frozenset()  # object storage has an object whole or not at all
    path, table = Path(location.uri), location.at(version)
    segments = {segment.uuid for index in table.describe_indices() for segment in index.segments}
    files = {file.path: file for fragment in table.get_fragments() for file in fragment.data_files()}
    for segment in segments - known:
        for part in (path / "_indices" / segment).glob("*.lance"):
            with part.open("rb") as stream:
                stream.seek(max(0, part.stat().st_size - 4))
                if stream.read() != b"LANC":  # the end of every Lance file
                    raise OSError(f"{part.name} of the full-text index is cut short: is the disk full?")
    for name in files.keys() - known:
        size, meant = (path / "data" / name).stat().st_size, files[name].file_size_bytes
        if meant not in (None, size):
            raise OSError(f"{name} has {size} of {meant} bytes: is the disk full?")
    return frozenset((*segments, *files))


def delete(table: lance.LanceDataset, condition: str) -> None:
    """Delete rows, and make sure that what is left can be read."""
    table.delete(condition)
    table.checkout_version(table.version).to_table(columns=["id"])


@contextlib.contextmanager
def reading(table: TableLocation | Path) -> Iterator[None]:
    """Lance's errors, of many kinds, as ours."""
    try:
        yield
    except StoreError:
        raise
    except LANCE_ERRORS as error:
        if "permission denied" in str(error).lower():
            raise StoreError(f"{table} cannot be read: permission denied") from None
        if "://" in str(table):
            raise StoreError(f"{table} cannot be read ({lance_message(error)})") from error
        folder = str(table).rpartition("/")[0]
        raise DamagedError(
            f"{table} is damaged ({lance_message(error)}): remove the folder {folder} and index again"
        ) from error


@contextlib.contextmanager
def writing(path: object) -> Iterator[None]:
    try:
        yield
    except BinocleError:
        raise
    except LANCE_ERRORS as error:
        raise StoreError(
            f"cannot write to {path} ({lance_message(error)}); what was committed before is kept"
        ) from error


LANCE_ERRORS = (OSError, ValueError, RuntimeError, pa.ArrowException)


def rows_among(column: str, ids: Sequence[int]) -> str:
    return f"{column} IN ({','.join(map(str, map(int, ids)))})" if len(ids) else "false"


def matrix(column: Any, dim: int) -> NDArray[np.float32]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values: NDArray[np.float32] = array.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(-1, dim)


def lance_message(error: Exception) -> str:
    """Shorten Lance's message to its first line, without the place in Lance's source."""
    return first_line(error, 4_000).split(", /")[0][:400]
