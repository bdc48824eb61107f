"""Write a formula of MathML on one line, with the signs of `equations`: `x=(-b±√(b^2-4ac))/2a`.

Only presentation markup counts: https://www.w3.org/TR/mathml-core/. Annotations repeat it in another language.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .equations import grouped
from .package import local_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SKIPPED = frozenset({"annotation", "annotation-xml", "mphantom", "mprescripts", "none"})
_INVISIBLE = str.maketrans("", "", "\u2061\u2062\u2063\u2064")  # the signs of an application, a product and the like
_OPERATORS = frozenset("∑∏∐∫∬∭∮⋃⋂⋁⋀⨁⨂")  # the text behind them and their limits is their argument


def formula(element: Any) -> str:
    """The text of a formula or of a part of it."""
    name = local_name(element)
    if not name or name in _SKIPPED:
        return ""
    if not len(element):
        return " ".join((element.text or "").translate(_INVISIBLE).split())
    write = _WRITERS.get(name)
    return write(element) if write else _joined(map(formula, element))


def _joined(texts: Iterable[str]) -> str:
    """Texts in a row, with a space between two names: `2 sin x`, but `4ac`."""
    row = ""
    word = ""
    for text in filter(None, texts):
        is_apart = row[-1:].isalnum() and text[0].isalnum() and (_is_name(word) or _is_name(text))
        row += " " * is_apart + text
        word = text
    return row


def _is_name(text: str) -> bool:
    return len(text) > 1 and text.isalpha()


def _arguments(element: Any, count: int) -> list[str]:
    """The texts of the children, as many as the element has by its definition."""
    texts = [formula(child) for child in element if local_name(child) not in _SKIPPED]
    return [*texts, *[""] * count][: max(count, len(texts))]


def _fraction(element: Any) -> str:
    above, below, *_ = map(grouped, _arguments(element, 2))
    has_bar = element.get("linethickness", "1").strip("0.") not in {"", "pt", "px", "em"}  # a binomial coefficient
    return f"{above}{'/' if has_bar else '¦'}{below}"


def _root(element: Any) -> str:
    radicand, degree, *_ = _arguments(element, 2)
    return f"√({degree}&{radicand})"


def _scripts(*signs: str) -> Callable[[Any], str]:
    """:param signs: the sign of each argument behind the base."""

    def write(element: Any) -> str:
        base, *scripts = _arguments(element, 1 + len(signs))
        if element.get("accent") == "true":  # a bar or a hat on a name
            return base
        limits = "".join(sign + grouped(text) for sign, text in zip(signs, scripts, strict=False) if text)
        return grouped(base) + limits + " " * (base in _OPERATORS)

    return write


def _fenced(element: Any) -> str:
    separators = element.get("separators", ",").strip()[:1]
    return f"{element.get('open', '(')}{separators.join(_arguments(element, 0))}{element.get('close', ')')}"


_WRITERS: dict[str, Callable[[Any], str]] = {
    "mfrac": _fraction,
    "msqrt": lambda element: f"√{grouped(_joined(map(formula, element)))}",
    "mroot": _root,
    **dict.fromkeys(("msub", "munder"), _scripts("_")),
    **dict.fromkeys(("msup", "mover"), _scripts("^")),
    **dict.fromkeys(("msubsup", "munderover"), _scripts("_", "^")),
    "mfenced": _fenced,
    "mtable": lambda element: "; ".join(_arguments(element, 0)),
    "mtr": lambda element: ", ".join(_arguments(element, 0)),
}
