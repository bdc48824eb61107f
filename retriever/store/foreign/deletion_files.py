"""Check the files that say which rows of a table are deleted, before Lance reads them.

Lance allocates the size that these small files claim; too large a claim ends the process. Arrow's own reader raises
an error instead. Lance keeps a few deleted rows in an Arrow file, and many in a bitmap.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ....core.errors import DamagedError
from ....core.files import read_regular

if TYPE_CHECKING:
    import lance

_MAGIC = b"ARROW1"
_ROW_BYTES = 4  # bytes of a deleted row
_OTHER_BYTES = 2**16  # bytes at most of a file besides its deleted rows
_MAX_BYTES = 2**30  # whatever the manifest counts
_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def check_deletions(table: lance.LanceDataset) -> None:
    """Check the deletion files of an open table in a folder.

    :raises DamagedError: naming a file with another number of deleted rows than the table says.
    """
    for fragment in table.get_fragments():
        deletion, name = fragment.metadata.deletion_file, fragment.deletion_file()
        if deletion is not None and name and deletion.file_type == "array":
            file = Path(table.uri.removeprefix("file://")) / name
            try:
                count = deletion.num_deleted_rows or 0
                _check_array(read_regular(file, min(_ROW_BYTES * count + _OTHER_BYTES, _MAX_BYTES)), count)
            except FileNotFoundError:
                continue  # Lance says so, and a reader then looks for a later state
            except (OSError, ValueError, struct.error, pa.ArrowException) as error:
                raise DamagedError(
                    f"{file} does not hold the deleted rows of its table ({error}): index again"
                ) from None


def _check_array(data: bytes, count: int) -> None:
    """Check an Arrow file: one batch within the file, of `count` numbers without null."""
    _check_sizes(data, _ROW_BYTES * count)
    with pa.ipc.open_file(pa.py_buffer(data)) as reader:
        rows = reader.get_batch(0)
    rows.validate(full=True)
    if rows.schema != _SCHEMA or rows.num_rows != count or rows.column(0).null_count:
        raise ValueError(f"it has {rows.num_rows} rows, not {count}")


def _check_sizes(data: bytes, size: int) -> None:
    """Check that the only batch of an Arrow file lies within it, and that its buffers unpack to `size` bytes each."""
    if not data.startswith(_MAGIC) or not data.endswith(_MAGIC):
        raise ValueError("it is no Arrow file")
    (length,) = struct.unpack_from("<i", data, len(data) - 10)
    footer = data[-10 - length : -10] if 0 < length < len(data) - 10 else b""
    (root,) = struct.unpack_from("<I", footer)
    dictionaries, batches = _vector(footer, root, 2), _vector(footer, root, 3)
    if dictionaries[1] or batches[1] != 1:
        raise ValueError("it has not one batch")
    offset, metadata, body = struct.unpack_from("<qi4xq", footer, batches[0])
    if min(offset, metadata, body) < 0 or offset + metadata + body > len(data):
        raise ValueError("it names bytes that it does not have")
    message, content = data[offset + 8 : offset + metadata], data[offset + metadata : offset + metadata + body]
    (root,) = struct.unpack_from("<I", message)
    position, number = _vector(message, _field(message, root, 2), 2)
    for start, length in struct.iter_unpack("<qq", message[position : position + 16 * number]):
        if start < 0 or length < 0 or start + length > body:
            raise ValueError("it names bytes that it does not have")
        if length and struct.unpack_from("<q", content, start)[0] > size + 64:
            raise ValueError(f"it claims more than the {size} bytes of its rows")


def _field(buffer: bytes, table: int, number: int) -> int:
    """Return the position of the target of a field of a FlatBuffers table; 0 if the table has no such field."""
    fields = table - struct.unpack_from("<i", buffer, table)[0]
    if fields < 0 or 4 + 2 * number >= struct.unpack_from("<H", buffer, fields)[0]:
        return 0
    distance = struct.unpack_from("<H", buffer, fields + 4 + 2 * number)[0]
    return table + distance + int(struct.unpack_from("<I", buffer, table + distance)[0]) if distance else 0


def _vector(buffer: bytes, table: int, number: int) -> tuple[int, int]:
    """Return the position and the length of a vector in a field of a FlatBuffers table."""
    position = _field(buffer, table, number)
    return (position + 4, struct.unpack_from("<I", buffer, position)[0]) if position else (0, 0)
