"""The one way of not reading a file that is nobody's fault."""

from __future__ import annotations

from ...indexes.errors import UnreadableError


class UnsupportedError(UnreadableError):
    """There is no text in such files, or no reader for them: reported as skipped, not as failed."""
