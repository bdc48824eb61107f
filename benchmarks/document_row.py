"""The columns of a synthetic document that are the same in all."""

from __future__ import annotations

ROW = {
    "source": "added",
    "state": "indexed",
    "reason": "",
    "size": 1,
    "mtime_ns": 0,
    "settled": False,
    "sha256": "",
    "format": "text",
    "title": "",
    "metadata": "{}",
    "text": "",
}
