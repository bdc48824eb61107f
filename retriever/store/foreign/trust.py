"""The indexes that this user made or allowed: only these are written, and only their model names are followed.

Each trusted index has a file below the user's state folder, named by the random id in the settings of the index. It
lists the places of the index and of its allowed copies. Nothing in the index itself can be proof: a downloaded archive
belongs to the user who unpacks it.
"""

from __future__ import annotations

import json
import os
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....core.errors import InputError
from ....core.files import user_folder
from ..locations.open_location import is_s3

if TYPE_CHECKING:
    from ..locations.location import Location

ALL = "BINOCLE_TRUST"  # the environment variable that, set to "all", trusts every index


def new_id() -> str:
    """Return an id for a new index, which nobody can guess."""
    return os.urandom(16).hex()


def command(location: Location) -> str:
    """Return the command that allows an index."""
    return f"binocle trust --index {shlex.quote(str(location))}"


def is_trusted(location: Location, index_id: str | None) -> bool:
    """Tell whether the user made or allowed the index with this id, here or before its folder was moved.

    A folder that was moved within its file system keeps its inode number; a copy, perhaps changed, does not. At the
    place that was allowed last, a restored backup is trusted too, although its inode number is another.
    """
    if os.environ.get(ALL) == "all":
        return True
    if index_id is None:
        return False
    try:
        address = _address(location)
    except OSError:
        return False
    latest, *copies = _known(index_id) or [{}]
    return latest.get("place") == address["place"] or address in copies or _is_moved([latest, *copies], address)


def remember(location: Location, index_id: str) -> None:
    """Trust an index from now on; warn if that cannot be recorded."""
    try:
        file = _file(index_id)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        address = _address(location)
        copies = [known for known in _present(index_id) if known["place"] != address["place"]]
        _write(file, [address, *copies])
    except OSError as error:
        problem = f"{file} cannot be written ({error.strerror})"
    except InputError:
        problem = "this user has no home folder"
    else:
        return
    message = f"{problem}, so {location} is read-only in later runs"
    warnings.warn(f"{message}: set XDG_STATE_HOME to a folder of yours, or {ALL}=all", stacklevel=2)


def forget(index_id: str) -> None:
    """Forget the trust in a removed index. Its allowed copies stay trusted.

    It warns if the change cannot be recorded. For a user without a home folder, nothing is recorded.
    """
    try:
        file = _file(index_id)
    except InputError:
        return
    try:
        if copies := _present(index_id):
            _write(file, copies)
        else:
            file.unlink(missing_ok=True)
    except OSError as error:
        message = f"{file} cannot be changed ({error.strerror}), so a copy of the removed index would be trusted"
        warnings.warn(f"{message}: remove that file", stacklevel=2)


def _is_moved(addresses: list[dict[str, Any]], address: dict[str, Any]) -> bool:
    return "inode" in address and any(known.get("inode") == address["inode"] for known in addresses)


def _known(index_id: str) -> list[dict[str, Any]]:
    """Return the addresses of the index and of its copies that the user allowed."""
    try:
        noted = json.loads(_file(index_id).read_bytes())
    except (OSError, ValueError):
        return []
    noted = noted if isinstance(noted, list) else [noted]  # earlier versions noted one address
    return [known for known in noted if isinstance(known, dict) and isinstance(known.get("place"), str)]


def _present(index_id: str) -> list[dict[str, Any]]:
    """Return the addresses where an index still is, or may be."""
    return [known for known in _known(index_id) if is_s3(known["place"]) or Path(known["place"]).exists()]


def _write(file: Path, addresses: list[dict[str, Any]]) -> None:
    staging = file.with_name(f".{file.name}.{os.getpid()}")
    with os.fdopen(os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(addresses, stream)
    staging.replace(file)


def _file(index_id: str) -> Path:
    return user_folder("STATE", "~/.local/state") / "binocle" / "trusted" / index_id


def _address(location: Location) -> dict[str, Any]:
    """Describe where an index is: its name on object storage, or its path and the inode number of its folder."""
    if is_s3(str(location)):
        return {"place": str(location)}
    folder = location.cache.resolve()
    return {"place": str(folder), "inode": folder.stat().st_ino}
