"""Validate rows: every value is checked and converted, with one method for each kind of label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...core.errors import InputError
from ...core.units import count_of
from ...core.words import encodable
from .columns import EXPECTED_SCORES, TRUTH, Columns, Shape, document_name, is_nan, shown, word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .sources import Rows

    Row = dict[str, Any]

_MAXIMUM = float(np.finfo(np.float32).max)
_MAX_CLASSES = 100_000
_LABEL: dict[Shape, pa.DataType] = {  # the type of the column, in shapes that have it
    **dict.fromkeys((Shape.LABELLED, Shape.CLASSED, Shape.GROUPED), pa.int64()),
    Shape.SCORED: pa.float32(),
    Shape.GRADED: pa.list_(pa.float32()),
}


class RowValidator:
    """Converts rows to the columns of the first one's shape."""

    def __init__(self, where: str, row: Row) -> None:
        """:raises InputError: when the first row is no training data."""
        self.columns = Columns.of(where, row)
        self.shape = self.columns.shape
        self.classes: dict[str, int] = {}
        self.low, self.high = float("inf"), float("-inf")
        self._width = 0  # negatives of a row
        self.unused_negatives = 0  # of rows that have more than the first one
        self._has_fractions = False  # whether a number in `label` is written with a fraction
        self._not_binary: tuple[str, Any] | None = None  # the first number in `label` besides 0 and 1, with its row
        self.texts = self._names(where, row)

    @property
    def grouped(self) -> bool:
        """Whether rows name their documents."""
        return "group" in self.columns.named

    def schema(self) -> pa.Schema:
        """Return the columns of validated rows."""
        fields = [(name, pa.string()) for name in self.texts]
        if self.shape in _LABEL:
            fields.append(("label", _LABEL[self.shape]))
        if self.grouped:
            fields.append(("group", pa.string()))
        return pa.schema(fields)

    def validate(self, rows: Rows) -> Iterator[Row]:
        """Yield validated rows: one for each row, or one for each positive if a row has a list of them."""
        for where, row in self.columns.checked(rows):
            if self.shape in (Shape.TEXTS, Shape.GROUPED):
                validated = [self._single(where, row)]
            else:
                validated = list(self._pairs(where, row))
            if self.grouped:
                group = {"group": self._group(where, row)}
                validated = [fields | group for fields in validated]
            yield from validated

    def expect_variety(self, source: str) -> None:
        """:raises InputError: when every row has the same score, label or class."""
        if self.low == self.high or len(self.classes) == 1:
            value = repr(next(iter(self.classes))) if self.classes else f"{self.low:g}"
            names = ("class",) if self.shape is Shape.GROUPED else ("score", "label")
            column = next(self.columns.named[name] for name in names if name in self.columns.named)
            raise InputError(f"{source} has {value} in {column!r} in every row: nothing can be told apart by it")

    def has_labels(self) -> bool:
        """Decide after the last row whether numbers in `label` are labels (0 and 1 only) or scores.

        :raises InputError: when they are neither labels nor clearly scores, with fractions or values above 2.
        """
        if not self.columns.undecided or (self._not_binary and (self._has_fractions or self.high > 2)):
            return False
        if self._not_binary:
            (where, value), column = self._not_binary, self.columns.named["label"]
            raise InputError(
                f"{where}: expected 0 or 1 in {column!r}, but {shown(value)} came, which may be a class or a score: "
                "call the texts premise and hypothesis for classes, or the column score for scores"
            )
        self.shape = Shape.LABELLED
        return True

    def _names(self, where: str, row: Row) -> tuple[str, ...]:
        """Return the names of the columns of texts."""
        if self.shape in (Shape.SCORED, Shape.LABELLED, Shape.CLASSED):
            is_query = self.columns.left == self.columns.named.get("query")
            return ("query", "document") if is_query else ("sentence1", "sentence2")
        if self.shape in (Shape.TEXTS, Shape.GROUPED):
            return ("text",)
        self._width = len(self._negatives(where, row))
        if self.shape is Shape.GRADED and not self._width:
            raise InputError(f"{where}: has a teacher's scores but no negative: expected one at least beside it")
        negatives = ["negative"] if self._width == 1 else [f"negative_{n + 1}" for n in range(self._width)]
        return ("query", "positive", *negatives)

    def _single(self, where: str, row: Row) -> Row:
        """Validate a row of one text."""
        column = self.columns.named["text"]
        fields: Row = {"text": self._text(where, column, row.get(column))}
        return fields | ({"label": self._class(where, row)} if self.shape is Shape.GROUPED else {})

    def _pairs(self, where: str, row: Row) -> Iterator[Row]:
        """Validate a row of two texts or more; yield a row for each second text."""
        left, right = self.columns.left, self.columns.right
        first, value = self._text(where, left, row.get(left)), row.get(right)
        seconds = (value or [None]) if isinstance(value, (list, tuple)) else [value]
        for position, second in enumerate(seconds):
            texts = first, self._text(where, right, second), *self._negatives(where, row)
            fields: Row = dict(zip(self.texts, texts, strict=True))
            if self.shape is Shape.SCORED:
                fields["label"] = self._label(where, row) if self.columns.undecided else self._score(where, row)
            elif self.shape is Shape.CLASSED:
                fields["label"] = self._class(where, row)
            elif self.shape is Shape.GRADED:
                fields["label"] = self._scores(where, row, position)
            yield fields

    def _text(self, where: str, column: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(where, "a text", column, value)
        return encodable(value)

    def _negatives(self, where: str, row: Row) -> list[str]:
        if self.shape not in (Shape.TRIPLETS, Shape.GRADED):
            return []
        column, numbered = self.columns.named.get("negative"), self.columns.negatives
        if numbered:
            texts = [self._text(where, name, row.get(name)) for name in numbered]
        elif column is None:
            texts = []
        else:
            value = row.get(column)
            values = value if isinstance(value, (list, tuple)) else [value]
            texts = [self._text(where, column, text) for text in values]
        if self._width and len(texts) < self._width:
            have = count_of(len(texts), "negative")
            raise InputError(f"{where} has {have}, {self.columns.first} had {self._width}: give each as many")
        self.unused_negatives += max(0, len(texts) - self._width) if self._width else 0
        return texts[: self._width or None]

    def _group(self, where: str, row: Row) -> str:
        """Return the name of a row's document."""
        column = self.columns.named["group"]
        name = document_name(where, column, row.get(column))
        if not name:
            raise InputError(
                f"{where}: {column!r} is empty: expected the document it is from, as in {self.columns.first}"
            )
        return name

    def _wrong(self, where: str, expected: str, column: str, value: object) -> InputError:
        example = "" if where == self.columns.first else f" as in {self.columns.first},"
        return InputError(f"{where}: expected {expected} in {column!r},{example} but {shown(value)} came")

    def _number(self, where: str, column: str, value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if isinstance(value, bool) or not abs(number) <= _MAXIMUM:
            raise self._wrong(where, "a number", column, value)
        return number

    def _score(self, where: str, row: Row) -> float:
        column = self.columns.named["score"]
        return self._ranged(self._number(where, column, row.get(column)))

    def _ranged(self, number: float) -> float:
        """Widen the range of scores to include a number."""
        self.low, self.high = min(self.low, number), max(self.high, number)
        return number

    def _label(self, where: str, row: Row) -> float:
        """Return a number, which `has_labels` interprets later."""
        column = self.columns.named["label"]
        value = row.get(column)
        truth = TRUTH.get(word(value))
        number = self._number(where, column, value) if truth is None else truth
        self._has_fractions |= not number.is_integer() or (isinstance(value, str) and "." in value)
        if number not in (0, 1) and self._not_binary is None:
            self._not_binary = where, value
        return self._ranged(number)

    def _class(self, where: str, row: Row) -> int:
        column = self.columns.named["class" if self.shape is Shape.GROUPED else "label"]
        value = row.get(column)
        name = str(value).strip()
        undecided = name == "-1" and self.shape is Shape.CLASSED  # no majority among the judges of inference
        if value is None or isinstance(value, (dict, list)) or name in ("", "-") or undecided or is_nan(value):
            raise self._wrong(where, "a class", column, value)
        if name not in self.classes:
            if len(self.classes) >= _MAX_CLASSES:
                raise InputError(f"{where}: {column!r} has over 100,000 classes: are they scores? Call them 'score'")
            self.classes[name] = len(self.classes)
        return self.classes[name]

    def _scores(self, where: str, row: Row, position: int) -> list[float]:
        """Return the teacher's scores of the positive and of each negative, in that order.

        :param position: of the positive, if the row has a list of them.
        """
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
            values = [*positive[position : position + 1], *negative]
        count = 1 + self._count(row)
        if not isinstance(values, (list, tuple)) or len(values) != count:
            raise InputError(
                f"{where}: expected {count} numbers in {column!r}, the positive's and then the others', but "
                f"{shown(values)} came"
            )
        return [self._number(where, column, value) for value in values[: self._width + 1]]

    def _margin(self, where: str, row: Row) -> float:
        """Return the teacher's margin of the positive above the only negative."""
        column, count = self.columns.named["score"], self._count(row)
        if count != 1:
            raise InputError(f"{where}: has one {column!r} for {count} negatives: {EXPECTED_SCORES}")
        return self._number(where, column, row.get(column))

    def _count(self, row: Row) -> int:
        """Count the row's negatives, unused ones included."""
        negatives = row.get(self.columns.named.get("negative", ""))
        return len(negatives) if isinstance(negatives, (list, tuple)) else self._width
