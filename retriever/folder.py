"""What is in a folder: the files to read, and what is passed over and why."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .ignore import Pattern, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IGNORE_FILES = (".gitignore", ".binocleignore")
MAX_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, or something passed over: then `reason` says why and a folder's path ends in "/"."""

    path: str  # relative to the folder, "/" between names
    size: int
    mtime_ns: int
    reason: str = ""
    unknown: bool = False  # whether it could not be looked at, so that nothing below it is known to be gone


def scan(root: Path, *, leave_out: Path | None = None) -> Iterator[Entry]:
    """Every entry below `root`, in order of path within each folder.

    Hidden files and what `.gitignore` or `.binocleignore` excludes (rules as git's, deeper files first) are given
    with a reason; a folder passed over is one entry. Symbolic links are not followed, so nothing outside `root` is
    ever reached: what a link inside it names is found at its own place.

    :param leave_out: a folder that is not even mentioned: the index itself.
    """
    yield from _scan(str(root), str(leave_out.resolve()) if leave_out else "")


def _scan(root: str, leave_out: str) -> Iterator[Entry]:
    waiting: list[Iterator[Entry | _Folder]] = [iter([_Folder("", [])])]
    while waiting:  # not recursion: a tree may be deeper than Python's stack
        found = next(waiting[-1], None)
        if found is None:
            waiting.pop()
        elif isinstance(found, Entry):
            yield found
        else:
            waiting.append(_listing(root, found, leave_out))


@dataclass(frozen=True, slots=True)
class _Folder:
    prefix: str  # "" or a path ending in "/"
    rules: list[tuple[str, str, list[Pattern]]]  # (folder, file they stand in, rules), outermost first


def _listing(root: str, folder: _Folder, leave_out: str) -> Iterator[Entry | _Folder]:
    """What stands in one folder, in order of name."""
    try:
        with os.scandir(f"{root}/{folder.prefix}") as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        name = os.fsencode(folder.prefix).decode("utf-8", "backslashreplace")
        yield Entry(name, 0, 0, f"cannot be listed: {error.strerror}", unknown=True)
        return
    by_name = {entry.name: entry for entry in entries}
    files = [by_name[name] for name in IGNORE_FILES if name in by_name]
    rules = folder.rules + [rule for entry in files for rule in _rules(folder.prefix, entry)]
    for entry in entries:
        path = folder.prefix + entry.name
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            yield Entry(path, 0, 0, f"cannot be examined: {error.strerror}", unknown=True)
            continue
        if is_folder and leave_out and os.path.realpath(entry.path) == leave_out:
            continue
        path = path + "/" if is_folder else path
        reason = _passed_over(entry, path, rules)
        if is_folder and not reason:
            yield _Folder(path, rules)
            continue
        path = os.fsencode(path).decode("utf-8", "backslashreplace")  # a bad name is passed over, but accounted for
        yield Entry(path, 0 if is_folder else status.st_size, status.st_mtime_ns, reason)


def _passed_over(entry: os.DirEntry[str], path: str, rules: list[tuple[str, str, list[Pattern]]]) -> str:
    if entry.name.startswith("."):
        return "hidden"
    if entry.is_symlink():
        return "symbolic link"
    for base, source, patterns in reversed(rules):
        ignored = verdict(patterns, path[len(base) :])
        if ignored:
            return f"ignored by {source}"
        if ignored is not None:
            break
    if not entry.is_dir(follow_symlinks=False):
        if not entry.is_file(follow_symlinks=False):
            return "not a regular file"
        if entry.stat(follow_symlinks=False).st_size > MAX_BYTES:
            return f"larger than {MAX_BYTES // 2**20} MB"
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    return ""


def _rules(prefix: str, entry: os.DirEntry[str]) -> list[tuple[str, str, list[Pattern]]]:
    if entry.is_symlink() or not entry.is_file():
        return []
    try:
        with open(entry.path, encoding="utf-8-sig", errors="surrogateescape", newline="\n") as stream:  # noqa: PTH123
            lines = [line.removesuffix("\n").removesuffix("\r") for line in stream.read(2**20).split("\n")]
    except OSError:
        return []
    patterns = [pattern for line in lines if (pattern := Pattern.parse(line))]
    return [(prefix, prefix + entry.name, patterns)] if patterns else []


def is_index(folder: Path) -> bool:
    """Whether a folder is an index itself, and not one of documents with a HEAD.json among them."""
    tables = (folder / "documents.lance", folder / "chunks.lance")
    return (folder / "HEAD.json").is_file() and any(table.is_dir() for table in tables)


def find_index(start: Path) -> Path | None:
    """The nearest `.binocle` at or above a folder, as git finds `.git`."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / ".binocle" / "HEAD.json").is_file():
            return folder / ".binocle"
    return None
