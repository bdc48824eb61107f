"""Every error a user can meet, in the lowest layer so that all folders can raise them.

    BinocleError
    ├── InputError (ValueError)            an argument or a file that cannot be used as given
    ├── UnreadableError (ValueError)       one document that no text could be taken from
    │   └── readers.errors.UnsupportedError    because nothing here reads its format
    ├── ModelNotFoundError (LookupError)   an encoder that is neither here nor on the hub
    ├── MissingExtraError (ImportError)    an optional dependency, with the pip line
    └── StoreError (RuntimeError)          what is wrong with an index folder
        ├── NoIndexError                   there is none
        ├── LockedError                    another process is writing
        ├── EncoderMismatchError           it was built with another encoder
        └── DamagedError                   a file in it is not what was written

A message says what was expected, what came, and what to do, in one line.
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
        self._given = package, extra, purpose

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str]]:
        return type(self), self._given  # BaseException would make it anew of the message alone, in another process


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
    """There is no text in such files, or no reader for them: reported as skipped, not as failed."""


def first_line(error: BaseException, limit: int = 160) -> str:
    """Shorten a foreign library's message to the first of its lines, at most `limit` characters."""
    return (str(error).splitlines() or [type(error).__name__])[0][:limit]
