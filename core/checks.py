"""Check the settings of a run before it starts, and values that come from files.

A setting of None means that the run chooses the value; the checks skip it.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SettingsT = TypeVar("SettingsT", bound=Any)  # a dataclass
_SHOWN = 60  # characters of a wrong value


def above_0(settings: Any, *names: str) -> None:
    """:raises InputError: for the first setting that is not a number above 0, or not whole though its type is int."""
    for name, number in _values(settings, names):
        is_number, noun = _kind(settings, name)
        if not is_number(number) or number <= 0:
            raise InputError(f"{_spelled(name)} is a {noun} above 0, not {number!r:.{_SHOWN}}")


def from_0(settings: Any, *names: str) -> None:
    """:raises InputError: for the first setting that is not a number from 0, or not whole though its type is int."""
    for name, number in _values(settings, names):
        is_number, noun = _kind(settings, name)
        if not is_number(number) or number < 0:
            raise InputError(f"{_spelled(name)} is a {noun} from 0, not {number!r:.{_SHOWN}}")


def share(settings: Any, *names: str) -> None:
    """:raises InputError: for the first setting that is not from 0 to below 1."""
    for name, number in _values(settings, names):
        if not is_real(number) or not 0 <= number < 1:
            raise InputError(f"{_spelled(name)} is a share from 0 to below 1, not {number!r:.{_SHOWN}}")


def seed(settings: Any) -> None:
    """:raises InputError: for a seed that numpy does not take."""
    from_0(settings, "seed")
    if settings.seed >= 1 << 32:
        raise InputError(f"seed is a whole number below 2**32, which is all that numpy takes, not {settings.seed!r}")


def max_length(settings: Any, minimum: int) -> None:
    """:raises InputError: for a length that is no whole number of tokens from `minimum`."""
    for _, number in _values(settings, ("max_length",)):
        if not is_whole(number, minimum):
            raise InputError(
                f"max length is in tokens, special ones included: at least {minimum}, not {number!r:.{_SHOWN}}"
            )


def left_out(settings: Any, names: tuple[str, ...], why: str) -> None:
    """:raises InputError: for the first of these settings that differs from its default, although it has no effect."""
    for field in fields(settings):
        if field.name in names and getattr(settings, field.name) != field.default:
            raise InputError(f"{_spelled(field.name)} is {why}")


def with_python_numbers(settings: SettingsT) -> SettingsT:
    """Return settings, which JSON will hold, with Python's numbers for numpy's."""
    import numpy as np  # not for a search

    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    numbers = {name: value.item() for name, value in values.items() if isinstance(value, np.generic)}
    return replace(settings, **numbers) if numbers else settings


def _kind(settings: Any, name: str) -> tuple[Callable[[Any], bool], str]:
    """Return the check of a number for the annotation of a setting, and the words for such a number in messages."""
    [annotation] = (field.type for field in fields(settings) if field.name == name)
    if str(annotation).startswith("int"):
        return lambda value: is_whole(value, 0), "whole number"
    return is_real, "number"


def _values(settings: Any, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    return [(name, number) for name in names if (number := getattr(settings, name)) is not None]


def _spelled(name: str) -> str:
    return name.replace("_", " ")


def listed(values: Any, label: str) -> list[Any]:
    """Return the members of a caller's list.

    :param label: names them in the message.
    :raises InputError: when it is a text, or no list.
    """
    if isinstance(values, (str, bytes)):
        raise InputError(f"expected a list of {label}, not {values!r:.{_SHOWN}}")
    try:
        return list(values)
    except TypeError:
        raise InputError(f"expected a list of {label}, not {values!r:.{_SHOWN}}") from None


def precision_of(value: Any) -> float | None:
    """Return the share of right labels that a caller wants promised; None promises nothing.

    :raises InputError: when it is not above 0 and below 1.
    """
    if value is None:
        return None
    if not is_real(value) or not 0 < value < 1:
        raise InputError(
            f"precision is the promised share of right labels, above 0 and below 1, not {value!r:.{_SHOWN}}"
        )
    return float(value)


def is_whole(value: Any, minimum: int) -> bool:
    """Whether a value is a whole number from `minimum`, Python's or an array library's, and no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= minimum


def is_real(value: Any) -> bool:
    """Whether a value is a finite real number, Python's or an array library's, and no bool.

    It is False for a whole number that is too large for a float.
    """
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def is_flag(value: Any) -> bool:
    """Whether a value is True or False, Python's or numpy's."""
    if isinstance(value, bool):
        return True
    import numpy as np  # only for the error or for numpy's own

    return isinstance(value, np.bool_)


def check_flags(**flags: Any) -> None:
    """:raises InputError: naming the first value that is neither True nor False: the text "no" would count as True."""
    for name, value in flags.items():
        if not is_flag(value):
            raise InputError(f"{name} is True or False, not {value!r:.{_SHOWN}}")


def describe_first_wrong(settings: Any, rules: Mapping[str, tuple[bool, str]]) -> str:
    """Describe the first wrong setting: its name, its value and the expected one. Return "" if all are right.

    :param rules: maps each setting to True if its value is right, and to the words for the expected value.
    """
    for name, (is_right, expected) in rules.items():
        if not is_right:
            value = repr(getattr(settings, name))
            return f"{name} is {value if len(value) <= _SHOWN else value[:_SHOWN] + '…'}, expected {expected}"
    return ""
