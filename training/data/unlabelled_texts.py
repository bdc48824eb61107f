"""Read texts without labels, one document after another, from any source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.checks import listed
from ...core.errors import InputError
from ...core.files import expand_home
from ...core.printable import first_of_repr
from ...core.progress import Progress, at_intervals, ignore
from ...core.units import count_of
from ...core.words import encodable
from ...retriever.documents.scan import is_index
from .sources import rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...core.progress import OnProgress
    from .sources import Rows

_TABLES = {".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".txt"}
_COLUMNS = ("text", "sentence", "content")


def documents(sources: Sequence[str | Path], column: str | None = None, progress: OnProgress = ignore) -> Iterator[str]:
    """Yield the text of each document in order; each call yields the same, unless a source changes.

    :param sources: each an index, a folder of documents, a BEIR folder, a Lance table, a .txt file with a text a
        line, a .jsonl, .csv, .tsv or .parquet file (.gz too) with a column of texts, one document of any readable
        format, or the name of a Hugging Face data set.
    :param column: the column of texts; by default "text", "sentence" or "content".
    :raises InputError: naming the wrong file and line.
    """
    count, report = 0, at_intervals(progress)
    for source in sources:
        for text in _texts(source, column, progress):
            count += 1
            report(Progress("reading documents", count, message=f"{count_of(count, 'document')} read"))
            if text.strip():
                yield encodable(text)


def check(texts: str | Path | Sequence[str | Path], column: str | None = None) -> list[str | Path]:
    """Look for each source, read the first text of a file, and return the list of them.

    :raises InputError: when there is none, or one is missing or has no column of texts.
    """
    sources = [texts] if isinstance(texts, (str, Path)) else listed(texts, "texts: folders, files or indexes")
    if not sources:
        raise InputError("expected texts: a folder, a file or an index")
    for source in sources:
        if not isinstance(source, (str, Path)):
            raise InputError(f"expected texts: a folder, a file or an index, not {source!r:.60}")
        stream = _texts(source, column, ignore)
        if not expand_home(source).is_dir():
            next(stream, None)
    return sources


def _texts(source: str | Path, column: str | None, progress: OnProgress) -> Iterator[str]:
    path = expand_home(source)
    if is_index(path):
        return _indexed(path)
    if (path / "corpus.jsonl").is_file():
        return _corpus(path)
    if not has_columns(path):
        return _folder(path, progress) if path.is_dir() else _file(path)
    if not path.exists() and "/" not in str(source):  # data sets of the hub have an owner
        raise InputError(f"there is no file or folder {source}")
    return _column(rows(path if path.exists() else str(source)), column)


def has_columns(source: str | Path) -> bool:
    """Whether a source is a table, a file of rows or a data set, instead of an index, a folder or a document."""
    path = expand_home(source)
    if path.is_dir():
        return (path / "_versions").is_dir()
    kind = next((suffix for suffix in map(str.lower, reversed(path.suffixes)) if suffix != ".gz"), "")
    return not path.is_file() or kind in _TABLES


def _indexed(index: Path) -> Iterator[str]:
    from ...retriever.retriever import Retriever

    snapshot = Retriever.open(index).snapshot()
    with snapshot.reading("documents"):
        batches = snapshot.documents.to_batches(
            columns=["text"], filter="chunks > 0", batch_size=256, scan_in_order=True
        )
        for batch in batches:
            yield from batch.column("text").to_pylist()


def _corpus(folder: Path) -> Iterator[str]:
    for where, row in rows(folder / "corpus.jsonl"):
        title, text = row.get("title") or "", row.get("text")
        if not isinstance(text, str) or not isinstance(title, str):
            raise InputError(f"{where}: expected strings in 'text' and 'title'")
        yield "\n".join(filter(None, (title, text)))


def _folder(folder: Path, progress: OnProgress) -> Iterator[str]:
    from ...retriever.documents.scan import scan
    from ...retriever.readers.large_files import cut
    from ...retriever.readers.pool.pool import ReaderPool

    failed = 0
    with ReaderPool() as pool:
        for reading in pool.read_all(folder / entry.path for entry in cut(folder, scan(folder)) if not entry.reason):
            if reading.document:
                yield reading.document.text
            failed += reading.state == "failed"
    if failed:
        progress(Progress(f"left out: {count_of(failed, 'file')} of {folder} that could not be read"))


def _file(path: Path) -> Iterator[str]:
    from ...retriever.readers.pool.pool import read_file

    reading = read_file(path)
    if reading.document is None:
        raise InputError(f"{path} gives no text ({reading.reason or 'it is empty'})")
    yield reading.document.text


def _column(stream: Rows, column: str | None) -> Iterator[str]:
    name = column
    for where, row in stream:
        name = name or _text_column(where, row)
        text = row.get(name)
        if not isinstance(text, str):
            columns = ", ".join(map(repr, row)) or "none"
            came = first_of_repr(text, 60) if name in row else f"the columns {columns}"
            raise InputError(f"{where}: expected a text in {name!r}, but {came} came; --column says which it is")
        yield text


def _text_column(where: str, row: dict[str, Any]) -> str:
    name = next((name for name in _COLUMNS if isinstance(row.get(name), str)), None)
    if name is None:
        columns = ", ".join(map(repr, row)) or "none"
        raise InputError(f"{where}: expected a column 'text', but the columns are {columns}: say which with --column")
    return name
