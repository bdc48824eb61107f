"""The rows of files in files: attachments of mail and members of archives. They share the fate of their file."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ...readers.containers.members import may_hold

if TYPE_CHECKING:
    from collections.abc import Iterator

    Row = dict[str, Any]


class Members:
    """The rows of members, by the file of the folder that they are in, until they are taken."""

    def __init__(self, rows: dict[str, Row]) -> None:
        """Take the rows of members out of `rows`, which are by path.

        A path below the path of another document belongs to a member.
        """
        parents = {path.rpartition("/")[0] for path in rows}
        self._folders = {folder for parent in parents for folder in _paths_down_to(parent)}
        self._rows = rows
        self._by_file: dict[str, list[Row]] = {}
        for file in parents:
            outermost = next((above for above in _paths_down_to(file) if above in rows), None)
            if outermost is not None:
                self._by_file.setdefault(outermost, [])
        for path in self._below(self._by_file) if self._by_file else ():
            file = next(above for above in _paths_down_to(path) if above in self._by_file)
            self._by_file[file].append(rows[path])
        for members in self._by_file.values():
            for row in members:
                del rows[row["path"]]

    def _below(self, files: dict[str, list[Row]]) -> list[str]:
        return [path for path in self._rows if any(above in files for above in _paths_down_to(path.rpartition("/")[0]))]

    def take(self, file: str) -> list[Row]:
        """Take the rows of the members of a file, or of an archive without a row, as an interrupted run leaves them."""
        members = self._by_file.pop(file, [])
        if not members and file in self._folders and may_hold(file):
            paths = [path for path in self._rows if path.startswith(file + "/")]
            members = [self._rows.pop(path) for path in paths]
        return members

    def rest(self) -> Iterator[Row]:
        """Yield the rows that nobody has taken."""
        for members in self._by_file.values():
            yield from members


def _paths_down_to(path: str) -> Iterator[str]:
    """Yield the paths from the outermost folder down to this path."""
    return accumulate(path.split("/"), lambda above, name: f"{above}/{name}")
