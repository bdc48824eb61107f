"""Format quantities for people."""

from __future__ import annotations


def format_bytes(count: float) -> str:
    """Format a number of bytes with four digits: `412.3 KB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1_000:
            return f"{count:.4g} {unit}"
        count /= 1_000
    return f"{count:.4g} TB"
