"""The columns of passages that a search reads, in a file beside their words.

    records  of each passage a list of its columns as JSON, compressed by zlib
    stops    int64  (passages,)  where each record ends

Lance reads pages of thousands of rows: thirty passages take it milliseconds, and this file a tenth of that. Of short
texts zlib makes less than zstd, and reads them in half of its time.
"""

from __future__ import annotations

import json
import mmap
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.errors import DamagedError
from ....core.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ....core.arrays import Ids, Positions


class PassageFile:
    """The records of the passages of a segment, mapped."""

    def __init__(self, content: mmap.mmap, count: int) -> None:
        """:param count: of passages."""
        self._content = content
        self._stops: Ids = np.frombuffer(content, "<i8", count, len(content) - 8 * count)

    @classmethod
    def open(cls, file: Path, count: int) -> PassageFile:
        """Map a file.

        :param count: of its passages.
        :raises DamagedError: when the file cannot have as many.
        """
        try:
            with open_regular(file) as stream:
                return cls(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), count)
        except (OSError, ValueError) as error:
            raise DamagedError(f"{file} cannot be read: {error}") from error

    def records(self, rows: Iterable[int]) -> Iterator[bytes]:
        """Yield the records of these rows.

        :raises DamagedError: when one does not lie within the file.
        """
        for row in rows:
            start, stop = int(self._stops[row - 1]) if row else 0, int(self._stops[row])
            if not 0 <= start < stop <= len(self._content):
                raise DamagedError(f"the record of passage {row} of a segment does not lie within its file")
            yield self._content[start:stop]

    def values(self, rows: Positions) -> list[list[Any]]:
        """Return the columns of these rows.

        :raises DamagedError: when a record is damaged.
        """
        try:
            return [json.loads(zlib.decompress(record)) for record in self.records(rows.tolist())]
        except (ValueError, zlib.error) as error:
            raise DamagedError(f"a passage beside its words cannot be read: {error}") from error


def write(file: Path, records: Iterable[bytes]) -> int:
    """Write records to a new file; return their number."""
    stops, stop = [], 0
    with file.open("xb") as stream:
        for record in records:
            stop += stream.write(record)
            stops.append(stop)
        stream.write(np.array(stops, "<i8").data)
    return len(stops)


def records_of(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[bytes]:
    """Yield a record of each row."""
    for batch in batches:
        for values in zip(*(batch[column].to_pylist() for column in columns), strict=True):
            data = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
            yield zlib.compress(data)
