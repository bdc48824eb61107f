"""A location by its name: a folder, or `s3://BUCKET/PREFIX`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .folder_location import FolderLocation

if TYPE_CHECKING:
    from .location import Location


def open_location(where: str | os.PathLike[str] | Location) -> Location:
    """The place of that name: `s3://BUCKET/PREFIX`, or a folder."""
    if isinstance(where, str) and is_s3(where):
        from .s3_location import S3Location

        return S3Location.of(where)
    return FolderLocation(Path(where)) if isinstance(where, (str, os.PathLike)) else where


def is_s3(where: Any) -> bool:
    return isinstance(where, str) and where.startswith("s3://")
