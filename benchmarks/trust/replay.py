"""Replay the log of `file_calls.c`: every state of a folder that a killed process or a power cut can leave."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

_HEADER = struct.Struct("<cIIqQ")


class Call(NamedTuple):
    """A call that changed a file or folder, with paths relative to the traced folder."""

    kind: str  # see file_calls.c
    path: str
    target: str  # the second path; "" if there is none
    offset: int
    data: bytes


class State(NamedTuple):
    """A folder at one moment: files with their bytes, and folders with None."""

    label: str
    files: dict[str, bytes | None]

    def digest(self) -> bytes:
        """A name of its content."""
        digest = hashlib.blake2b(digest_size=16)
        for path, data in sorted(self.files.items()):
            digest.update(f"{path}\0{-1 if data is None else len(data)}\0".encode())
            digest.update(data or b"")
        return digest.digest()

    def write(self, folder: Path) -> None:
        """Make the folder."""
        folder.mkdir(parents=True)
        for path, data in sorted(self.files.items()):
            if data is None:
                (folder / path).mkdir()
            else:
                (folder / path).write_bytes(data)


def read_folder(folder: Path) -> dict[str, bytes | None]:
    """The files and folders below a folder."""
    if not folder.exists():
        return {}
    return {str(f.relative_to(folder)): None if f.is_dir() else f.read_bytes() for f in folder.rglob("*")}


def read_log(log: Path, root: Path) -> list[Call]:
    """The calls of a log in order."""
    data, position, calls = log.read_bytes(), 0, []
    while position < len(data):
        kind, path_length, target_length, offset, count = _HEADER.unpack_from(data, position)
        position += _HEADER.size
        texts = []
        for length in (path_length, target_length):
            texts.append(data[position : position + length].decode(errors="surrogateescape"))
            position += length
        path, target = (text and str(Path(text).relative_to(root)) for text in texts)
        calls.append(Call(kind.decode(), path, target, offset, data[position : position + count]))
        position += count
    return calls


@dataclass(eq=False, slots=True)
class _File:
    data: bytes = b""
    synced: bytes = b""  # these survive a power cut


@dataclass(eq=False, slots=True)
class _Folder:
    names: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)  # the names that a power cut leaves for sure


Node = _File | _Folder


class Disk:
    """A folder in memory. It knows the synced contents of each file and the synced names of each folder."""

    def __init__(self, files: dict[str, bytes | None]) -> None:
        """Start with files that are all synced."""
        self._root = _Folder()
        for path, data in sorted(files.items()):
            folder, name = self._locate(path)
            folder.names[name] = folder.synced[name] = _Folder() if data is None else _File(data, data)

    def _locate(self, path: str) -> tuple[_Folder, str]:
        *parents, name = path.split("/")
        folder = self._root
        for parent in parents:
            folder = folder.names[parent]  # type: ignore[assignment]
        return folder, name

    def _node(self, path: str) -> Any:
        if path == ".":
            return self._root
        folder, name = self._locate(path)
        return folder.names[name]

    def run(self, call: Call) -> None:
        """Apply a call."""
        _RUN[call.kind](self, call)

    def create(self, call: Call) -> None:
        folder, name = self._locate(call.path)
        if isinstance(file := folder.names.get(name), _File):
            file.data = b""
        else:
            folder.names[name] = _File()

    def write(self, call: Call) -> None:
        file, end = self._node(call.path), call.offset + len(call.data)
        file.data = file.data[: call.offset].ljust(call.offset, b"\0") + call.data + file.data[end:]

    def truncate(self, call: Call) -> None:
        file = self._node(call.path)
        file.data = file.data[: call.offset].ljust(call.offset, b"\0")

    def rename(self, call: Call) -> None:
        folder, name = self._locate(call.path)
        target, new_name = self._locate(call.target)
        target.names[new_name] = folder.names.pop(name)

    def link(self, call: Call) -> None:
        folder, name = self._locate(call.target)
        folder.names[name] = self._node(call.path)

    def unlink(self, call: Call) -> None:
        folder, name = self._locate(call.path)
        del folder.names[name]

    def mkdir(self, call: Call) -> None:
        if call.path != ".":
            folder, name = self._locate(call.path)
            folder.names[name] = _Folder()

    def sync(self, call: Call) -> None:
        _sync(self._node(call.path))

    def sync_all(self, _: Call) -> None:
        for _path, node in self._walk():
            _sync(node)

    def _walk(
        self, names: Callable[[_Folder], dict[str, Node]] = lambda folder: folder.names
    ) -> Iterator[tuple[str, Node]]:
        """All files and folders with their paths, by the names that a function gives for each folder."""
        waiting: list[tuple[str, Node]] = [(".", self._root)]
        while waiting:
            path, node = waiting.pop()
            yield path, node
            if isinstance(node, _Folder):
                parent = "" if path == "." else f"{path}/"
                waiting += [(f"{parent}{name}", child) for name, child in names(node).items()]

    def state(self, label: str, *, unsynced: Collection[Node] = (), all_unsynced: str = "") -> State:
        """The files after a kill, or after a power cut that loses some of them.

        :param unsynced: files and folders that are as they were last synced.
        :param all_unsynced: "contents": all files are so; "names": all folders; "names below": all but the top.
        """

        def names(folder: _Folder) -> dict[str, Node]:
            top = folder is self._root and all_unsynced == "names below"
            return (
                folder.synced if folder in unsynced or (all_unsynced.startswith("names") and not top) else folder.names
            )

        def content(node: Node) -> bytes | None:
            if isinstance(node, _Folder):
                return None
            return node.synced if node in unsynced or all_unsynced in ("contents", "names below") else node.data

        walk = self._walk(names)
        next(walk)
        return State(label, {path: content(node) for path, node in walk})

    def after_power_cut(self, label: str) -> Iterator[State]:
        """The states after a power cut: all synced changes, and some of the others. All subsets would be too many."""
        for kind in ("contents", "names", "names below"):
            yield self.state(f"{label}, {kind} lost", all_unsynced=kind)
        for path, node in self._walk():
            if (node.names != node.synced) if isinstance(node, _Folder) else (node.data != node.synced):
                yield self.state(f"{label}, {path} lost", unsynced=[node])


def _sync(node: Node) -> None:
    if isinstance(node, _Folder):
        node.synced = dict(node.names)
    else:
        node.synced = node.data


_RUN: dict[str, Callable[[Disk, Call], None]] = {
    "C": Disk.create,
    "W": Disk.write,
    "T": Disk.truncate,
    "R": Disk.rename,
    "L": Disk.link,
    "U": Disk.unlink,
    "D": Disk.unlink,
    "M": Disk.mkdir,
    "S": Disk.sync,
    "A": Disk.sync_all,
}


def killed(base: dict[str, bytes | None], calls: Sequence[Call]) -> Iterator[State]:
    """Every distinct state that a process killed at any moment leaves, and half of each write; the last is the end."""
    disk, known = Disk(base), set()
    for number, call in enumerate(calls):
        label = f"call {number} ({call.kind} {call.path})"
        states = [disk.state(f"before {label}")]
        if call.kind == "W" and len(call.data) > 1:
            half = call._replace(data=call.data[: len(call.data) // 2])
            disk.run(half)  # the whole call then writes over it
            states.append(disk.state(f"half of {label}"))
        disk.run(call)
        for state in states:
            if (digest := state.digest()) not in known:
                known.add(digest)
                yield state
    yield disk.state("end")


def cut(base: dict[str, bytes | None], calls: Sequence[Call]) -> Iterator[State]:
    """Distinct states that a power cut may leave before each call that syncs or names something; last, at the end."""
    disk, known = Disk(base), set()
    for number, call in enumerate([*calls, None]):
        if call is None:
            known.clear()  # an earlier state is a loss at the end
        if call is None or call.kind in "RLUDSA":
            label = "end" if call is None else f"before call {number} ({call.kind} {call.path})"
            for state in disk.after_power_cut(label):
                if (digest := state.digest()) not in known:
                    known.add(digest)
                    yield state
        if call:
            disk.run(call)
