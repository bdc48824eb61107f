"""Write rows to a file that appears when it is complete.

Unlike `core.files.write_atomic` it takes rows one block at a time, and one process at a time writes a file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, LockedError
from ...core.files import check_name, expand_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    Row = dict[str, Any]
    Write = Callable[[Sequence[Row]], None]

_GROUP_CHARACTERS = 16_000_000  # of a Parquet row group


@contextlib.contextmanager
def row_writer(out: str | os.PathLike[str]) -> Iterator[tuple[Write, Path]]:
    """Yield a function that writes rows, all with the same columns, and a folder for temporary files.

    The folder is hidden, beside the file. It is always removed; after a killed process the next run removes it.

    :raises InputError: when the file is of no known kind or cannot be written.
    :raises LockedError: when another process is writing it.
    """
    file = expand_home(out)
    check_name(file)
    open_writer = {".jsonl": _json_lines, ".parquet": _parquet}.get(file.suffix.lower())
    if open_writer is None:
        raise InputError(f"{file} has no known kind: expected a name that ends in .jsonl or .parquet")
    if file.is_dir():
        raise InputError(f"{file} is a folder: expected the name of a file to write")
    try:
        with _work_folder(file) as work:
            with open_writer(work / file.name) as write:
                yield write, work
            os.replace(work / file.name, file)  # noqa: PTH105 - the tests let it fail
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # a full disk: temporary files lie beside the file
            raise
        raise InputError(f"{file} cannot be written: {os.strerror(error.errno)}") from error


@contextlib.contextmanager
def _work_folder(file: Path) -> Iterator[Path]:
    """Create and lock the folder beside the file."""
    from filelock import FileLock, Timeout

    work = file.parent / f".{file.name}.mining"
    try:
        work.mkdir(exist_ok=True)
        lock = FileLock(work / "lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise LockedError(f"another process is writing {file}: try again when it has finished") from None
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror} ({file.parent})") from None
    try:
        _clear(work)
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        lock.release()


def _clear(work: Path) -> None:
    """Remove the files of a killed process."""
    for entry in work.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != "lock":
            entry.unlink()


@contextlib.contextmanager
def _json_lines(file: Path) -> Iterator[Write]:
    with file.open("w", encoding="utf-8") as stream:

        def write(rows: Sequence[Row]) -> None:
            stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

        yield write
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def _parquet(file: Path) -> Iterator[Write]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    waiting: list[Row] = []
    length = 0
    writer: pq.ParquetWriter | None = None

    def flush() -> None:
        nonlocal writer, length
        if waiting:
            table = pa.Table.from_pylist(waiting)
            writer = writer or pq.ParquetWriter(file, table.schema, compression="zstd")
            writer.write_table(table)
            waiting.clear()
            length = 0

    def write(rows: Sequence[Row]) -> None:
        nonlocal length
        waiting.extend(rows)
        length += sum(_length(value) for row in rows for value in row.values())
        if length > _GROUP_CHARACTERS:
            flush()

    try:
        yield write
        flush()
    finally:
        if writer is not None:
            writer.close()


def _length(value: object) -> int:
    return len(value) if isinstance(value, str) else sum(map(_length, value)) if isinstance(value, list) else 8
