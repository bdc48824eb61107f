"""Every error that a user can meet. All rooms can raise them, so they stand in the lowest layer.

    BinocleError
    ├── InputError (ValueError)            an argument or a file that cannot be used
    ├── UnreadableError (ValueError)       a document with unreadable text
    │   └── UnsupportedError           no reader for its format, or no text in it
    ├── ModelNotFoundError (LookupError)   a model that is neither on this machine nor on the hub
    ├── MissingExtraError (ImportError)    an optional dependency, with the pip line
    └── StoreError (RuntimeError)          a problem of an index folder
        ├── NoIndexError                   there is no index
        ├── LockedError                    another process is writing
        ├── EncoderMismatchError           the index was built with another encoder
        └── DamagedError                   a file of it was damaged or changed

A message has one line: the expectation, the actual value, and the remedy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class BinocleError(Exception):
    """Root of the tree: catch this to catch them all."""


class InputError(BinocleError, ValueError):
    pass


class UnreadableError(BinocleError, ValueError):
    pass


class ModelNotFoundError(BinocleError, LookupError):
    pass


class MissingExtraError(BinocleError, ImportError):
    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'binocle[{extra}]'")
        self._arguments = package, extra, purpose

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str]]:
        return type(self), self._arguments  # pickle would pass the message alone


class StoreError(BinocleError, RuntimeError):
    pass


class NoIndexError(StoreError):
    pass


class LockedError(StoreError):
    pass


class EncoderMismatchError(StoreError):
    pass


class DamagedError(StoreError):
    pass


class UnsupportedError(UnreadableError):
    """A file without text or without a reader for its format: reported as skipped, not as failed."""


def first_line(error: BaseException, limit: int = 160) -> str:
    """Shorten a foreign library's message to the first of its lines, at most `limit` characters."""
    return (str(error).splitlines() or [type(error).__name__])[0][:limit]
