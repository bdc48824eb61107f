"""What is in a folder: the files to read, and what is passed over and why."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".binocleignore")
MAX_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, or something passed over: then `reason` says why and a folder's path ends in "/"."""

    path: str  # relative to the folder, "/" between names
    size: int
    mtime_ns: int
    reason: str = ""


def scan(root: Path, *, leave_out: Path | None = None) -> Iterator[Entry]:
    """Every entry below `root`, in order of path within each folder.

    Hidden files and what `.gitignore` or `.binocleignore` excludes (rules as git's, deeper files first) are given
    with a reason; a folder passed over is one entry. Symbolic links are not followed, so nothing outside `root` is
    ever reached: what a link inside it names is found at its own place.

    :param leave_out: a folder that is not even mentioned: the index itself.
    """
    yield from _scan(str(root), "", [], str(leave_out.resolve()) if leave_out else "")


def _scan(root: str, prefix: str, rules: list[tuple[str, str, GitIgnoreSpec]], leave_out: str) -> Iterator[Entry]:
    try:
        with os.scandir(f"{root}/{prefix}") as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        yield Entry(prefix, 0, 0, f"cannot be listed: {error.strerror}")
        return
    rules = rules + [rule for entry in entries if entry.name in IGNORE_FILES for rule in _rules(prefix, entry)]
    for entry in entries:
        path = prefix + entry.name
        try:
            folder = entry.is_dir(follow_symlinks=False)
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            yield Entry(path, 0, 0, f"cannot be examined: {error.strerror}")
            continue
        if folder and leave_out and os.path.realpath(entry.path) == leave_out:
            continue
        reason = _passed_over(entry, path + "/" if folder else path, rules)
        if folder and not reason:
            yield from _scan(root, path + "/", rules, leave_out)
            continue
        path = os.fsencode(path).decode("utf-8", "backslashreplace")  # a bad name is passed over, but accounted for
        yield Entry(path + "/" if folder else path, 0 if folder else status.st_size, status.st_mtime_ns, reason)


def _passed_over(entry: os.DirEntry[str], path: str, rules: list[tuple[str, str, GitIgnoreSpec]]) -> str:
    if entry.name.startswith("."):
        return "hidden"
    if entry.is_symlink():
        return "symbolic link"
    for base, source, spec in reversed(rules):
        verdict = spec.check_file(path[len(base) :]).include
        if verdict is not None:
            if verdict:
                return f"ignored by {source}"
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


def _rules(prefix: str, entry: os.DirEntry[str]) -> list[tuple[str, str, GitIgnoreSpec]]:
    from pathspec import GitIgnoreSpec

    if entry.is_symlink() or not entry.is_file():
        return []
    try:
        with open(entry.path, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123 - a DirEntry's path
            lines = stream.read(2**20).splitlines()
    except OSError:
        return []
    specs = []
    for line in lines:  # one bad pattern is passed over, as git does
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        specs.append(line)
    return [(prefix, prefix + entry.name, GitIgnoreSpec.from_lines(specs))] if specs else []


def find_index(start: Path) -> Path | None:
    """The nearest `.binocle` at or above a folder, as git finds `.git`."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / ".binocle" / "HEAD.json").is_file():
            return folder / ".binocle"
    return None
