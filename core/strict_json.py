"""JSON for other programs: their readers refuse NaN and Infinity, and Python writes them."""

from __future__ import annotations

import json
import math
from typing import Any


def strict_json(value: Any, **options: Any) -> str:
    """Write a value as JSON. It has neither NaN nor infinity: they are null.

    :param options: of `json.dumps`.
    """
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(json.loads(json.dumps(value))), **options)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
