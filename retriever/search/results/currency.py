"""Check whether citations still hold: compare them with the present documents."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ....core.errors import InputError
from ....core.files import open_regular
from ...documents.file_parts import document_sha256, file_around, file_of, is_member
from ...documents.scan import away, file_below, lies_in, written_since
from ...store.documents import documents_at
from ...store.root import held_below
from .hit import CitedText

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from ...store.snapshot import Snapshot
    from .hit import Hit
    from .passage import Passage

    Row = dict[str, Any]

Currency = Literal["exact", "moved", "stale", "gone"]


def check_cited(passage: object) -> None:
    """:raises InputError: when this is no passage."""
    if not isinstance(passage, CitedText):
        raise InputError(f"expected a hit, or a passage of a context, not {passage!r:.60}")


def check_passage(snapshot: Snapshot, folder: Path | None, passage: Hit | Passage) -> Currency:
    """Compare a hit, or a passage of a context, with its document.

    An unchanged file and an added document are checked by the index alone. A changed file is read as text: if the words
    are in it, they moved. "stale" is certain only for plain text. All files in a changed archive are stale. A file that
    cannot be read, or that only a symbolic link leads to, is gone.

    :param folder: the indexed folder.
    """
    rows = documents_at(snapshot, [passage.path], ["id", "sha256", "chunks", "size", "mtime_ns"])
    row = max(rows, key=partial(_rank, passage), default=None)
    if row is not None and row["source"] == "added":
        return _in_text(_text(snapshot, row), passage)
    file = None if folder is None else file_below(folder, passage.path)
    if folder is None or file is None:
        return "gone"
    try:
        if is_member(file):
            return _in_member(snapshot, folder, file, row, passage)
        return _in_file(snapshot, folder, file, row, passage)
    except OSError:
        return "gone"


def _rank(passage: Hit | Passage, row: Row) -> tuple[bool, bool, bool]:
    """Put the passage's own document before others of its name, and a file before an added document."""
    return row["sha256"] == passage.sha256, row["chunks"] > 0, row["source"] == "file"


def _in_member(snapshot: Snapshot, folder: Path, file: Path, row: Row | None, passage: Hit | Passage) -> Currency:
    """Compare a passage with its file in another file, such as an archive."""
    from ...readers.containers.members import has_members  # with all formats; a search needs none of them

    outer = os.path.relpath(file_around(file), os.path.realpath(folder))
    if not any(has_members(around["format"]) for around in documents_at(snapshot, [outer], ["format"])):
        return "gone"  # this file took the place of a folder
    if row is None or written_since(folder, [row]):
        return "stale"
    return _in_text(_text(snapshot, row), passage)


def _in_file(snapshot: Snapshot, folder: Path, file: Path, row: Row | None, passage: Hit | Passage) -> Currency:
    """Compare a passage with its file, or with the part of a large one."""
    sha256 = _sha256(file)
    if sha256 == passage.sha256:
        return "exact"
    if row is not None and row["sha256"] == sha256:
        return _in_text(_text(snapshot, row), passage)
    with open_regular(os.path.join(os.path.realpath(folder), file_of(passage.path))) as stream:  # noqa: PTH118
        text = stream.read().decode("utf-8", "replace")
    return "moved" if passage.text in text.replace("\r\n", "\n") else "stale"


def _text(snapshot: Snapshot, row: Row) -> str:
    text: str = snapshot.documents_by_id([row["id"]], ["text"])[row["id"]]["text"]
    return text


def _sha256(file: Path) -> str | None:
    """The sha256 of a file or of a part of one; None if it has become too short for the part."""
    try:
        return document_sha256(file)
    except FileNotFoundError:
        return None


def _in_text(text: str, passage: Hit | Passage) -> Currency:
    if text[passage.char_start : passage.char_end] == passage.text:
        return "exact"
    return "moved" if passage.text in text else "stale"


def changed_files(snapshot: Snapshot, folder: Path | None, paths: Collection[str]) -> list[str]:
    """Return the documents with a file that was changed or removed after indexing: its lines may have moved.

    If a folder is missing, perhaps because its disk is not mounted, its documents are not in the list.
    """
    if folder is None or not folder.is_dir():
        return []
    gone = away(folder, held_below(snapshot.store))
    rows = documents_at(snapshot, list(paths), ["path", "size", "mtime_ns", "sha256"])
    return written_since(folder, [row for row in rows if row["source"] == "file" and not lies_in(row["path"], gone)])
