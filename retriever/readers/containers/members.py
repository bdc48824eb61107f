"""Files in other files: attachments of mail and members of archives, each read as a document of its own.

`mail.eml/plan.pdf` and `a.zip/docs/b.md` are their paths. No other file can have such a path: it lies below a file. The
path alone names the bytes, so a reader of the member needs nothing else.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from ....core.errors import UnreadableError, UnsupportedError
from ..detect import choose_format, ending_of
from ..formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Self

    from ..formats import Format

MAX_DEPTH = 3  # an archive in an archive in a mail
MAX_MEMBERS = 10_000  # of one file of the folder, at all depths
MAX_BYTES = 1 << 30  # of its members together, unpacked
_MAX_RATIO = 200  # unpacked to packed bytes; a larger one is made to exhaust memory or disks
_FREE_BYTES = 64 << 20  # unpacked bytes that need no ratio
_MAX_NAME = 1_000  # characters

# format: the function that lists the members of a file
_SOURCES = {
    "email": ".mail:attachments",
    "mailbox": ".mail:mailbox_attachments",
    "msg": "..office.binary.msg:attachments",
    "zip": ".archive:zip_members",
    "tar": ".archive:tar_members",
    "gzip": ".archive:unpacked",
    "bzip2": ".archive:unpacked",
    "xz": ".archive:unpacked",
}
_UNSAFE = re.compile("[\x00-\x1f\x7f\u2028\u2029\ufffe\uffff\ud800-\udfff]+")
_PART = re.compile(r"bytes-\d{12,20}-\d{12,20}")  # the name of a part of a large file


@dataclass(frozen=True, slots=True)
class Member:
    """A file in another file. `reason` says why it is passed over, and `read` gives its bytes."""

    name: str  # its path below the other file
    size: int
    read: Callable[[], bytes]
    reason: str = ""


class CutBytes(bytes):
    """The bytes of a member up to its damage. `unread` describes the missing part in one line."""

    unread: str

    def __new__(cls, content: bytes, unread: str) -> Self:
        """Copy the bytes, and set `unread`."""
        data = super().__new__(cls, content)
        data.unread = unread
        return data


def has_members(format_name: str) -> bool:
    """Whether files of a format may hold other files."""
    return format_name in _SOURCES


def may_hold(path: str) -> bool:
    """Whether a file is named like an archive or a mail."""
    return has_members(FORMATS.get(ending_of(path), ("",))[0])


def list_members(data: bytes, format_name: str, name: str = "") -> Iterator[Member]:
    """List the members of a file, with names that are safe and distinct, and reasons for those beyond a limit.

    :param name: of the file: a compressed one is named after it.
    """
    module, _, function = _SOURCES[format_name].partition(":")
    source: Iterable[Member] = getattr(import_module(module, __package__), function)(data, name)
    names = _Names()
    hidden: set[str] = set()
    total, limit = 0, min(MAX_BYTES, max(_FREE_BYTES, _MAX_RATIO * len(data)))
    for number, member in enumerate(source):
        if number == MAX_MEMBERS:
            reason = f"only the first {MAX_MEMBERS:,} files in it are read"
            yield Member(names.distinct("more files"), 0, bytes, reason)
            return
        path = safe_path(member.name)
        if folder := _hidden(path):
            if folder not in hidden:
                hidden.add(folder)
                yield Member(folder, 0, bytes, "hidden")
            continue
        total += member.size
        reason = member.reason or (f"the files in it unpack to more than {limit >> 20} MB" if total > limit else "")
        yield replace(member, name=names.distinct(path), reason=reason)


def _hidden(path: str) -> str:
    """Return the path of the outermost hidden file or folder on the way, "" if there is none."""
    match = re.search(r"(?:^|/)(?:\.|__MACOSX(?=/))[^/]*/?", path)
    return path[: match.end()] if match else ""


def safe_path(name: str) -> str:
    """Write a name as a path that leads nowhere else: no `..`, no root, no control characters."""
    parts = [_UNSAFE.sub("_", part).strip() for part in name.replace("\\", "/").split("/")]
    parts = [part for part in parts if part not in {"", ".", ".."}]
    if parts and _PART.fullmatch(parts[-1]):
        parts[-1] += "_"
    return "/".join(parts)[-_MAX_NAME:].lstrip("/") or "unnamed"


class _Names:
    """Makes paths distinct, and none lies below another."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def distinct(self, path: str) -> str:
        if any(folder in self._files for folder in _above(path)):
            path = path.replace("/", "_")
        stem, ending = posixpath.splitext(path)
        number = 1
        while path in self._files or path in self._folders:
            number += 1
            path = f"{stem} ({number}){ending}"
        self._files.add(path)
        self._folders.update(_above(path))
        return path


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


class OpenFile:
    """The file of the folder with the members that were read last, open down to them."""

    def __init__(self, formats: Mapping[str, Format]) -> None:
        self._formats = formats
        self._identity: object = None
        self._levels: list[tuple[str, dict[str, Member]]] = []  # path below the file -> its members, outermost first

    def read(self, identity: object, content: Callable[[], bytes], name: str, path: str) -> bytes:
        """Return the bytes of a member, or of a member of a member.

        :param identity: of the file and its state; the members of the last one stay open.
        :param content: reads the file.
        :param name: of the file; its ending matters.
        :param path: of the member below the file.
        :raises UnreadableError: when a file on the way cannot be read.
        :raises FileNotFoundError: when there is no such member.
        """
        if identity != self._identity:
            self._identity, self._levels = identity, []
        inside = ""
        for depth in range(MAX_DEPTH):
            members = self._members(depth, inside, content, name)
            step = next((step for step in (path, *_above(path)) if step in members), None)
            if step is None or members[step].reason:
                break
            content, name = members[step].read, step
            if step == path:
                return content()
            inside, path = f"{inside}{step}/", path[len(step) + 1 :]
        raise FileNotFoundError(path)

    def _members(self, depth: int, inside: str, content: Callable[[], bytes], name: str) -> dict[str, Member]:
        if depth >= len(self._levels) or self._levels[depth][0] != inside:
            del self._levels[depth:]
            data = content()
            try:
                format_name, _ = choose_format(data, name, self._formats)
            except UnsupportedError:
                format_name = ""
            members = list_members(data, format_name, name) if has_members(format_name) else ()
            self._levels.append((inside, {member.name: member for member in members}))
        return self._levels[depth][1]


def refuse_unless_small(size: int, limit: int) -> None:
    """Refuse a member that unpacks to more bytes than a file may have."""
    if size > limit:
        raise UnreadableError(f"it unpacks to more than {limit >> 20} MB")
