"""The open indexes of the process in the background; no other process keeps any."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import BinocleError
from ...core.files import expand_home

if TYPE_CHECKING:
    from ...retriever.retriever import Retriever

_MAX_INDEXES = 4  # indexes open at once


class ColdError(BaseException):
    """Raised for a command that needs a process of its own. No handler of errors takes it for one."""


@dataclass
class _OpenIndex:
    """An open index, and the state of its settings and of the models that it has loaded."""

    retriever: Retriever
    settings: object
    models: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, retriever: Retriever) -> _OpenIndex:
        return cls(retriever, _settings(retriever))

    def is_current(self) -> bool:
        """Whether a new process would open the same."""
        try:
            models = {name: _files(name) for name in self.retriever.model_names}
            known = {name: self.models.setdefault(name, files) for name, files in models.items()}
            return known == models and self.settings == _settings(self.retriever)
        except (BinocleError, OSError):
            return False

    def note_models(self) -> None:
        """Note the state of the models that the last command loaded."""
        for name in self.retriever.model_names:
            if name not in self.models:
                self.models[name] = _files(name)


class Retrievers:
    """Open indexes by path and model. Each stays open while its place, its rights and its models are the same.

    :param seconds: to stay after the last command.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.last = time.monotonic()
        self._open: dict[tuple[str, str | None], _OpenIndex] = {}

    def get(self, path: Path, model: str | None) -> Retriever:
        """Open an index, or return the open one."""
        from ...retriever.retriever import Retriever

        key = str(expand_home(path).absolute()), model
        entry = self._open.pop(key, None)
        if entry is None or not entry.is_current():
            entry = _OpenIndex.of(Retriever.open(path, model=model))
        self._open[key] = entry
        for oldest in list(self._open)[:-_MAX_INDEXES]:
            del self._open[oldest]
        return entry.retriever

    def end_command(self) -> None:
        """Note the end of a command: the process stays from now on, and a later change of a model is noticed."""
        self.last = time.monotonic()
        for entry in self._open.values():
            with contextlib.suppress(OSError):  # the model is gone: the next command opens the index anew
                entry.note_models()


def _settings(retriever: Retriever) -> object:
    """The identity of an index, which changes when another replaces it, or the user's trust in it changes."""
    file = retriever.path / "settings.json"
    return _state(file), retriever.path.resolve(), retriever.is_still_trusted()


def _files(name: str) -> object:
    """The state of the files of a model that is a folder; the files of a model in a cache never change."""
    return [_state(Path(root) / file) for root, _, files in sorted(os.walk(name)) for file in sorted(files)]


def _state(file: Path) -> tuple[str, int, int, int, int]:
    state = file.stat()
    return str(file), state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


RETRIEVERS: Retrievers | None = None  # of this process, if it runs in the background


def open_kept(path: Path, model: str | None, ray: str | None) -> Retriever | None:
    """Return the index that is open already; None in every other process.

    :raises ColdError: when it cannot be kept: on a cluster or on object storage.
    """
    if RETRIEVERS is None:
        return None
    if ray is not None or str(path).startswith("s3:"):
        raise ColdError
    return RETRIEVERS.get(path, model)


def leave_to_a_process_of_its_own() -> None:
    """:raises ColdError: in the process in the background, for a command that starts another program."""
    if RETRIEVERS is not None:
        raise ColdError
