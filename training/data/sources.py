"""Read rows from files, folders, tables and data sets, each with its location, in bounded memory."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import logging
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...core.errors import InputError, MissingExtraError, first_line
from ...core.units import count_of
from . import beir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Rows = Iterator[tuple[str, dict[str, Any]]]

_MAX_LINE = 64 << 20  # bytes: a longer line is not a row but a file without line ends


def rows(source: str | Path | Iterable[Mapping[str, Any]], split: str = "train") -> Rows:
    """Yield every row of a source with its location: "file:line", or "source, row N" for a source without lines.

    :param source: a .jsonl, .csv, .tsv or .parquet file (.gz too), a BEIR folder, a Lance table, the name of a
        Hugging Face data set, or mappings.
    :param split: of a BEIR folder's judgements (`qrels/SPLIT.tsv`), or of a data set.
    """
    if isinstance(source, Iterable) and not isinstance(source, (str, bytes, Path)):
        return _in_memory(source)
    if not isinstance(source, (str, Path)):
        raise InputError(
            f"expected data, which are a file, a folder, a data set's name or mappings, not {source!r:.60}"
        )
    path, name = Path(source), str(source)
    if not name.strip():
        raise InputError(f"{name!r} is no name of data: expected a file, a folder or the name of a data set")
    if path.is_dir():
        return _folder(path, split)
    if path.is_file():
        return _file(path)
    if path.suffix or name.startswith(("/", ".", "~")) or name.count("/") > 1:
        if path.exists():
            raise InputError(f"{name} is a pipe or a device: expected a file or a folder, which can be read twice")
        raise InputError(f"there is no file or folder {name}")
    return _dataset(name, split)


def check_apart(out: str | Path, *data: Any) -> None:
    """:raises InputError: when the file to write is one that is read, also as a part of a BEIR folder."""
    file = Path(out)
    for source in data:
        if not isinstance(source, (str, Path)) or not file.exists():
            continue
        inputs = [Path(source), *(Path(source) / name for name in ("corpus.jsonl", "queries.jsonl"))]
        inputs += Path(source).glob("qrels/*.tsv")
        if any(path.exists() and path.samefile(file) for path in inputs):
            raise InputError(f"{out} is read, and would be replaced: give another file to write")


def by_name(data: Any) -> dict[str, Any]:
    """Return the data sets that a caller gave: those of a mapping, or one with the name "data".

    :raises InputError: for a mapping without data, and for the splits of one data set.
    """
    if not isinstance(data, Mapping):
        return {"data": data}
    if type(data).__name__ in ("DatasetDict", "IterableDatasetDict"):
        raise InputError(
            f"these are the splits {', '.join(data)} of one data set: give one of them, such as data['train']"
        )
    if not data:
        raise InputError("there are no data to train on: expected one data set or more")
    return {str(name): source for name, source in data.items()}


def _in_memory(source: Iterable[Mapping[str, Any]]) -> Rows:
    for number, row in enumerate(source, 1):
        if not isinstance(row, Mapping):
            raise InputError(f"row {number}: expected a mapping of columns to values, not {type(row).__name__}")
        yield f"row {number}", dict(row)


def _folder(path: Path, split: str) -> Rows:
    if beir.is_collection(path):
        return _beir(path, split)
    if (path / "_versions").is_dir():
        return _lance(path)
    raise InputError(
        f"{path} is a folder without training data: expected BEIR's corpus.jsonl in it, or a Lance table; documents "
        "are for 'binocle tune' and 'binocle pretrain'"
    )


def _file(path: Path) -> Rows:
    names = [suffix.lower() for suffix in path.suffixes]
    kind = next((name for name in reversed(names) if name != ".gz"), "")
    readers: dict[str, Callable[[Path], Rows]] = {
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
        ".json": _json_lines,
        ".csv": _commas,
        ".tsv": _tabs,
        ".parquet": _parquet,
        ".txt": _lines,
    }
    if kind not in readers:
        raise InputError(f"{path} has no known kind: expected {', '.join(readers)}, a BEIR folder or a Lance table")
    return readers[kind](path)


def _bytes(path: Path) -> IO[bytes]:
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    return opener(path, "rb")  # type: ignore[no-any-return]


def _text(path: Path) -> Iterator[tuple[int, str]]:
    with _bytes(path) as stream:
        yield from text_lines(stream, path)


def text_lines(stream: IO[bytes], name: object) -> Iterator[tuple[int, str]]:
    """Yield lines in UTF-8 with their numbers, without line ends.

    :param name: of the stream, for messages.
    """
    number = 0
    try:
        while line := stream.readline(_MAX_LINE):
            number += 1
            if len(line) == _MAX_LINE and not line.endswith(b"\n"):
                raise InputError(f"{name}:{number} has over {_MAX_LINE >> 20} MB: expected one row a line")
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}:{number} is not UTF-8 ({error.reason}): save it as UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{name}:{number + 1} is not whole gzip data ({error}): copy it here again") from None


def _json_lines(path: Path) -> Rows:
    for number, line in _text(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_unique_keys)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}:{number} is not JSON ({error}): expected one object a line") from None
        if not isinstance(row, dict):
            came = type(row).__name__
            raise InputError(f"{path}:{number}: expected an object with columns as its keys on each line, not {came}")
        yield f"{path}:{number}", row


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has {twice!r} twice")
    return row


def _lines(path: Path) -> Rows:
    for number, line in _text(path):
        if line.strip():
            yield f"{path}:{number}", {"text": line}


def _tabs(path: Path) -> Rows:
    """Read TSV as its media type says (iana.org, text/tab-separated-values): a quote is a character like any other."""
    header: list[str] = []
    for number, line in _text(path):
        cells = line.split("\t")
        if not header:
            header = _header(path, cells, "\t")
        elif line:
            yield f"{path}:{number}", _row(f"{path}:{number}", header, cells, "keep tabs out of fields")


def _commas(path: Path) -> Rows:
    """Read CSV as RFC 4180 says, with quoted fields; the header names the columns."""
    csv.field_size_limit(_MAX_LINE)
    line_number = 0

    def lines() -> Iterator[str]:
        nonlocal line_number
        for number, line in _text(path):
            line_number = number
            yield line + "\n"

    reader = csv.reader(lines(), strict=True)
    header: list[str] = []
    began = 1
    try:
        for cells in reader:
            if not header:
                header = _header(path, cells, ",")
            elif cells:
                where = f"{path}:{began}"
                yield where, _row(where, header, cells, "put a field with a comma in it in quotes")
            began = line_number + 1
    except csv.Error as error:
        reason = str(error)
        if "new-line" in reason:
            raise InputError(f"{path}:{began} has a carriage return within a line: end lines with \\n") from None
        raise InputError(f"{path}:{began} is not well-formed ({reason}): close or double its quotes") from None


def _row(where: str, header: list[str], cells: list[str], remedy: str) -> dict[str, Any]:
    """Return a row by its columns.

    :param remedy: what to do if there are too many fields.
    """
    if len(cells) == len(header):
        return dict(zip(header, cells, strict=True))
    raise InputError(
        f"{where} has {count_of(len(cells), 'field')} where the header has {len(header)}: "
        + (remedy if len(cells) > len(header) else "expected one for each column")
    )


def _header(path: Path, cells: list[str], separator: str) -> list[str]:
    header = [cell.strip() for cell in cells]
    _check_names(f"{path}:1", header)
    if separator == "," and any("\t" in name for name in header):
        raise InputError(f"{path}:1 is separated by tabs: name the file .tsv")
    if separator == "\t" and all(name[:1] == name[-1:] == '"' for name in header):
        raise InputError(f"{path}:1 has its names in quotes, but .tsv has no quoting: write it as .csv or .jsonl")
    return header


def _check_names(where: str, columns: Sequence[str]) -> None:
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{where} names the column {twice!r} twice: expected a header with a name for each column")


def _parquet(path: Path) -> Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            _check_names(str(path), file.schema_arrow.names)
            yield from _rows_of(path, file.iter_batches(batch_size=1_000))
    except (pa.ArrowException, OSError) as error:
        reason = first_line(error, 120)
        raise InputError(f"{path} is not a whole Parquet file ({reason}): copy it here again") from None


def _rows_of(path: Path, batches: Iterable[Any]) -> Rows:
    """Yield rows of Arrow batches without columns of times: Python cannot hold all of them, and no shape needs one."""
    from pyarrow.types import is_temporal

    number = 0
    for batch in batches:
        times = [field.name for field in batch.schema if is_temporal(field.type)]
        for row in (batch.drop_columns(times) if times else batch).to_pylist():
            number += 1
            yield f"{path}, row {number}", row


def _lance(path: Path) -> Rows:
    import lance

    try:
        yield from _rows_of(path, lance.dataset(str(path)).to_batches(batch_size=1_000))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a Lance table ({first_line(error, 120)})") from None


def _beir(path: Path, split: str) -> Rows:
    """Yield each judged query with each of its relevant documents, as title and text."""
    texts, qrels = beir.queries(path), beir.qrels(path, split)
    relevant = {document for grades in qrels.values() for document, grade in grades.items() if grade > 0}
    documents = {row["id"]: beir.passage(row) for row in beir.documents(path) if row["id"] in relevant}
    judged = ((query, document) for query, grades in qrels.items() for document, grade in grades.items() if grade > 0)
    for query, document in judged:
        for name, known, file in ((query, texts, "queries.jsonl"), (document, documents, "corpus.jsonl")):
            if name not in known:
                line = beir.line_of(path, split, query, document)
                raise InputError(f"{line}: {file} has no {name!r}: add it there, or take this line out")
        where = f"{path}/qrels/{split}.tsv, query {query!r}"
        yield where, {"query": texts[query], "positive": documents[document], "document_id": document}


def _dataset(name: str, split: str) -> Rows:
    """Read a data set of the Hugging Face hub or of its local cache; "NAME:CONFIGURATION" if it has several."""
    name, _, configuration = name.partition(":")
    if not re.fullmatch(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", name, re.ASCII):
        raise InputError(f"there is no file or folder {name[:200]!r}, and no data set can have this name")
    try:
        from datasets import load_dataset
        from datasets.exceptions import DatasetNotFoundError
        from datasets.utils.logging import disable_progress_bar, set_verbosity_error
    except ImportError:
        raise MissingExtraError("datasets", "train", f"the data set {name}") from None
    disable_progress_bar()  # it would draw over ours
    set_verbosity_error()
    try:
        with _quiet_retries():
            table = load_dataset(name, configuration or None, split=split)
    except (DatasetNotFoundError, OSError, ValueError, RuntimeError) as error:
        reason = first_line(error)
        raise InputError(f"there is no file or folder {name}, nor a data set to be had ({reason})") from None
    for number, row in enumerate(table, 1):
        yield f"{name}, row {number}", dict(row)


@contextlib.contextmanager
def _quiet_retries() -> Iterator[None]:
    """Silence the hub's messages about retries; the final error is one line."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
