"""What is in a folder: the files to read, and what is passed over and why."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.files import sha256
from .gitignore import Pattern, verdict

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

INDEX_NAME = ".binocle"  # of the index in its folder
IGNORE_FILES = (".gitignore", ".binocleignore")
MAX_BYTES = 256 * 2**20
_HASHED = 4 * 2**20  # bytes: to read a larger file again takes longer than a search


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

    Hidden files and what `.gitignore` or `.binocleignore` excludes (rules as git's, deeper files first, up to the top
    of the repository that `root` lies in) are given with a reason; a folder passed over is one entry. Symbolic links
    are not followed, so nothing outside `root` is ever given: what a link inside it names is found at its own place.

    :param leave_out: a folder that is not even mentioned: the index itself.
    """
    yield from _scan(os.path.realpath(root), str(leave_out.resolve()) if leave_out else "")


def _scan(root: str, leave_out: str) -> Iterator[Entry]:
    waiting: list[Iterator[Entry | _Folder]] = [iter([_Folder("", _rules_above(Path(root)))])]
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
    rules: list[_Rules]  # outermost first


@dataclass(frozen=True, slots=True)
class _Rules:
    base: str  # the folder whose paths they are held against, ending in "/"
    source: str  # the file they stand in, as seen from the folder that is scanned
    patterns: list[Pattern]


def _listing(root: str, folder: _Folder, leave_out: str) -> Iterator[Entry | _Folder]:
    """What stands in one folder, in order of name."""
    try:
        with os.scandir(os.path.join(root, folder.prefix)) as listing:  # noqa: PTH118
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        name = os.fsencode(folder.prefix).decode("utf-8", "backslashreplace")
        yield Entry(name, 0, 0, f"cannot be listed: {error.strerror}", unknown=True)
        return
    by_name = {entry.name: entry for entry in entries}
    files = [by_name[name] for name in IGNORE_FILES if name in by_name]
    rules = folder.rules + [rule for entry in files for rule in _rules(entry, folder.prefix + entry.name)]
    for entry in entries:
        path = folder.prefix + _name(entry.name, by_name)
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            yield Entry(path, 0, 0, f"cannot be examined: {error.strerror}", unknown=True)
            continue
        if is_folder and leave_out and os.path.realpath(entry.path) == leave_out:
            continue
        path = path + "/" if is_folder else path
        reason = _passed_over(entry, rules)
        if is_folder and not reason:
            yield _Folder(path, rules)
            continue
        yield Entry(path, 0 if is_folder else status.st_size, status.st_mtime_ns, reason)


def _name(name: str, others: Container[str]) -> str:
    """A name that is not UTF-8 is passed over, but accounted for: escaped, and as no other in its folder is called."""
    if _is_utf8(name):
        return name
    escaped = os.fsencode(name.replace("\\", "\\\\")).decode("utf-8", "backslashreplace")
    while escaped in others:
        escaped += "\\"
    return escaped


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _passed_over(entry: os.DirEntry[str], rules: list[_Rules]) -> str:
    if entry.name.startswith("."):
        return "hidden"
    if entry.is_symlink():
        return "symbolic link"
    is_folder = entry.is_dir(follow_symlinks=False)
    if source := _ignored_by(rules, entry.path + "/" * is_folder):
        return f"ignored by {source}"
    if not is_folder:
        if not entry.is_file(follow_symlinks=False):
            return "not a regular file"
        if entry.stat(follow_symlinks=False).st_size > MAX_BYTES:
            return f"larger than {MAX_BYTES // 2**20} MB"
    return "" if _is_utf8(entry.name) else "its name is not valid UTF-8"


def _ignored_by(rules: list[_Rules], path: str) -> str:
    """The file whose rules ignore a path, "" where none does."""
    for rule in reversed(rules):
        ignored = verdict(rule.patterns, path[len(rule.base) :])
        if ignored is not None:
            return rule.source if ignored else ""
    return ""


def _rules_above(root: Path) -> list[_Rules]:
    """What the git repository that a folder lies in says above it, unless it ignores the folder: that is asked for."""
    top = next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), None)
    if top is None:
        return []
    exclude = _git_folder(top) / "info/exclude"
    inside = exclude.is_relative_to(top)
    seen = _seen_from(root, top) + exclude.relative_to(top).as_posix() if inside else str(exclude)
    rules = _rules(exclude, seen, top)
    for folder in (folder for folder in (*reversed(root.parents), root) if folder.is_relative_to(top)):
        if folder != top and _ignored_by(rules, f"{folder}/"):
            return []
        if folder != root:
            for name in IGNORE_FILES:
                rules += _rules(folder / name, _seen_from(root, folder) + name)
    return rules


def _git_folder(top: Path) -> Path:
    """Where a repository keeps what its working trees share: of a linked one and a submodule `.git` only says where."""
    folder = top / ".git"
    if folder.is_dir():
        return folder
    line = _line(folder)
    own = top / line.removeprefix("gitdir: ")
    if not line.startswith("gitdir: ") or not (own / "HEAD").is_file():
        return folder  # which has no rules, for it is a file
    return Path(os.path.normpath(own / _line(own / "commondir")))


def _line(file: Path) -> str:
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as stream:
            return os.fsdecode(stream.read(2**16).rstrip(b"\r\n"))
    except OSError:
        return ""


def _seen_from(folder: Path, above: Path) -> str:
    return "../" * len(folder.relative_to(above).parts)


def _rules(file: Path | os.DirEntry[str], source: str, base: Path | None = None) -> list[_Rules]:
    """The rules in a file, held against paths below `base`: the folder it is in, unless given."""
    path = Path(file)
    try:
        if file.is_symlink() or not file.is_file():
            return []
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as stream:
            lines = [line.removesuffix("\n").removesuffix("\r") for line in stream.read(2**20).split("\n")]
    except OSError:
        return []
    patterns = [pattern for line in lines if (pattern := Pattern.parse(line))]
    return [_Rules(os.path.join(base or path.parent, ""), source, patterns)] if patterns else []  # noqa: PTH118


def is_index(folder: Path) -> bool:
    """Whether a folder is an index itself, and not one of documents with a HEAD.json among them."""
    tables = (folder / "documents.lance", folder / "chunks.lance")
    return (folder / "HEAD.json").is_file() and any(table.is_dir() for table in tables)


def find_index(start: Path) -> Path | None:
    """The nearest `.binocle` at or above a folder, as git finds `.git`."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / INDEX_NAME / "HEAD.json").is_file():
            return folder / INDEX_NAME
    return None


def written_since(root: Path, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Paths of documents whose files are no longer as these rows have them: changed, or gone.

    A file of which only the time differs was touched or copied if its bytes are the same: of a large one that is taken
    to be so.
    """
    return [row["path"] for row in rows if _is_other(root / row["path"], row)]


def _is_other(file: Path, row: Mapping[str, Any]) -> bool:
    try:
        status = file.lstat()
        if status.st_size != row["size"]:
            return True
        touched = status.st_mtime_ns != row["mtime_ns"]
        return touched and status.st_size <= _HASHED and sha256(file) != row["sha256"]
    except OSError:
        return True
