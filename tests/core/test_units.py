from __future__ import annotations

import pytest

from binocle.core.units import count_of


@pytest.mark.parametrize(
    ("number", "noun", "expected"),
    [
        (1, "query", "1 query"),
        (0, "query", "0 queries"),
        (2_000, "held-out query", "2,000 held-out queries"),
        (2, "key", "2 keys"),
        (1, "passage", "1 passage"),
        (3, "passage", "3 passages"),
    ],
)
def test_a_noun_agrees_with_its_number(number, noun, expected):
    assert count_of(number, noun) == expected
