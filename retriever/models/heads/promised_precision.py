"""The promise of a precision: the least probability at which enough labels of held-out texts were right."""

from __future__ import annotations

from ....core.checks import is_real
from ....core.errors import InputError

Precisions = tuple[tuple[float, float], ...]  # probability -> precision of the held-out labels from it on, falling


def are_precisions(value: object) -> bool:
    """Whether a value of JSON is a table of probabilities and precisions."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and all(map(is_real, pair)) for pair in value
    )


def threshold(precisions: Precisions, precision: float, noun: str) -> float:
    """Return the lowest probability that reaches a precision on the held-out texts.

    :param noun: the model that promises it, for messages.
    :raises InputError: when no probability was that precise.
    """
    fitting = [probability for probability, reached in precisions if reached >= precision]
    if not fitting:
        highest = max((reached for _, reached in precisions), default=None)
        known = "it was not measured" if highest is None else f"the highest on held-out rows is {highest:.2f}"
        raise InputError(f"this {noun} does not promise a precision of {precision:g}: {known}")
    return min(fitting)
