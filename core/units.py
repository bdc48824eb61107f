"""Quantities as people read them."""

from __future__ import annotations


def format_bytes(count: float) -> str:
    """Bytes as people read them, to four digits: `412.3 KB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1_000:
            return f"{count:.4g} {unit}"
        count /= 1_000
    return f"{count:.4g} TB"
