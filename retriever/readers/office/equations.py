"""Write an equation of Office Math (OMML) on one line: `f(x)=∑_(n=1)^∞ (x+a)^n/√(n!)`.

The signs are those of Sargent, 2016, "UnicodeMath: A Nearly Plain-Text Encoding of Mathematics", Unicode Technical
Note 28.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .package import local_name, property_of

if TYPE_CHECKING:
    from collections.abc import Callable

_SKIPPED = frozenset({"del", "moveFrom", "ctrlPr"})
_SINGLE = re.compile(r"[-+−]?[\w.,]+|.", re.DOTALL)  # no parentheses around it: a name, a number or a sign
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def equation(element: Any) -> str:
    """The text of an equation or of a part of it."""
    name = local_name(element)
    if name == "t":
        return element.text or ""
    if name in _SKIPPED or name.endswith("Pr"):
        return ""
    write = _WRITERS.get(name)
    return write(element) if write else "".join(map(equation, element))


def _equation(element: Any) -> str:
    before = element.getprevious()
    is_next = before is not None and local_name(before) == "oMath"  # of several in one paragraph
    return " " * is_next + "".join(map(equation, element))


def _arguments(element: Any, name: str) -> list[str]:
    return [equation(child) for child in element if local_name(child) == name]


def _argument(element: Any, name: str) -> str:
    return "".join(_arguments(element, name))


def grouped(text: str) -> str:
    """A text as one operand: in parentheses, unless it is a single name or sign, or has brackets of its own."""
    return text if not text or _SINGLE.fullmatch(text) or _is_bracketed(text) else f"({text})"


def _is_bracketed(text: str) -> bool:
    """Whether the first character opens a bracket that the last one closes."""
    depth = 0
    opening, closing = text[0], _CLOSING.get(text[0], "")
    for position, character in enumerate(text):
        depth += (character == opening) - (character == closing)
        if not depth:
            return bool(closing) and position == len(text) - 1
    return False


def _property(element: Any, name: str, default: str) -> str:
    """The sign in a property: none if it is there without one, the default if it is not there."""
    sign = property_of(element, f"{local_name(element)}Pr", name)
    return default if sign is None else sign


def _fraction(element: Any) -> str:
    sign = "¦" if _property(element, "type", "bar") == "noBar" else "/"  # a binomial coefficient has no bar
    return f"{grouped(_argument(element, 'num'))}{sign}{grouped(_argument(element, 'den'))}"


def _scripts(element: Any) -> str:
    below, above = (grouped(_argument(element, name)) for name in ("sub", "sup"))
    return (f"_{below}" if below else "") + (f"^{above}" if above else "")


def _scripted(element: Any) -> str:
    return grouped(_argument(element, "e")) + _scripts(element)


def _operator(element: Any) -> str:
    return f"{_property(element, 'chr', '∫')}{_scripts(element)} {_argument(element, 'e')}"


def _root(element: Any) -> str:
    degree, radicand = _argument(element, "deg"), _argument(element, "e")
    return f"√({degree}&{radicand})" if degree else f"√{grouped(radicand)}"


def _delimited(element: Any) -> str:
    opening, separator, closing = (
        _property(element, name, sign) for name, sign in (("begChr", "("), ("sepChr", "|"), ("endChr", ")"))
    )
    return f"{opening}{separator.join(_arguments(element, 'e'))}{closing}"


def _function(element: Any) -> str:
    name, argument = _argument(element, "fName"), _argument(element, "e")
    is_apart = argument[:1] in _CLOSING or name.endswith("\u2061")  # the invisible sign of an application
    return name + ("" if is_apart else " ") + argument


def _limit(sign: str) -> Callable[[Any], str]:
    return lambda element: f"{_argument(element, 'e')}{sign}{grouped(_argument(element, 'lim'))}"


_WRITERS: dict[str, Callable[[Any], str]] = {
    "oMath": _equation,
    "f": _fraction,
    **dict.fromkeys(("sSub", "sSup", "sSubSup"), _scripted),
    "sPre": lambda element: f"{_scripts(element)} {_argument(element, 'e')}",
    "nary": _operator,
    "rad": _root,
    "d": _delimited,
    "func": _function,
    "limLow": _limit("_"),
    "limUpp": _limit("^"),
    "eqArr": lambda element: "; ".join(_arguments(element, "e")),
    "m": lambda element: "; ".join(_arguments(element, "mr")),
    "mr": lambda element: ", ".join(_arguments(element, "e")),
}
