"""Open a location by its name: a folder, or `s3://BUCKET/PREFIX`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .location import Location
    from .waiting_line import Patience


def open_location(
    name: str | os.PathLike[str] | Location, *, durable: bool = True, patience: Patience | None = None
) -> Location:
    """Return the location with this name: `s3://BUCKET/PREFIX`, or a folder.

    :param durable: sync the files of each commit to a folder; object storage does so in any case.
    :param patience: with other writers; by default none.
    """
    location = _named(name, durable=durable) if isinstance(name, (str, os.PathLike)) else name
    if patience is not None:
        location.patience = patience
    return location


def _named(name: str | os.PathLike[str], *, durable: bool) -> Location:
    if isinstance(name, str) and is_s3(name):
        from .s3_location import S3Location

        return S3Location.of(name)
    from .folder_location import FolderLocation  # Lance, which an address alone does not need

    return FolderLocation(Path(name), durable=durable)


def is_s3(name: Any) -> bool:
    """Tell whether this is a text that begins with `s3://`; the bucket need not exist."""
    return isinstance(name, str) and name.startswith("s3://")
