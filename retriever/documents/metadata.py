"""Metadata values: strings, numbers, booleans, and lists of them."""

from __future__ import annotations

import sys
from datetime import date, time
from typing import Any

import numpy as np

from ...core.errors import InputError


def plain(value: Any) -> Any:
    """Convert a value for storage: a date to text, a numpy scalar to Python's, a tuple to a list.

    :raises InputError: for lists in each other that are too deep for Python.
    """
    if isinstance(value, (list, tuple)):
        try:
            return [plain(member) for member in value]
        except RecursionError:
            raise InputError("a value is a list with hundreds of others in each other: expected fewer") from None
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, np.datetime64):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def is_plain(value: object) -> bool:
    """Whether the value is a string, a boolean, or a number that fits a float."""
    return isinstance(value, str) or (isinstance(value, (int, float)) and abs(value) <= sys.float_info.max)
