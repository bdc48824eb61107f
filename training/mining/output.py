"""A file of rows that appears when it is whole, and not before."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, LockedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Row = dict[str, Any]
    Write = Callable[[Sequence[Row]], None]

_TOGETHER = 16_000_000  # characters of a Parquet row group


@contextlib.contextmanager
def row_writer(out: str | os.PathLike[str]) -> Iterator[tuple[Write, Path]]:
    """Give a function that writes rows, all of the same columns, and a folder for what else is needed meanwhile.

    The folder lies beside the file, hidden. It goes in any case; where a process was killed, with the next one.

    :raises InputError: when the file is of no known kind or cannot be written.
    :raises LockedError: when another process is writing it.
    """
    file = Path(out).expanduser()
    opened = {".jsonl": _json_lines, ".parquet": _parquet}.get(file.suffix.lower())
    if opened is None:
        raise InputError(f"{file} has no known kind: expected a name that ends in .jsonl or .parquet")
    if file.is_dir():
        raise InputError(f"{file} is a folder: expected the name of a file to write")
    try:
        with _aside(file) as work:
            with opened(work / file.name) as write:
                yield write, work
            os.replace(work / file.name, file)  # noqa: PTH105 - Path.replace gives no other error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # of this disk, for all that is needed lies beside the file
            raise
        raise InputError(f"{file} cannot be written: {os.strerror(error.errno)}") from error


@contextlib.contextmanager
def _aside(file: Path) -> Iterator[Path]:
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
    """Remove what a killed process left."""
    for left in work.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
        elif left.name != "lock":
            left.unlink()


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

    held: list[Row] = []
    length = 0
    writer: pq.ParquetWriter | None = None

    def flush() -> None:
        nonlocal writer, length
        if held:
            table = pa.Table.from_pylist(held)
            writer = writer or pq.ParquetWriter(file, table.schema, compression="zstd")
            writer.write_table(table)
            held.clear()
            length = 0

    def write(rows: Sequence[Row]) -> None:
        nonlocal length
        held.extend(rows)
        length += sum(_length(value) for row in rows for value in row.values())
        if length > _TOGETHER:
            flush()

    try:
        yield write
        flush()
    finally:
        if writer is not None:
            writer.close()


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else sum(map(_length, value)) if isinstance(value, list) else 8
