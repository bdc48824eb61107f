"""Files as whole documents, by Binocle's readers and without an index, for the loaders of all frameworks."""

from __future__ import annotations

import mimetypes
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.files import expand_home
from ..documents.document import HIDDEN, hidden_spans, visible_text
from ..documents.scan import Entry, scan
from ..indexing.sync.nested_files import read_entries
from ..readers.containers.members import safe_path
from ..readers.detect import ending_of
from ..readers.formats import FORMATS

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from ..documents.document import Document

_MAX_NAME = 50  # characters of a temporary file's name


def read_files(
    path: str | os.PathLike[str], exclude: Sequence[str] = (), *, name: str | None = None
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the path, the text and the metadata of each document of a file or folder, in order of path.

    These are the files that an index of the folder would have. Text that a person does not see is left out. A file that
    cannot be read gives a warning.

    :param exclude: patterns of files to leave out, as in `.gitignore`.
    :param name: replaces the path in the results.
    :raises InputError: when there is no such file or folder.
    """
    root = folder = expand_home(path)
    if not root.exists():
        raise InputError(f"there is no folder or file {root}")
    entries = scan(root, exclude=list(exclude))
    if root.is_file():
        folder, entries = root.parent, iter([Entry(root.name, 0, 0)])
    for entry, reading in read_entries(folder, list(entries)):
        file = folder / entry.path
        source = str(file) if name is None else name + str(file).removeprefix(str(root))
        if reading is not None and reading.document is not None:
            yield source, *_visible(source, reading.document)
        elif entry.unknown or file == root or (reading is not None and reading.state == "failed"):
            reason = entry.reason if reading is None else reading.reason
            warnings.warn(f"{source} was not read: {reason}", stacklevel=3)


@contextmanager
def temporary_file(data: bytes, name: str, mimetype: str | None = None) -> Iterator[Path]:
    """Write a temporary file. Its name tells the readers its format.

    :param name: the path or address of the data.
    :param mimetype: stands in for a name without a known ending. HTML may come from a server under any name.
    """
    if ending_of(name) not in FORMATS or mimetype == "text/html":
        name += mimetypes.guess_extension(mimetype or "") or ""
    with tempfile.TemporaryDirectory(prefix="binocle-") as folder:
        file = Path(folder, safe_path(name).rpartition("/")[2][-_MAX_NAME:])
        file.write_bytes(data)
        yield file


def _visible(source: str, document: Document) -> tuple[str, dict[str, Any]]:
    hidden = hidden_spans(document.metadata.get(HIDDEN), 0, document.text)
    text = visible_text(document.text, 0, hidden) if hidden else document.text
    values = {key: value for key, value in document.metadata.items() if key != HIDDEN}
    return text, {**values, "source": source, "title": document.title, "format": document.format}
