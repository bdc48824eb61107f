"""Open a location by its name: a folder, or `s3://BUCKET/PREFIX`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ....core.errors import InputError

if TYPE_CHECKING:
    from .location import Location
    from .patience import Patience


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


def check_address(name: str) -> None:
    """Refuse the address of an unsupported store: it would become the name of a folder.

    :raises InputError: for an address such as `gs://BUCKET`, or the address of a server.
    """
    if name.startswith(("http://", "https://")):
        raise InputError(f"{name} is the address of a server: open it by RemoteRetriever({name!r})")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", name) and not is_s3(name):
        raise InputError(f"{name} is in no store that is supported: expected a folder, or s3://BUCKET/PREFIX")


def is_s3(name: object) -> bool:
    """Tell whether this is a text that begins with `s3://`; the bucket need not exist."""
    return isinstance(name, str) and name.startswith("s3://")
