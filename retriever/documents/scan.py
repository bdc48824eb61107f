"""List a folder: the files to read, and the skipped ones with a reason."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.files import mtime_ns, open_regular
from .file_parts import document_sha256, is_member, size_and_time
from .gitignore import Pattern, verdict

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

INDEX_NAME = ".binocle"  # the index's name in the indexed folder
IGNORE_FILES = (".gitignore", ".binocleignore")
_MAX_HASHED_BYTES = 4 * 2**20  # reading a larger file again takes longer than a search


@dataclass(frozen=True, slots=True)
class Entry:
    """A file to read, or a skipped file or folder with a reason; the path of a folder ends in "/"."""

    path: str  # relative to the folder, "/" between names
    size: int
    mtime_ns: int
    reason: str = ""
    unknown: bool = False  # the folder could not be read, so files below it may still exist
    tried: str = ""  # the sha256 of its bytes when the last run failed on them and left them for this one
    ctime_ns: int = 0  # time of the last change of any kind, which no program can set


def scan(
    root: Path, *, leave_out: Path | None = None, within: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Iterator[Entry]:
    """Yield every entry below `root`, in order of path within each folder.

    Hidden files and files that `.gitignore` or `.binocleignore` excludes have a reason. The rules are git's: deeper
    files first, up to the top of the repository around `root`. A skipped folder is one entry. Symbolic links are not
    followed, so nothing outside `root` is listed; a link's target inside `root` is listed under its own path.

    :param leave_out: a folder to omit without an entry: the index itself.
    :param within: only these folders and files below `root`; no rule excludes them. A missing one, or one that became a
        symbolic link, gives no entry.
    :param exclude: patterns as in `.gitignore`; they override every file of patterns.
    """
    real = os.path.realpath(root)
    folders = [os.path.join(real, path) for path in within] or [real]  # noqa: PTH118
    index = {os.path.realpath(leave_out)} if leave_out else set()
    patterns = [pattern for line in exclude if (pattern := Pattern.parse(line))]
    for number, folder in enumerate(folders):
        prefix = os.path.relpath(folder, real) + "/" if folder != real else ""
        if within and not _is_there(folder):
            continue
        if within and os.path.isfile(folder):  # noqa: PTH113
            status = os.stat(folder)  # noqa: PTH116
            yield Entry(prefix.removesuffix("/"), status.st_size, mtime_ns(status), ctime_ns=status.st_ctime_ns)
            continue
        rules = [_Rules(os.path.join(folder, ""), "--exclude", patterns)] if patterns else []  # noqa: PTH118
        start = _Folder(prefix, _rules_above(Path(folder)), rules)
        yield from _scan(real, start, index.union(folders[:number], folders[number + 1 :]))


def away(root: Path, within: Sequence[str]) -> list[str]:
    """Return the folders and files below `root` that are missing: their disk may not be mounted."""
    real = os.path.realpath(root)
    return [path for path in within if not _is_there(os.path.join(real, path))]  # noqa: PTH118


def lies_in(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of some folders and files, or below one; all paths are below ""."""
    return any(path == folder or not folder or path.startswith(f"{folder}/") for folder in folders)


def _is_there(path: str) -> bool:
    """Whether a path leads to a folder or a regular file, and through no symbolic link."""
    try:
        return os.path.realpath(path) == path and stat.S_IFMT(os.stat(path).st_mode) in (stat.S_IFDIR, stat.S_IFREG)  # noqa: PTH116
    except OSError:
        return False


def _scan(root: str, start: _Folder, leave_out: Container[str]) -> Iterator[Entry]:
    waiting: list[Iterator[Entry | _Folder]] = [iter([start])]
    while waiting:  # not recursion: a tree may be deeper than Python's stack
        item = next(waiting[-1], None)
        if item is None:
            waiting.pop()
        elif isinstance(item, Entry):
            yield item
        else:
            waiting.append(_list_folder(root, item, leave_out))


@dataclass(frozen=True, slots=True)
class _Folder:
    prefix: str  # "" or a path ending in "/"
    rules: list[_Rules]  # outermost first
    last: list[_Rules]  # stronger than all others


@dataclass(frozen=True, slots=True)
class _Rules:
    base: str  # the folder that their paths are relative to, ending in "/"
    source: str  # the file of the rules, relative to the scanned folder
    patterns: list[Pattern]


def _list_folder(root: str, folder: _Folder, leave_out: Container[str]) -> Iterator[Entry | _Folder]:
    """Yield the entries of one folder, and its folders to enter, in order of name."""
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
    strongest_last = rules + folder.last
    for entry in entries:
        path = folder.prefix + _name(entry.name, by_name)
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            yield Entry(path, 0, 0, f"cannot be examined: {error.strerror}", unknown=True)
            continue
        if leave_out and (os.path.realpath(entry.path) if is_folder else entry.path) in leave_out:
            continue
        path = path + "/" if is_folder else path
        reason = _skip_reason(entry, strongest_last)
        if is_folder and not reason:
            yield _Folder(path, rules, folder.last)
            continue
        size = 0 if is_folder else status.st_size
        yield Entry(path, size, mtime_ns(status), reason, ctime_ns=status.st_ctime_ns)


def _name(name: str, siblings: Container[str]) -> str:
    """Return a name to report. A name that is not UTF-8 is escaped, and stays distinct in its folder."""
    if _is_utf8(name):
        return name
    escaped = os.fsencode(name.replace("\\", "\\\\")).decode("utf-8", "backslashreplace")
    while escaped in siblings:
        escaped += "\\"
    return escaped


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _skip_reason(entry: os.DirEntry[str], rules: list[_Rules]) -> str:
    if entry.name.startswith("."):
        return "hidden"
    if entry.is_symlink():
        return "symbolic link"
    is_folder = entry.is_dir(follow_symlinks=False)
    if source := _ignored_by(rules, entry.path + "/" * is_folder):
        return f"ignored by {source}"
    if not is_folder and not entry.is_file(follow_symlinks=False):
        return "not a regular file"
    return "" if _is_utf8(entry.name) else "its name is not valid UTF-8"


def _ignored_by(rules: list[_Rules], path: str) -> str:
    """Return the file with the rule that ignores a path, "" if there is none."""
    for rule in reversed(rules):
        ignored = verdict(rule.patterns, path[len(rule.base) :])
        if ignored is not None:
            return rule.source if ignored else ""
    return ""


def _rules_above(root: Path) -> list[_Rules]:
    """Return the rules of the git repository above a folder; none if they would ignore the folder itself."""
    top = next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), None)
    if top is None:
        return []
    exclude = _git_folder(top) / "info/exclude"
    inside = exclude.is_relative_to(top)
    source = _path_up(root, top) + exclude.relative_to(top).as_posix() if inside else str(exclude)
    rules = _rules(exclude, source, top)
    for folder in (folder for folder in (*reversed(root.parents), root) if folder.is_relative_to(top)):
        if folder != top and _ignored_by(rules, f"{folder}/"):
            return []
        if folder != root:
            for name in IGNORE_FILES:
                rules += _rules(folder / name, _path_up(root, folder) + name)
    return rules


def _git_folder(top: Path) -> Path:
    """Return the folder that the working trees of a repository share; a file `.git` of a linked tree names it."""
    folder = top / ".git"
    if folder.is_dir():
        return folder
    line = _line(folder)
    own = top / line.removeprefix("gitdir: ")
    if not line.startswith("gitdir: ") or not (own / "HEAD").is_file():
        return folder  # a file, so it has no rules
    return Path(os.path.normpath(own / _line(own / "commondir")))


def _line(file: Path) -> str:
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as stream:
            return os.fsdecode(stream.read(2**16).rstrip(b"\r\n"))
    except OSError:
        return ""


def _path_up(folder: Path, above: Path) -> str:
    return "../" * len(folder.relative_to(above).parts)


def _rules(file: Path | os.DirEntry[str], source: str, base: Path | None = None) -> list[_Rules]:
    """Read the rules in a file for paths below `base`; None: the folder of the file."""
    path = Path(file)
    try:
        if file.is_symlink() or not file.is_file():
            return []
        with open_regular(path) as stream:
            text = stream.read(2**20).decode("utf-8-sig", "surrogateescape")
    except OSError:
        return []
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    patterns = [pattern for line in lines if (pattern := Pattern.parse(line))]
    return [_Rules(os.path.join(base or path.parent, ""), source, patterns)] if patterns else []  # noqa: PTH118


def is_index(folder: Path) -> bool:
    """Whether a folder is an index, and not a folder of documents with a HEAD.json among them."""
    tables = (folder / "documents.lance", folder / "chunks.lance")
    return _has_head(folder) and any(table.is_dir() for table in tables)


def index_at(folder: Path) -> Path | None:
    """Return the folder if it is an index, or the index inside it; None if there is none."""
    return next((index for index in (folder, folder / INDEX_NAME) if is_index(index)), None)


def _has_head(index: Path) -> bool:
    """Tell whether a folder has the state of an index, or its previous state."""
    return any((index / name).is_file() for name in ("HEAD.json", "HEAD.previous.json"))


def find_index(start: Path) -> Path | None:
    """Return the nearest `.binocle` at or above a folder, as git finds `.git`."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if _has_head(folder / INDEX_NAME):
            return folder / INDEX_NAME
    return None


def written_since(root: Path, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the paths of documents with changed or deleted files, compared with these rows.

    If only the time differs, the sha256 decides; a large file is not hashed and counts as unchanged.
    """
    return [row["path"] for row in rows if _has_changed(file_below(root, row["path"]), row)]


def file_below(root: Path, path: str) -> Path | None:
    """Return the file that a row of an index names; None if `..`, an absolute path or a symbolic link leads elsewhere.

    A scan lists no such path, but an index may come from elsewhere.
    """
    prefix = os.path.join(os.path.realpath(root), "")  # noqa: PTH118
    try:
        return Path(prefix + path) if os.path.realpath(prefix + path) == prefix + path else None
    except ValueError:  # a NUL
        return None


def _has_changed(file: Path | None, row: Mapping[str, Any]) -> bool:
    if file is None:
        return True
    try:
        size, time = size_and_time(file)
        if is_member(file):
            return bool(time != row["mtime_ns"])
        if size != row["size"]:
            return True
        return time != row["mtime_ns"] and size <= _MAX_HASHED_BYTES and document_sha256(file) != row["sha256"]
    except OSError:
        return True
