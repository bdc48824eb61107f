"""Write the numbers of lists (4, d, iv). In HTML and office files the program that shows the list writes them."""

from __future__ import annotations

_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"),
    (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
_MAX_ROMAN, _MAX_LETTERS = 3_999, 780


def numeral(number: int, form: str) -> str:
    """Write a number as a letter (form "a" or "A"), in Roman numerals ("i" or "I"), or else in digits.

    HTML and OpenDocument name the forms so. Letters go from a to z, and on from aa to zz.
    """
    text = str(number)
    if form in ("a", "A") and 0 < number <= _MAX_LETTERS:
        text = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
    elif form in ("i", "I") and 0 < number <= _MAX_ROMAN:
        text = ""
        for value, sign in _ROMAN:
            text += sign * (number // value)
            number %= value
    return text.upper() if form.isupper() else text
