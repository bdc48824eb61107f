"""Format quantities for people."""

from __future__ import annotations

import re


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun, which may be several words: `1 passage`, `2,000 held-out queries`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{number:,} {noun}s"


def format_bytes(count: float) -> str:
    """Format a number of bytes with four digits: `412.3 KB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1_000:
            return f"{count:.4g} {unit}"
        count /= 1_000
    return f"{count:.4g} TB"
