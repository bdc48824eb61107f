"""What a document may say of itself: strings, numbers, booleans, and lists of them."""

from __future__ import annotations

import sys
from datetime import date, time
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """A value as it is kept: a date as text, a scalar of numpy as Python's, a tuple as a list."""
    if isinstance(value, (list, tuple)):
        return [plain(member) for member in value]
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, np.datetime64):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def is_plain(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, (int, float)) and abs(value) <= sys.float_info.max)
