"""Random filters over hostile values against a second evaluation, document by document."""

from __future__ import annotations

import json
import random
from datetime import date, datetime

import pyarrow as pa
import pytest

from binocle.retriever.store.filters.condition_masks import evaluate
from binocle.retriever.store.filters.filter import F, Filter
from binocle.retriever.store.filters.sorted_values import DocumentColumns
from binocle.retriever.store.filters.where import parse

TEXTS = ["", " ", "*", "a*b", "axb", "[", "[a]", "a", "A", "?", '"', "'", "\\", "1", "1.0", "true", "None", "null", "é"]
TEXTS += ["e\u0301", "\u0000", "a\nb", "t1 or tenant=t2", "$", "%", "天気", "\U0001f600", "ab", "2026-01-01", "z" * 300]
NUMBERS = [0, 1, -1, 2, 1.0, 0.5, -0.0, 1e300, 10**18, 10**18 + 1, 2**53, 2**53 + 1, float(2**53), 10**30, 10**30 + 1]
VALUES = [*TEXTS, *NUMBERS, True, False]
DATES = [date(2026, 1, 1), date(2025, 12, 31), datetime(2026, 1, 1, 8, 30)]  # noqa: DTZ001
KEYS = ["tenant", "n", "tags", "path", "a.b", "any key", "é", "metadata.x", ""]
COUNT = 120


def metadata(draw):
    record = {}
    for key in KEYS:
        kind = draw.random()
        if kind < 0.5:
            record[key] = draw.choice(VALUES)
        elif kind < 0.7:
            record[key] = [draw.choice(VALUES) for _ in range(draw.randrange(4))]
    return record


def exact_filter(draw, depth=0):
    """A filter, and a function that tells whether the metadata of a document pass it."""
    kind = draw.randrange(12) if depth < 4 else draw.randrange(3, 12)
    if kind < 2:
        parts = [exact_filter(draw, depth + 1) for _ in range(draw.randrange(2, 4))]
        filters, tests = zip(*parts, strict=True)
        built = filters[0]
        for part in filters[1:]:
            built = built & part if kind else built | part
        return built, lambda record: (all if kind else any)(test(record) for test in tests)
    if kind == 2:
        built, test = exact_filter(draw, depth + 1)
        return ~built, lambda record: not test(record)
    key = draw.choice([key for key in KEYS if key])
    built = F.metadata[key] if key in ("path", "metadata.x") or draw.random() < 0.2 else F[key]
    return comparison(draw, built, lambda record: members(record.get(key)), kind)


def comparison(draw, built, values_of, kind):  # noqa: PLR0911 - one for each operator
    value = draw.choice([*VALUES, *DATES])
    stored = value.isoformat() if isinstance(value, date) else value
    ordered = draw.choice([*TEXTS, *NUMBERS])
    others = [draw.choice([*VALUES, None]) for _ in range(draw.randrange(4))]
    prefix = draw.choice([*TEXTS, "t", "z" * 9])
    low, high = draw.choice([*TEXTS, *NUMBERS]), draw.choice([*TEXTS, *NUMBERS])

    def some(test):
        return lambda record: any(map(test, values_of(record)))

    if kind == 3:
        return built == value, some(lambda one: same(one, stored))
    if kind == 4:
        return built != value, lambda record: not some(lambda one: same(one, stored))(record)
    if kind == 5:
        in_order = [lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b]
        compare = draw.choice(in_order)
        return compare(built, ordered), some(lambda one: comparable(one, ordered) and compare(one, ordered))
    if kind == 6:
        passes = some(lambda one: any(other is not None and same(one, other) for other in others))
        return built.is_in(others), lambda record: passes(record) or (None in others and not values_of(record))
    if kind == 7:
        return built.exists(), lambda record: bool(values_of(record))
    if kind == 8:
        return built.startswith(prefix), some(lambda one: isinstance(one, str) and one.startswith(prefix))
    if kind == 9:
        return built.between(low, high), some(
            lambda one: comparable(one, low) and comparable(one, high) and low <= one <= high
        )
    if kind == 10:
        return built.contains(value), some(lambda one: same(one, stored))
    return built == None, lambda record: not values_of(record)  # noqa: E711 - a value like any other


def members(value):
    return value if isinstance(value, list) else [] if value is None else [value]


def kind_of(value):
    return "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def same(one, other):
    return kind_of(one) == kind_of(other) and one == other


def comparable(one, bound):
    return kind_of(one) == kind_of(bound) != "boolean"


def check(seed, filters):
    draw = random.Random(seed)
    records = [metadata(draw) for _ in range(COUNT)]
    rows = [
        {
            "path": f"{number}",
            "source": draw.choice(["file", "added"]),
            "size": number,
            "mtime_ns": 0,
            "format": "text",
            "title": "",
            "metadata": json.dumps(record),
        }
        for number, record in enumerate(records)
    ]
    documents = DocumentColumns(pa.Table.from_pylist(rows))
    passed = 0
    for _ in range(filters):
        where, passes = exact_filter(draw)
        mask = evaluate(where, documents).tolist()
        assert mask == [passes(record) for record in records], where
        again = Filter.from_json(json.loads(json.dumps(where.to_json())))
        assert again == where
        passed += any(mask) and not all(mask)
    return passed


def test_random_filters_pass_what_a_second_evaluation_passes():
    assert check(0, 400) > 100


@pytest.mark.slow
def test_ten_thousand_random_filters_pass_what_a_second_evaluation_passes():
    assert sum(check(seed, 200) for seed in range(1, 51)) > 2_500


def quoted(value):
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def spoken(draw, depth=0):
    """A filter as people write it, and the same built from conditions that were read one by one."""
    kind = draw.randrange(10) if depth < 4 else 9
    if kind < 4:
        word, join = draw.choice([(" and ", lambda a, b: a & b), (" OR ", lambda a, b: a | b)])
        texts, filters = zip(*(spoken(draw, depth + 1) for _ in "ab"), strict=True)
        return f"({texts[0]}){word}({texts[1]})", join(*filters)
    if kind == 4:
        text, built = spoken(draw, depth + 1)
        return f"not ({text})", ~built
    key, value = draw.choice(["tenant", "n", "tags", "é"]), draw.choice(TEXTS)
    if kind == 5:
        other = draw.choice(TEXTS)
        text = f"{key} {draw.choice(['in', 'IN'])} ({quoted(value)}, {quoted(other)})"
        return text, parse(f"{key}={quoted(value)}") | parse(f"{key}={quoted(other)}")
    text = f"{key} {draw.choice(['=', '!=', '<', '>='])} {quoted(value)}"
    return text, parse(text)


def test_the_language_joins_conditions_as_programs_do():
    draw = random.Random(5)
    for _ in range(300):
        text, built = spoken(draw)
        if len(text) <= 10_000:
            assert parse(text) == built, text
