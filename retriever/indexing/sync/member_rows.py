"""The rows of files in files: attachments of mail and members of archives. They share the fate of their file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ...readers.containers.members import may_hold

if TYPE_CHECKING:
    from collections.abc import Iterator

    Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Members:
    """The rows of members, by the file of the folder that contains them, until `take` returns them."""

    files: dict[str, Row]  # path -> row of each other document; also members of an archive without a row
    folders: set[str]  # all folders above these paths
    by_file: dict[str, list[Row]]  # path of a file with a row -> the rows of its members

    @classmethod
    def removed_from(cls, rows: dict[str, Row]) -> Members:
        """Remove the rows of members from `rows`, which are by path.

        A path below the path of another document belongs to a member.
        """
        parents = {path.rpartition("/")[0] for path in rows}
        folders = {folder for parent in parents for folder in _paths_down_to(parent)}
        outermost = (next((above for above in _paths_down_to(parent) if above in rows), None) for parent in parents)
        by_file: dict[str, list[Row]] = {file: [] for file in outermost if file is not None}
        for path in list(rows) if by_file else ():
            folder = path.rpartition("/")[0]
            file = next((above for above in _paths_down_to(folder) if above in by_file), None)
            if file is not None:
                by_file[file].append(rows.pop(path))
        return cls(rows, folders, by_file)

    def take(self, file: str) -> list[Row]:
        """Take the rows of the members of a file, or of an archive without a row, as an interrupted run leaves them."""
        members = self.by_file.pop(file, [])
        if not members and file in self.folders and may_hold(file):
            paths = [path for path in self.files if path.startswith(file + "/")]
            members = [self.files.pop(path) for path in paths]
        return members

    def rest(self) -> Iterator[Row]:
        """Yield the rows that nobody has taken."""
        for members in self.by_file.values():
            yield from members


def _paths_down_to(path: str) -> Iterator[str]:
    """Yield the paths from the outermost folder down to this path."""
    return accumulate(path.split("/"), lambda above, name: f"{above}/{name}")
