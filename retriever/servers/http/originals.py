"""The PDF files of an index, for a browser that opens them at a page."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ....core.errors import NotFoundError
from ....core.files import open_regular

if TYPE_CHECKING:
    from .caller import Caller

_MAX_BYTES = 256 * 2**20


def pdf(caller: Caller, name: str) -> bytes:
    """Read the PDF file of a document, the same bytes that the index has read.

    :raises NotFoundError: when it is no PDF file, is gone or was changed.
    """
    record = caller.documents.get(name)
    folder = caller.retriever.folder
    if record.format != "pdf" or record.source != "file" or folder is None:
        raise NotFoundError(f"{name!r} is not a PDF file: its text is at /documents/")
    rows = caller.retriever.snapshot().rows_at([record.id], ["path", "source", "sha256"])
    known = {row["sha256"] for row in rows if (row["path"], row["source"]) == (record.id, "file")}
    file = (folder / record.id).resolve()
    try:
        with open_regular(file) as stream:
            content = stream.read(_MAX_BYTES + 1)
    except OSError:
        content = b""
    is_inside = file.is_relative_to(folder.resolve())
    if not is_inside or len(content) > _MAX_BYTES or hashlib.sha256(content).hexdigest() not in known:
        raise NotFoundError(f"the file {name!r} is not there as the index has read it: run 'binocle index'")
    return content
