"""Tombstones: rows of the documents table that keep forgotten files out of an index, without their names.

A tombstone's path is a keyed hash of the file's path; the key is in HEAD.json. It has no other value of the file. The
key lies beside the hashes: the owner of an index can confirm a guess of a whole path, but cannot list the names, and
two indexes have nothing in common.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

import pyarrow as pa

from ..documents.file_parts import file_of
from .tables import document_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCE = "forgotten"  # in the column `source`
LEGACY_REASON = "forgotten on request"  # of rows with names, as an earlier version left them
_KEY_BYTES = _DIGEST_BYTES = 16


def new_key() -> str:
    """Return a random key, in hexadecimal."""
    return secrets.token_hex(_KEY_BYTES)


def digest(path: str, key: str) -> str:
    """Hash the path of a file, or of the file of a part, with the key of its index (BLAKE2b, 128 bits)."""
    name = file_of(path).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(name, key=bytes.fromhex(key), digest_size=_DIGEST_BYTES).hexdigest()


def tombstones(paths: Iterable[str], key: str, first: int) -> pa.Table:
    """Return the rows for these paths, in order of their hashes.

    :param first: the id of the first row.
    """
    empty = {field.name: "" if field.type in (pa.string(), pa.large_string()) else 0 for field in document_schema()}
    constant = {**empty, "source": SOURCE, "state": "skipped", "settled": False, "metadata": "{}"}
    names = sorted({digest(path, key) for path in paths})
    rows = [{**constant, "id": first + number, "path": name} for number, name in enumerate(names)]
    return pa.Table.from_pylist(rows, document_schema())
