"""Remember the version of the reader that read a file: after an update of the reader, the file is read again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....core.errors import DamagedError
from ...documents.document import READER, Document, metadata_of
from ...readers.formats import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping


def with_version(document: Document) -> Document:
    """Note the version of the reader in the metadata; the first version has no note."""
    version = VERSIONS.get(document.format)
    return replace(document, metadata={**document.metadata, READER: version}) if version else document


def is_outdated(row: Mapping[str, Any]) -> bool:
    """Whether another version of its reader read an indexed file."""
    version = VERSIONS.get(row["format"])
    if version is None or (row["source"], row["state"]) != ("file", "indexed"):
        return False
    try:
        return bool(metadata_of(row).get(READER) != version)
    except DamagedError:
        return False
