"""What FAISS says when it cannot do something, in one line."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def refusal(doing: str) -> Iterator[None]:
    """Have FAISS's errors say that it cannot do this."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        raise InputError(f"FAISS cannot {doing}: {reason(error)}") from None


def reason(error: Exception) -> str:
    """FAISS's message without the place in its source."""
    first = re.sub(r"^Error in .* at \S+:[0-9]+: (Error: )?", "", str(error).split("\n", 1)[0])
    return first.split(" failed: ")[-1][:160]
