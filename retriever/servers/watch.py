"""Keep an index in line with its folders: wait for changes, and sync when they have settled."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from watchfiles._rust_notify import (  # the documented core of watchfiles: events count from its construction
    RustNotify,
    WatchfilesRustInternalError,
)

from ...core.errors import BinocleError, InputError
from ...core.files import expand_home
from ..documents.scan import IGNORE_FILES
from ..store.head import SETTINGS
from ..store.root import TOP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..indexing.report import Report
    from ..retriever import Retriever

_QUIET_MS, _LONGEST_MS = 300, 10_000  # a burst of changes ends after so long without one, or at the latest
_LOOK_MS = 1_000  # between two looks at the folder itself, which may be replaced
_RETRY_SECONDS = 5.0  # after a sync that failed
_ANYWAY_SECONDS = 600.0  # a sync without an event: a file system may have lost one
_POLL_SECONDS = 5.0
_MAX_CHANGES = 10_000  # changes at once: the queue of events may have overflowed, so new folders may not be watched
_WITHOUT_EVENTS = ("nfs", "cifs", "smb", "9p", "fuse", "vboxsf", "afs", "ceph", "glusterfs")


@dataclass(frozen=True, slots=True)
class Update:
    """A step of the watch: a sync that changed the index, or a problem that it waits for."""

    report: Report | None
    problem: str = ""


def watch(
    retriever: Retriever,
    folder: str | os.PathLike[str] | None = None,
    *,
    poll: float | None = None,
    stop: Event | None = None,
) -> Iterator[Update]:
    """Sync an index with its folder now and after each burst of changes, until `stop` is set.

    Each sync compares all of the folder with the index, so a lost event delays a change and never loses it. A folder
    that vanishes keeps its documents, and is watched again when it is back. All folders of a collection are watched,
    also one that is added meanwhile.

    :param folder: by default the indexed folder. A new index needs one.
    :param poll: seconds between two looks at the files, instead of the system's events. By default the events are used,
        except on file systems that have none (network shares, FUSE).
    :raises InputError: when the folder is not there at the start, or the index is of another one.
    :raises NoIndexError: when there is neither a folder nor an index.
    """
    root = None if folder is None else expand_home(folder).resolve()
    if root is not None and not root.is_dir():
        raise InputError(f"{folder} is a file: expected a folder" if root.exists() else f"there is no folder {folder}")
    if root is None and _roots(retriever, None) == [retriever.folder]:
        root = retriever.folder
    return _updates(retriever, root, poll, stop or Event())


def _updates(retriever: Retriever, root: Path | None, poll: float | None, stop: Event) -> Iterator[Update]:
    problem, is_first = "", True
    while not stop.is_set():
        if root is not None and not root.is_dir() and _roots(retriever, root) == [root]:
            if not problem:
                problem = f"{root} is away: its documents stay in the index until it is back"
                yield Update(None, problem)
            stop.wait(_LOOK_MS / 1000)
            continue
        problem = ""
        yield from _follow(retriever, root, poll, stop, is_first=is_first)
        is_first = False


def _roots(retriever: Retriever, root: Path | None) -> list[Path]:
    """The paths to watch: the folders and files of a collection, or else the folder."""
    with contextlib.suppress(*[BinocleError] if root else []):  # none yet, or a sync says what is wrong
        if root is None or retriever.folder == TOP:
            return retriever.folders
    return [] if root is None else [root]


def _follow(
    retriever: Retriever, root: Path | None, poll: float | None, stop: Event, *, is_first: bool
) -> Iterator[Update]:
    """Sync while the folders stay the same ones, and the system still reports their changes."""
    roots = _roots(retriever, root)
    identity = _identities(roots)
    changes = _Changes(roots, retriever.path, poll)
    shown: tuple[object, ...] | None = None
    count = 0
    with changes.notify:
        while not stop.is_set() and count < _MAX_CHANGES and _identities(roots) == identity:
            changes.note_settings()  # before the sync, which may miss a later change of them
            update = _sync(retriever, root, is_first=is_first and shown is None)
            state = _lasting(update)
            if state != shown or _has_changed(update):
                yield update
            shown = state
            if _roots(retriever, root) != roots:  # the collection has another folder
                return
            count = changes.wait(stop, _ANYWAY_SECONDS if update.report else _RETRY_SECONDS, identity)


class _Changes:
    """The changes at and below some paths, apart from hidden files and the index; of the index, only its settings."""

    def __init__(self, roots: Sequence[Path], index: Path, poll: float | None) -> None:
        self.roots = roots
        self.index = os.path.join(index, "")  # noqa: PTH118
        self._settings = index / SETTINGS
        self.note_settings()
        if poll is None and not all(map(_has_events, roots)):
            poll = _POLL_SECONDS
        self.notify = self._open(poll)

    def note_settings(self) -> None:
        """Remember the present settings of the index: a change of them, such as another folder, ends a wait."""
        self._version = _version(self._settings)

    def _open(self, poll: float | None) -> RustNotify:
        paths = [str(root) for root in self.roots if root.exists()]
        try:
            return RustNotify(paths, False, poll is not None, int((poll or 0) * 1000), True, True)
        except OSError:  # more folders than the system watches
            return RustNotify(paths, False, True, int(_POLL_SECONDS * 1000), True, True)

    def wait(self, stop: Event, seconds: float, identity: list[tuple[int, int] | None]) -> int:
        """Wait for a burst of changes, and count them; 0 if none came in time, or a folder or the settings changed.

        The count is `_MAX_CHANGES` if the events cannot be read and are lost, such as one of a name that is not UTF-8.
        """
        deadline = time.monotonic() + seconds
        while not stop.is_set() and time.monotonic() < deadline and self._are_same(identity):
            try:
                changes = self.notify.watch(_LONGEST_MS, _QUIET_MS, _LOOK_MS, stop)
            except WatchfilesRustInternalError:
                stop.wait(_LOOK_MS / 1000)
                return _MAX_CHANGES
            if changes == "signal":  # watchfiles swallows the exception of the handler
                raise KeyboardInterrupt
            if not isinstance(changes, str) and any(self._counts(path) for _, path in changes):
                return len(changes)
        return 0

    def _are_same(self, identity: list[tuple[int, int] | None]) -> bool:
        return _identities(self.roots) == identity and _version(self._settings) == self._version

    def _counts(self, path: str) -> bool:
        below = [Path(path).relative_to(root).parts for root in self.roots if Path(path).is_relative_to(root)]
        return not path.startswith(self.index) and not all(map(_is_hidden, below))


def _is_hidden(names: Sequence[str]) -> bool:
    return any(name.startswith(".") and name not in IGNORE_FILES for name in names)


def _sync(retriever: Retriever, root: Path | None, *, is_first: bool) -> Update:
    """Sync once. Only the first sync raises a mistake of the user; a later one waits until it is mended."""
    try:
        return Update(retriever.sync(root))
    except BinocleError as error:
        if is_first and isinstance(error, InputError):
            raise
        return Update(None, str(error))


def _lasting(update: Update) -> tuple[object, ...]:
    """The lasting part of an update: failures and notes that are printed only when they change."""
    report = update.report
    return (update.problem,) if report is None else (report.failed, report.missing, report.note)


def _has_changed(update: Update) -> bool:
    report = update.report
    return report is not None and bool(report.indexed or report.moved or report.removed)


def _identities(roots: Sequence[Path]) -> list[tuple[int, int] | None]:
    return [_identity(root) for root in roots]


def _identity(folder: Path) -> tuple[int, int] | None:
    """The device and inode of a folder, which change when another replaces it."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _version(file: Path) -> tuple[int, ...] | None:
    """The version of a file, which changes when it is replaced or written over; None if there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _has_events(folder: Path) -> bool:
    """Whether the system reports the changes of others on the file system of a folder; true if it cannot be known."""
    try:
        mounts = [line.split(" ")[1:3] for line in Path("/proc/self/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return True
    types = [(len(point), kind) for point, kind in mounts if folder.is_relative_to(point)]
    return not max(types, default=(0, ""))[1].startswith(_WITHOUT_EVENTS)
