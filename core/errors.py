"""Every error that a user can meet. All rooms can raise them, so they stand in the lowest layer.

    BinocleError
    ├── InputError (ValueError)            an argument or a file that cannot be used
    │   └── NotFoundError (LookupError)    a document that is not in the index
    ├── UnreadableError (ValueError)       a document with unreadable text
    │   └── UnsupportedError           no reader for its format, or no text in it
    ├── ModelNotFoundError (LookupError)   a model that is neither on this machine nor on the hub
    ├── MissingExtraError (ImportError)    an optional dependency, with the pip line
    ├── DeadlineError (TimeoutError)       a search that was not done in its time
    └── StoreError (RuntimeError)          a problem of an index folder
        ├── NoIndexError                   there is no index
        ├── LockedError                    another process is writing
        ├── EncoderMismatchError           the index was built with another encoder
        ├── UntrustedError                 the user did not make this index, and has not allowed it
        └── DamagedError                   a file of it was damaged or changed

A message has one line: the expectation, the actual value, and the remedy.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self


class BinocleError(Exception):
    """Root of the tree: catch this to catch them all."""


class InputError(BinocleError, ValueError):
    """An argument, an option or an input file is wrong: the caller can correct it and try again."""


class NotFoundError(InputError, LookupError):
    """No document of this path or id is in the index, or in the scope that the caller may see; also a LookupError."""


class UnreadableError(BinocleError, ValueError):
    """A document is damaged or encrypted: indexing reports it as failed and goes on with the others."""


class ModelNotFoundError(BinocleError, LookupError):
    """No complete model of this name is on this machine or on the hub; also a LookupError."""


class MissingExtraError(BinocleError, ImportError):
    """An optional package is not installed; the message has the pip command for its extra."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'binocle[{extra}]'")
        self._arguments = package, extra, purpose

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str]]:
        return type(self), self._arguments  # pickle would pass the message alone


class DeadlineError(BinocleError, TimeoutError):
    """A search was not done after the seconds that its caller allowed; also a TimeoutError."""


class StoreError(BinocleError, RuntimeError):
    """An index cannot be read or written; the subclasses name the causes that a program may treat apart."""


class NoIndexError(StoreError):
    """No index was committed in this place; `binocle index FOLDER` creates one."""


class LockedError(StoreError):
    """Another process writes the same files, or has overtaken this writer; `wait` says how long to wait for it."""


class EncoderMismatchError(StoreError):
    """Vectors come from another encoder than the one in use, so they cannot be compared with its own."""


class UntrustedError(StoreError):
    """The index came from elsewhere: until its user says `binocle trust`, it is not written and loads no model."""


class DamagedError(StoreError):
    """A file of an index is missing, cut short or changed, by its checksum, its length or its values."""


class UnsupportedError(UnreadableError):
    """A file without text or without a reader for its format: reported as skipped, not as failed."""


@contextlib.contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn a panic of a library in Rust into a RuntimeError: it is no Exception, and has no class to import."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RuntimeError(first_line(error)) from error


def tensor_errors() -> tuple[type[Exception], ...]:
    """Return the error of safetensors, which a full disk raises in place of OSError; none if nothing imported it."""
    module = sys.modules.get("safetensors")
    return () if module is None else (module.SafetensorError,)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Tell whether torch had too little memory: on a GPU, for an array in main memory, or for an object of C++."""
    return any(words in str(error) for words in ("out of memory", "can't allocate memory", "std::bad_alloc"))


def first_line(error: BaseException, limit: int = 160) -> str:
    """Shorten a foreign library's message to the first of its lines, at most `limit` characters.

    A line that ends in a colon takes the next one with it.
    """
    first, *rest = str(error).splitlines() or [type(error).__name__]
    return (f"{first} {rest[0].strip()}" if rest and first.endswith(":") else first)[:limit]
