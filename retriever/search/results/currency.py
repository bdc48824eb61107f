"""Check whether citations still hold: compare them with the present documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ...documents.file_parts import document_sha256, file_of, is_member
from ...documents.scan import written_since
from ...store.documents import documents_at

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from ...store.snapshot import Snapshot
    from .hit import Hit
    from .passage import Passage

Currency = Literal["exact", "moved", "stale", "gone"]


def check_passage(snapshot: Snapshot, folder: Path | None, passage: Hit | Passage) -> Currency:
    """Compare a hit, or a passage of a context, with its document.

    An unchanged file and an added document are checked by the index alone. A changed file is read as text: if the words
    are in it, they moved. "stale" is certain only for plain text. All files in a changed archive are stale.

    :param folder: the indexed folder.
    """
    rows = documents_at(snapshot, [passage.path], ["id", "sha256", "chunks", "size", "mtime_ns"])
    row = max(rows, key=lambda row: (row["chunks"] > 0, row["source"] == "file"), default=None)
    if row is not None and row["source"] == "added":
        return _in_text(snapshot.documents_by_id([row["id"]], ["text"])[row["id"]]["text"], passage)
    file = None if folder is None else folder / file_of(passage.path)
    is_in_file = file is not None and is_member(file)
    if folder is None or file is None or not (file.is_file() or is_in_file):
        return "gone"
    sha256 = None if is_in_file else _sha256(folder / passage.path)
    if not is_in_file and sha256 == passage.sha256:
        return "exact"
    if row is not None and (not written_since(folder, [row]) if is_in_file else row["sha256"] == sha256):
        return _in_text(snapshot.documents_by_id([row["id"]], ["text"])[row["id"]]["text"], passage)
    data = b"" if is_in_file else file.read_bytes()
    return "moved" if passage.text in data.decode("utf-8", "replace").replace("\r\n", "\n") else "stale"


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
    """Return which of these documents have a file that was changed or removed after indexing: its lines may have moved.

    A folder that is not there, such as a disk that is not mounted, tells nothing.
    """
    if folder is None or not folder.is_dir():
        return []
    rows = documents_at(snapshot, list(paths), ["path", "size", "mtime_ns", "sha256"])
    return written_since(folder, [row for row in rows if row["source"] == "file"])
