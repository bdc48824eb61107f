"""Keep an index in line with its folder: wait for changes, and sync when they have settled."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from watchfiles._rust_notify import RustNotify  # the documented core of watchfiles: events count from its construction

from ...core.errors import BinocleError, InputError
from ..documents.scan import IGNORE_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..indexing.report import Report
    from ..retriever import Retriever

_QUIET_MS, _LONGEST_MS = 300, 10_000  # a burst of changes ends after so long without one, or at the latest
_LOOK_MS = 1_000  # between two looks at the folder itself, which may be replaced
_RETRY_SECONDS = 5.0  # after a sync that failed
_ANYWAY_SECONDS = 600.0  # a sync without an event: a file system may have lost one
_POLL_SECONDS = 5.0
_MANY = 10_000  # changes at once: the queue of events may have overflowed, so new folders may not be watched
_WITHOUT_EVENTS = ("nfs", "cifs", "smb", "9p", "fuse", "vboxsf", "afs", "ceph", "glusterfs")


@dataclass(frozen=True, slots=True)
class Update:
    """A step of the watch: a sync that changed the index, or a problem that it waits for."""

    report: Report | None
    problem: str = ""


def watch(
    retriever: Retriever, folder: str | os.PathLike[str], *, poll: float | None = None, stop: Event | None = None
) -> Iterator[Update]:
    """Sync an index with a folder now and after each burst of changes, until `stop` is set.

    Each sync compares all of the folder with the index, so a lost event delays a change and never loses it. A folder
    that vanishes keeps its documents, and is watched again when it is back.

    :param poll: seconds between two looks at the files, instead of the system's events. By default the events are used,
        except on file systems that have none (network shares, FUSE).
    :raises InputError: when the folder is not there at the start.
    """
    root = Path(folder).expanduser().resolve()
    if not root.is_dir():
        raise InputError(f"there is no folder {folder}")
    stop = stop or Event()
    problem = ""
    while not stop.is_set():
        if not root.is_dir():
            if not problem:
                problem = f"{root} is away: its documents stay in the index until it is back"
                yield Update(None, problem)
            stop.wait(_LOOK_MS / 1000)
            continue
        problem = ""
        yield from _follow(retriever, root, poll, stop)


def _follow(retriever: Retriever, root: Path, poll: float | None, stop: Event) -> Iterator[Update]:
    """Sync while the folder stays the same one, and the system still reports its changes."""
    identity = _identity(root)
    changes = _Changes(root, retriever.path, poll)
    shown: tuple[object, ...] | None = None
    count = 0
    with changes.notify:
        while not stop.is_set() and count < _MANY and _identity(root) == identity:
            update = _sync(retriever, root)
            state = _lasting(update)
            if state != shown or _has_changed(update):
                yield update
            shown = state
            count = changes.wait(stop, _ANYWAY_SECONDS if update.report else _RETRY_SECONDS, identity)


class _Changes:
    """The changes below a folder, apart from hidden files and the index."""

    def __init__(self, root: Path, index: Path, poll: float | None) -> None:
        self.root = root
        self.index = os.path.join(index, "")  # noqa: PTH118
        if poll is None and not _has_events(root):
            poll = _POLL_SECONDS
        self.notify = self._open(poll)

    def _open(self, poll: float | None) -> RustNotify:
        try:
            return RustNotify([str(self.root)], False, poll is not None, int((poll or 0) * 1000), True, True)
        except OSError:  # more folders than the system watches
            return RustNotify([str(self.root)], False, True, int(_POLL_SECONDS * 1000), True, True)

    def wait(self, stop: Event, seconds: float, identity: tuple[int, int] | None) -> int:
        """Wait for a burst of changes, and count them; 0 if none came in time or the folder is another one."""
        deadline = time.monotonic() + seconds
        while not stop.is_set() and time.monotonic() < deadline and _identity(self.root) == identity:
            changes = self.notify.watch(_LONGEST_MS, _QUIET_MS, _LOOK_MS, stop)
            if changes == "signal":  # watchfiles swallows the exception of the handler
                raise KeyboardInterrupt
            if not isinstance(changes, str) and any(self._counts(path) for _, path in changes):
                return len(changes)
        return 0

    def _counts(self, path: str) -> bool:
        names = Path(os.path.relpath(path, self.root)).parts
        hidden = any(name.startswith(".") and name not in IGNORE_FILES for name in names)
        return not hidden and not path.startswith(self.index)


def _sync(retriever: Retriever, root: Path) -> Update:
    try:
        return Update(retriever.sync(root))
    except BinocleError as error:
        return Update(None, str(error))


def _lasting(update: Update) -> tuple[object, ...]:
    """What stays from sync to sync, and is worth a line only when it changes."""
    report = update.report
    return (update.problem,) if report is None else (report.failed, report.missing, report.note)


def _has_changed(update: Update) -> bool:
    report = update.report
    return report is not None and bool(report.indexed or report.moved or report.removed)


def _identity(folder: Path) -> tuple[int, int] | None:
    """What tells a folder from another one at its path: its device and inode."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _has_events(folder: Path) -> bool:
    """Whether the system reports the changes of others on the file system of a folder; true if it cannot be known."""
    try:
        mounts = [line.split(" ")[1:3] for line in Path("/proc/self/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return True
    types = [(len(point), kind) for point, kind in mounts if folder.is_relative_to(point)]
    return not max(types, default=(0, ""))[1].startswith(_WITHOUT_EVENTS)
