"""Rows fitted to the shape of the first: every value checked, by one method for each kind of label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...core.errors import InputError
from ...core.words import encodable
from .columns import TRUTH, WANTED_SCORES, Columns, Shape, empty, shown, word

if TYPE_CHECKING:
    from collections.abc import Iterator

    Row = dict[str, Any]

_LARGEST = float(np.finfo(np.float32).max)
_LABEL: dict[Shape, pa.DataType] = {  # the type of the column, in shapes that have it
    **dict.fromkeys((Shape.LABELLED, Shape.CLASSED, Shape.GROUPED), pa.int64()),
    Shape.SCORED: pa.float32(),
    Shape.GRADED: pa.list_(pa.float32()),
}


class RowValidator:
    """Fits rows to the shape of the first one."""

    def __init__(self, where: str, row: Row) -> None:
        """:raises InputError: when that one is no training data."""
        self.columns = Columns.of(where, row)
        self.shape = self.columns.shape
        self.classes: dict[str, int] = {}
        self.low, self.high = float("inf"), float("-inf")
        self._width = 0  # negatives a row has
        self._graded = False  # whether a number in `label` is written with a fraction
        self._odd: tuple[str, Any] | None = None  # the first of them that is neither 0 nor 1, and where it is
        self.texts = self._names(where, row)

    @property
    def grouped(self) -> bool:
        """Whether rows say which document they are from."""
        return "group" in self.columns.named

    def schema(self) -> pa.Schema:
        fields = [(name, pa.string()) for name in self.texts]
        if self.shape in _LABEL:
            fields.append(("label", _LABEL[self.shape]))
        if self.grouped:
            fields.append(("group", pa.string()))
        return pa.schema(fields)

    def fit(self, where: str, row: Row) -> list[Row]:
        """What the row gives: one row, or one for each positive where it has a list of them."""
        self.columns.check(where, row)
        one_text = self.shape in (Shape.TEXTS, Shape.GROUPED)
        made = [self._alone(where, row)] if one_text else list(self._pairs(where, row))
        if self.grouped:
            group = self._group(where, row)
            for one in made:
                one["group"] = group
        return made

    def tells_apart(self, source: str) -> None:
        """:raises InputError: when every row has the same score, label or class."""
        if self.low == self.high or len(self.classes) == 1:
            every = repr(next(iter(self.classes))) if self.classes else f"{self.low:g}"
            names = ("class",) if self.shape is Shape.GROUPED else ("score", "label")
            column = next(self.columns.named[name] for name in names if name in self.columns.named)
            raise InputError(f"{source} has {every} in {column!r} in every row: nothing can be told apart by it")

    def decides(self) -> bool:
        """Whether numbers in `label`, taken for scores until all were seen, are labels: 0 or 1 every one.

        :raises InputError: when they are neither that nor plainly scores, which have fractions or go beyond 2.
        """
        if not self.columns.undecided or (self._odd and (self._graded or self.high > 2)):
            return False
        if self._odd:
            (where, value), column = self._odd, self.columns.named["label"]
            raise InputError(
                f"{where}: expected 0 or 1 in {column!r}, but {shown(value)} came, which may be a class or a score: "
                "call the texts premise and hypothesis for classes, or the column score for scores"
            )
        self.shape = Shape.LABELLED
        return True

    def _names(self, where: str, row: Row) -> tuple[str, ...]:
        """What the columns of texts are called."""
        if self.shape in (Shape.SCORED, Shape.LABELLED, Shape.CLASSED):
            return ("sentence1", "sentence2")
        if self.shape in (Shape.TEXTS, Shape.GROUPED):
            return ("text",)
        self._width = len(self._negatives(where, row))
        if self.shape is Shape.GRADED and not self._width:
            raise InputError(f"{where}: has a teacher's scores but no negative: expected one at least beside it")
        negatives = ["negative"] if self._width == 1 else [f"negative_{n + 1}" for n in range(self._width)]
        return ("query", "positive", *negatives)

    def _alone(self, where: str, row: Row) -> Row:
        """A row of one text."""
        column = self.columns.named["text"]
        made: Row = {"text": self._text(where, column, row.get(column))}
        return made | ({"label": self._class(where, row)} if self.shape is Shape.GROUPED else {})

    def _pairs(self, where: str, row: Row) -> Iterator[Row]:
        """A row of two texts and more, for each of the second."""
        one, two = self.columns.one, self.columns.two
        first, given = self._text(where, one, row.get(one)), row.get(two)
        seconds = (given or [None]) if isinstance(given, (list, tuple)) else [given]
        for place, second in enumerate(seconds):
            texts = first, self._text(where, two, second), *self._negatives(where, row)
            made: Row = dict(zip(self.texts, texts, strict=True))
            if self.shape is Shape.SCORED:
                made["label"] = self._label(where, row) if self.columns.undecided else self._score(where, row)
            elif self.shape is Shape.CLASSED:
                made["label"] = self._class(where, row)
            elif self.shape is Shape.GRADED:
                made["label"] = self._scores(where, row, place)
            yield made

    def _text(self, where: str, column: str, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(where, "a text", column, value)
        return encodable(value)

    def _negatives(self, where: str, row: Row) -> list[str]:
        if self.shape not in (Shape.TRIPLETS, Shape.GRADED):
            return []
        column, numbered = self.columns.named.get("negative"), self.columns.negatives
        if numbered:
            given = [(name, row.get(name)) for name in numbered]
        elif column is None:
            given = []
        else:
            value = row.get(column)
            given = [(column, one) for one in (value if isinstance(value, (list, tuple)) else [value])]
        texts = [self._text(where, *one) for one in given]
        if self._width and len(texts) < self._width:
            raise InputError(
                f"{where}: has {len(texts)} negatives, {self.columns.first} had {self._width}: give each as many"
            )
        return texts[: self._width or None]

    def _group(self, where: str, row: Row) -> str:
        """The document that a row is from."""
        column = self.columns.named["group"]
        value = row.get(column)
        if empty(value) or _is_nan(value):
            raise InputError(
                f"{where}: {column!r} is empty: expected the document it is from, as in {self.columns.first}"
            )
        if isinstance(value, (dict, list, tuple)):
            raise InputError(f"{where}: expected the name of a document in {column!r}, but {shown(value)} came")
        return encodable(str(value))

    def _wrong(self, where: str, wanted: str, column: str, value: Any) -> InputError:
        before = "" if where == self.columns.first else f" as in {self.columns.first},"
        return InputError(f"{where}: expected {wanted} in {column!r},{before} but {shown(value)} came")

    def _number(self, where: str, column: str, value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if isinstance(value, bool) or not abs(number) <= _LARGEST:
            raise self._wrong(where, "a number", column, value)
        return number

    def _score(self, where: str, row: Row) -> float:
        column = self.columns.named["score"]
        return self._seen(self._number(where, column, row.get(column)))

    def _seen(self, number: float) -> float:
        self.low, self.high = min(self.low, number), max(self.high, number)
        return number

    def _label(self, where: str, row: Row) -> float:
        """A number of which `decides` says what it is."""
        column = self.columns.named["label"]
        value = row.get(column)
        truth = TRUTH.get(word(value))
        number = self._number(where, column, value) if truth is None else truth
        self._graded |= not number.is_integer() or (isinstance(value, str) and "." in value)
        if number not in (0, 1) and self._odd is None:
            self._odd = where, value
        return self._seen(number)

    def _class(self, where: str, row: Row) -> int:
        column = self.columns.named["class" if self.shape is Shape.GROUPED else "label"]
        value = row.get(column)
        name = str(value).strip()
        undecided = name == "-1" and self.shape is Shape.CLASSED  # as people who judged inference are marked
        if value is None or isinstance(value, (dict, list)) or name in ("", "-") or undecided or _is_nan(value):
            raise self._wrong(where, "a class", column, value)
        if name not in self.classes:
            if len(self.classes) >= 100_000:
                raise InputError(f"{where}: {column!r} has over 100,000 classes: are they scores? Call them 'score'")
            self.classes[name] = len(self.classes)
        return self.classes[name]

    def _scores(self, where: str, row: Row, place: int) -> list[float]:
        """The teacher's scores of the positive and of each negative, in that order."""
        if "scores" in self.columns.named:
            column = self.columns.named["scores"]
            values = row.get(column)
        elif "positive_scores" not in self.columns.named:
            return [self._margin(where, row), 0.0]
        else:
            column = self.columns.named["positive_scores"]
            positive, negative = row.get(column), row.get(self.columns.named.get("negative_scores", ""))
            if not isinstance(positive, (list, tuple)) or not isinstance(negative, (list, tuple)):
                raise InputError(f"{where}: expected lists of scores for positives and negatives")
            values = [*positive[place : place + 1], *negative]
        wanted = 1 + self._count(row)
        if not isinstance(values, (list, tuple)) or len(values) != wanted:
            raise InputError(
                f"{where}: expected {wanted} numbers in {column!r}, the positive's and then the others', but "
                f"{shown(values)} came"
            )
        return [self._number(where, column, value) for value in values[: self._width + 1]]

    def _margin(self, where: str, row: Row) -> float:
        """By how much the teacher scores the positive above the only negative."""
        column, count = self.columns.named["score"], self._count(row)
        if count != 1:
            raise InputError(f"{where}: has one {column!r} for {count} negatives: {WANTED_SCORES}")
        return self._number(where, column, row.get(column))

    def _count(self, row: Row) -> int:
        """How many negatives the row has, of which it may give more than are used."""
        negatives = row.get(self.columns.named.get("negative", ""))
        return len(negatives) if isinstance(negatives, (list, tuple)) else self._width


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124 - what only NaN is
