"""A number that an index can be built or searched with: its range, and what to try in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .vector_index import Parameters


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    doc: str
    low: int
    high: int
    default: int | None = None  # None: it follows from the number of vectors or their dimension

    def check(self, value: Any) -> None:
        if type(value) is not int or not self.low <= value <= self.high:
            raise InputError(f"{self.name} is {self.doc}, a whole number from {self.low} to {self.high}, not {value!r}")

    def grid(self, high: int | None = None) -> list[int]:
        """Values worth trying, ascending: two to every doubling, up to `high`."""
        top, values, value = min(self.high, high or self.high), [], float(max(1, self.low))
        while value <= top:
            values.append(round(value))
            value *= 2**0.5
        return sorted(set(values))


@dataclass(frozen=True, slots=True)
class TextParameter(Parameter):
    """One that is a text, of which there is no grid."""

    low: int = 1
    high: int = 200

    def check(self, value: Any) -> None:
        if not isinstance(value, str) or not self.low <= len(value) <= self.high:
            raise InputError(f"{self.name} is {self.doc}, not {value!r}")

    def grid(self, high: int | None = None) -> list[int]:  # noqa: ARG002
        return []


def check_all(what: str, known: Sequence[Parameter], given: Parameters) -> None:
    by_name = {parameter.name: parameter for parameter in known}
    for name, value in given.items():
        if name not in by_name:
            raise InputError(f"{what} has no parameter {name!r}: expected {_listed(by_name)}")
        if value is not None or by_name[name].default is not None:
            by_name[name].check(value)


def with_defaults(known: Iterable[Parameter], given: Parameters) -> dict[str, Any]:
    return {parameter.name: given.get(parameter.name, parameter.default) for parameter in known}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
