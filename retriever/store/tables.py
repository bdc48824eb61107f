"""The two tables of an index: their columns, the tokenizer of full text, and Lance's errors turned into ours."""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa

from ...core.errors import BinocleError, DamagedError, StoreError, first_line, panics_as_errors
from ...core.runtime import forking
from ...core.terms import STOP_WORDS
from .foreign.confinement import check_table
from .foreign.deletion_files import check_deletions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray


def document_schema() -> pa.Schema:
    """Return the columns of the documents table."""
    return pa.schema(
        {
            "id": pa.int64(),
            "path": pa.string(),  # relative to the folder, "/" between names; the id of an added document
            "source": pa.string(),  # "file" or "added"
            "state": pa.string(),  # "indexed", "skipped" or "failed"
            "reason": pa.string(),  # why it was skipped or failed, else ""
            "size": pa.int64(),
            "mtime_ns": pa.int64(),  # time of the last change; 0 for an added document
            "settled": pa.bool_(),  # a later change is certain to change mtime_ns
            "sha256": pa.string(),  # of the file's bytes; for an added document of its text, title and metadata
            "format": pa.string(),
            "title": pa.string(),
            "metadata": pa.string(),  # JSON object
            "chunks": pa.int32(),
            "text": pa.large_string(),  # as the reader extracted it; chunks are slices of it
        }
    )


PREVIOUS = "previous_vector"
SYMBOLS = "symbols"
_LARGEST = 2**64 - 1
_FOOTER = struct.Struct("<QQQIIHH4s")  # of a Lance file
_PART = struct.Struct("<QQ")  # offset and size in bytes


def chunk_schema(dim: int, *, previous: bool = False, symbols: bool = True) -> pa.Schema:
    """Return the columns of the chunks table.

    :param symbols: with the names of definitions, which indexes of earlier versions lack.
    :param previous: add the vectors of the encoder before the last switch, as bytes of float32. LanceDB would take a
        second column of vectors for another one to search.
    """
    previous_vectors = {PREVIOUS: pa.binary()} if previous else {}  # null in a chunk that came after the switch
    names = {SYMBOLS: pa.list_(pa.string())} if symbols else {}  # of definitions in source code; null elsewhere
    return pa.schema(
        {
            "id": pa.int64(),  # ascending and never reused; rows may be stored in another order
            "document": pa.int64(),
            "key": pa.int64(),  # hash of the context: equal contexts are embedded once
            "char_start": pa.int64(),
            "char_end": pa.int64(),
            "line_start": pa.int32(),
            "line_end": pa.int32(),
            "page": pa.int32(),
            "heading": pa.list_(pa.string()),
            "text": pa.string(),
            "context": pa.string(),  # heading path and text, for the encoder and full-text search
            **names,
            "vector": pa.list_(pa.float32(), dim),
            **previous_vectors,
        }
    )


# Lance's tokenizer for full text: Unicode word boundaries, with a dictionary for Chinese, Japanese and Thai. It also
# splits at punctuation, so that a query finds the parts of snake_case. English is stemmed (Snowball) before stop words
# are removed. Words that stemming changes (any, because) therefore stay: hybrid search is no better without them.
# Scores are BM25 with k1 1.2 and b 0.75.
FULL_TEXT: dict[str, Any] = {
    "base_tokenizer": "icu/split",
    "language": "English",
    "stem": True,
    "remove_stop_words": True,
    "custom_stop_words": list(STOP_WORDS),
    "lower_case": True,
    "ascii_folding": True,
    "with_position": False,
}


@dataclass(frozen=True, slots=True)
class TableLocation:
    """The address of a table, as Lance opens it."""

    uri: str
    options: dict[str, str] | None = None  # of the object storage

    def __str__(self) -> str:
        return self.uri

    def at(self, version: int | None = None) -> lance.LanceDataset:
        """Open a version of the table, the latest by default.

        :raises StoreError: when it names files outside of its folder, or its list of deleted rows is damaged.
        """
        table = lance.dataset(self.uri, version=version, storage_options=self.options)
        check_table(table)
        if "://" not in self.uri:
            check_deletions(table)
        return table

    def write(self, rows: Any, **options: Any) -> lance.LanceDataset:
        """Write rows by Lance. It creates the table, unless `mode` is to append or overwrite."""
        return lance.write_dataset(rows, self.uri, storage_options=self.options, **options)

    def fragments(self, rows: pa.Table) -> list[Any]:
        """Write rows that `append` makes a part of the table later."""
        return list(
            lance.fragment.write_fragments(
                rows, self.uri, schema=rows.schema, mode="append", storage_options=self.options
            )
        )

    def append(self, fragments: list[Any], version: int) -> lance.LanceDataset:
        """Append fragments to the table.

        :param version: the latest version of the table.
        """
        operation = lance.LanceOperation.Append(fragments)
        return lance.LanceDataset.commit(self.uri, operation, read_version=version, storage_options=self.options)


def open_table(table: TableLocation, version: int | None = None) -> lance.LanceDataset:
    """Open a version of the table, the latest by default.

    :raises StoreError: when it cannot be read; a DamagedError if its files are at fault.
    """
    forking.check()
    with reading(table):
        return table.at(version)


def check_pages(table: lance.LanceDataset) -> None:
    """Read a row of each fragment, with all columns, so that a damaged description of a page is an error here.

    A read of many rows would end the process: Lance quotes the file in the error, and Arrow's C stream aborts on text
    with a NUL (arrow-rs 58, `ffi_stream.rs`).

    :raises StoreError: when it names files outside of its folder.
    :raises DamagedError: when the end of a file describes more than the file can hold.
    """
    if "://" not in table.uri.removeprefix("file://"):
        for name in {file.path for fragment in table.get_fragments() for file in fragment.data_files()}:
            if "/" in name:
                raise StoreError(f"{table.uri} keeps data outside of the index, in {name}: remove it and index again")
            _check_footer(Path(table.uri.removeprefix("file://")) / "data" / name)
    counts = [fragment.count_rows() for fragment in table.get_fragments()]
    table.take([end - count for end, count in zip(accumulate(counts), counts, strict=True) if count])


def _check_footer(file: Path) -> None:
    """Check the two tables of parts that end a Lance file: Lance reserves the memory that they claim.

    The footer has three offsets, the numbers of global buffers and of columns, and the version:
    https://lancedb.github.io/lance/format/file.

    :raises DamagedError: when a table, or a part that it names, does not lie in the file.
    """
    try:
        stream = file.open("rb")
    except FileNotFoundError:
        return  # Lance says so, and a reader then looks for a later state
    with stream:
        size = os.fstat(stream.fileno()).st_size
        if size < _FOOTER.size:
            return  # Lance says so
        stream.seek(size - _FOOTER.size)
        _, columns_start, buffers_start, buffers, columns, *_ = _FOOTER.unpack(stream.read(_FOOTER.size))
        for start, count in ((columns_start, columns), (buffers_start, buffers)):
            stream.seek(start if start + count * _PART.size <= size else size)
            parts = stream.read(min(count * _PART.size, size))
            if len(parts) < count * _PART.size or any(at + length > size for at, length in _PART.iter_unpack(parts)):
                reason = f"its end names parts outside of its {size:,} bytes"
                remedy = f"remove the folder {file.parents[2]} and index again"
                raise DamagedError(f"{file} is damaged ({reason}): {remedy}")


def drop_later_versions(location: TableLocation, version: int) -> None:
    """Remove the newer versions of a killed writer, and manifests that a power cut left empty.

    Lance cannot write to a table with an empty manifest. The newest go first, so that there is never a gap.
    """
    for number, manifest in sorted(manifests(location), reverse=True):
        if number > version or not manifest.stat().st_size:
            manifest.unlink()
    drop_version_hint(location)


def manifests(location: TableLocation) -> list[tuple[int, Path]]:
    """List the versions of a table in a folder, each with its file."""
    folder = Path(location.uri) / "_versions"
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(".manifest")]
    return [(_version_of(name), folder / name) for name in names]


def drop_version_hint(location: TableLocation) -> None:
    """Remove Lance's note of the latest version of a table in a folder.

    Its permissions follow the umask, and Lance does not need it.
    """
    (Path(location.uri) / "_versions" / "latest_version_hint.json").unlink(missing_ok=True)


def _version_of(manifest: str) -> int:
    """Read the version from the name: the number itself, or in newer tables 2^64 - 1 minus the number."""
    stem = manifest.removesuffix(".manifest")
    number = int(stem) if stem.isdecimal() else 0
    return min(number, _LARGEST - number)


def check(location: TableLocation, table: lance.LanceDataset, known: frozenset[str] = frozenset()) -> frozenset[str]:
    """Check that an open table's files have their full length: on a full disk Lance may not notice a short write.

    :param known: names that an earlier call returned. They are not checked again: written files do not change.
    :returns: the names of the files, and of the segments of the full-text index.
    :raises OSError: naming a file that was cut short.
    """
    if "://" in location.uri:
        return frozenset()  # object storage has an object whole or not at all
    path = Path(location.uri)
    segments = {segment.uuid for index in table.describe_indices() for segment in index.segments}
    files = {file.path: file for fragment in table.get_fragments() for file in fragment.data_files()}
    for part in chain.from_iterable((path / "_indices" / segment).glob("*.lance") for segment in segments - known):
        with part.open("rb") as stream:
            stream.seek(max(0, part.stat().st_size - 4))
            if stream.read() != b"LANC":  # the end of every Lance file
                raise OSError(f"{part.name} of the full-text index is cut short: is the disk full?")
    for name in files.keys() - known:
        size, expected = (path / "data" / name).stat().st_size, files[name].file_size_bytes
        if expected not in (None, size):
            raise OSError(f"{name} has {size} of {expected} bytes: is the disk full?")
    return frozenset((*segments, *files))


def unnamed_files(location: TableLocation, version: int) -> list[Path]:
    """List the files of rows and of the full-text index that a version does not name; none on object storage.

    Lance passes over a file that it cannot remove.
    """
    if "://" in location.uri:
        return []
    named, path = check(location, location.at(version)), Path(location.uri)
    return [file for part in ("data", "_indices") for file in (path / part).glob("*") if file.name not in named]


def delete(table: lance.LanceDataset, condition: str) -> None:
    """Delete rows, and check that the remaining rows beside them can be read."""
    before = {fragment.deletion_file() for fragment in table.get_fragments()}
    table.delete(condition)
    changed = [fragment for fragment in table.get_fragments() if fragment.deletion_file() not in before]
    if changed:
        table.checkout_version(table.version).scanner(columns=["id"], fragments=changed).to_table()


@contextlib.contextmanager
def reading(table: TableLocation | Path) -> Iterator[None]:
    """Turn Lance's errors, of many kinds, into ours."""
    try:
        with panics_as_errors():
            yield
    except StoreError:
        raise
    except LANCE_ERRORS as error:
        raise reading_error(table, error) from error


def reading_error(table: TableLocation | Path, error: Exception) -> StoreError:
    """Return our error for an error of Lance."""
    if "permission denied" in str(error).lower():
        return StoreError(f"{table} cannot be read: permission denied")
    if "://" in str(table):
        return StoreError(f"{table} cannot be read ({lance_message(error)})")
    folder = str(table).rpartition("/")[0]
    return DamagedError(f"{table} is damaged ({lance_message(error)}): remove the folder {folder} and index again")


@contextlib.contextmanager
def writing(path: object) -> Iterator[None]:
    """Turn Lance's errors of a write into ours."""
    try:
        with panics_as_errors():
            yield
    except BinocleError:
        raise
    except LANCE_ERRORS as error:
        raise StoreError(
            f"cannot write to {path} ({lance_message(error)}); what was committed before is kept"
        ) from error


LANCE_ERRORS = (OSError, ValueError, RuntimeError, pa.ArrowException)


def rows_among(column: str, ids: Sequence[int]) -> str:
    """Return Lance's SQL condition for rows with these ids in `column`; `false` for no ids."""
    return f"{column} IN ({','.join(map(str, map(int, ids)))})" if len(ids) else "false"


def beginning_with(column: str, prefixes: Sequence[str]) -> str:
    """Return Lance's SQL condition for rows with a text in `column` that begins with one of these; `false` for none."""
    return " OR ".join(f"starts_with({column}, {_quoted(prefix)})" for prefix in prefixes) or "false"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def matrix(column: Any, dim: int) -> NDArray[np.float32]:
    """Return a column of vectors as an array (rows, dim)."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values: NDArray[np.float32] = array.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(array), dim)


def lance_message(error: Exception) -> str:
    """Shorten Lance's message to its first line, without the line of Lance's source."""
    return first_line(error, 4_000).split(", /")[0][:400]
