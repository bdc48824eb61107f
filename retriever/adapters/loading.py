"""Files as whole documents, by Binocle's readers and without an index, for the loaders of all frameworks."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.files import expand_home
from ..documents.document import HIDDEN, hidden_spans, visible_text
from ..documents.scan import Entry, scan
from ..indexing.reading import read_entries

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from ..documents.document import Document


def read_files(path: str | os.PathLike[str], exclude: Sequence[str] = ()) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the path, the text and the metadata of each document of a file or folder, in order of path.

    These are the files that an index of the folder would have. Text that a person does not see is left out. A file that
    cannot be read gives a warning.

    :param exclude: patterns of files to leave out, as in `.gitignore`.
    :raises InputError: when there is no such file or folder.
    """
    folder = expand_home(path)
    if not folder.exists():
        raise InputError(f"there is no folder or file {folder}")
    entries = scan(folder, exclude=list(exclude))
    if folder.is_file():
        folder, entries = folder.parent, iter([Entry(folder.name, 0, 0)])
    for entry, reading in read_entries(folder, list(entries)):
        source = str(folder / entry.path)
        if reading is not None and reading.document is not None:
            yield source, *_visible(source, reading.document)
        elif entry.unknown or (reading is not None and reading.state == "failed"):
            reason = entry.reason if reading is None else reading.reason
            warnings.warn(f"{source} was not read: {reason}", stacklevel=3)


def _visible(source: str, document: Document) -> tuple[str, dict[str, Any]]:
    hidden = hidden_spans(document.metadata.get(HIDDEN), 0, document.text)
    text = visible_text(document.text, 0, hidden) if hidden else document.text
    values = {key: value for key, value in document.metadata.items() if key != HIDDEN}
    return text, {**values, "source": source, "title": document.title, "format": document.format}
