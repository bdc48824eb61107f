"""What settings of a training run can be: each that cannot is told in one line, before anything is made."""

from __future__ import annotations

import math
from dataclasses import fields
from numbers import Integral, Real
from typing import Any

from .errors import InputError


def above_0(settings: Any, *names: str) -> None:
    """:raises InputError: for the first that is not; None stands for what the run chooses, here and below."""
    for name, number in _given(settings, names):
        if not math.isfinite(number) or number <= 0:
            raise InputError(f"{_said(name)} is a number above 0, not {number}")


def from_0(settings: Any, *names: str) -> None:
    """:raises InputError: for the first that is not."""
    for name, number in _given(settings, names):
        if not math.isfinite(number) or number < 0:
            raise InputError(f"{_said(name)} is a number from 0, not {number}")


def share(settings: Any, *names: str) -> None:
    """:raises InputError: for the first that is not from 0 to below 1."""
    for name, number in _given(settings, names):
        if not 0 <= number < 1:
            raise InputError(f"{_said(name)} is a share from 0 to below 1, not {number}")


def seed(settings: Any) -> None:
    """:raises InputError: for a seed that cannot be drawn from."""
    from_0(settings, "seed")
    if settings.seed >= 1 << 32:
        raise InputError(f"seed is a number below 2**32, which is all that numpy takes, not {settings.seed}")


def left_out(settings: Any, names: tuple[str, ...], why: str) -> None:
    """:raises InputError: for the first that is given, although nothing would come of it."""
    for field in fields(settings):
        if field.name in names and getattr(settings, field.name) != field.default:
            raise InputError(f"{_said(field.name)} is {why}")


def _given(settings: Any, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    return [(name, number) for name in names if (number := getattr(settings, name)) is not None]


def _said(name: str) -> str:
    return name.replace("_", " ")


def is_count(value: Any) -> bool:
    """Whether a value from a file is a whole number that fits into an int64."""
    return type(value) is int and 0 <= value < 2**62


def is_whole(value: Any, minimum: int) -> bool:
    """Whether a value is a whole number, Python's or an array library's, from `minimum`; a bool is none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= minimum


def is_real(value: Any) -> bool:
    """Whether a value is a finite real number, Python's or an array library's; a bool is none."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
