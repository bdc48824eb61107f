"""A location by its name: a folder, or `s3://BUCKET/PREFIX`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .folder_location import FolderPlace

if TYPE_CHECKING:
    from .location import Place


def place_of(where: str | os.PathLike[str] | Place) -> Place:
    """The place of that name: `s3://BUCKET/PREFIX`, or a folder."""
    if isinstance(where, str) and is_bucket(where):
        from .s3_location import BucketPlace

        return BucketPlace.of(where)
    return FolderPlace(Path(where)) if isinstance(where, (str, os.PathLike)) else where


def is_bucket(where: Any) -> bool:
    return isinstance(where, str) and where.startswith("s3://")
