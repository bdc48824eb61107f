"""Recognize the shape of training data by its column names, as common data sets have them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.printable import first_of_repr
from ...core.words import encodable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .sources import Rows

    Row = dict[str, Any]


class Shape(Enum):
    """The kind of a row of training data."""

    PAIRS = "pairs (query, positive)"
    TRIPLETS = "triplets (query, positive, negative, …)"
    SCORED = "pairs with a score (sentence1, sentence2, score)"
    LABELLED = "pairs with a label 0 or 1 (sentence1, sentence2, label)"
    CLASSED = "pairs with a class (premise, hypothesis, label)"
    GRADED = "candidates with a teacher's scores (query, positive, negative, …, scores)"
    GROUPED = "texts with a class (text, label)"
    TEXTS = "texts (text)"


NAMES: dict[str, tuple[str, ...]] = {  # our column -> its names in data sets, in any case; the first present counts
    "query": ("query", "anchor", "question", "query_text", "english", "title"),
    "positive": (
        *("positive", "pos", "positives", "answer", "passage", "document", "context", "response", "body"),
        "non_english",
    ),
    "negative": ("negative", "neg", "negatives", "hard_negative"),
    "first": ("sentence1", "sentence_1", "text1", "text_1", "premise", "sent1", "sentence_a", "question1"),
    "second": ("sentence2", "sentence_2", "text2", "text_2", "hypothesis", "sent2", "sentence_b", "question2"),
    "score": ("score", "similarity", "similarity_score", "relatedness_score"),
    "scores": ("scores", "teacher_scores"),
    "positive_scores": ("pos_scores", "positive_scores"),
    "negative_scores": ("neg_scores", "negative_scores"),
    "label": ("label", "labels", "gold_label", "is_duplicate", "duplicate"),
    "class": ("label", "labels", "class", "category"),
    "text": ("text", "sentence", "content", "abstract"),
    "group": ("document_id", "doc_id", "group", "source_id"),
}
_OF_HEADS = {  # the columns of a classifier's rows -> their names in data sets
    "text": NAMES["text"],
    "sentence1": NAMES["first"],
    "sentence2": NAMES["second"],
    "label": (*NAMES["class"], *NAMES["label"]),
    "score": NAMES["score"],
}
_TWO = (("first", "second"), ("query", "positive"))  # columns of rows with two texts
_TEXTS = ("query", "positive", "first", "second", "text")
_SCORES = ("scores", "positive_scores")
_DECIDING = {  # columns that would give a row of this shape another one
    Shape.PAIRS: ("group", "negative", "score", "label", *_SCORES),
    Shape.TRIPLETS: ("group", "score", "label", *_SCORES),
    Shape.TEXTS: ("group", "class"),
}
EXPECTED_SCORES = "expected 'scores', the positive's and then each negative's"
TRUTH = {"false": 0.0, "true": 1.0}  # labels in words, in any case
_ID = re.compile(r"(.*_)?(q|p|s|doc|pair)?(id|idx|index)[0-9]*", re.IGNORECASE)  # columns of ids
_NUMBERED = re.compile(r"negative_([0-9]{1,9})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the first row and their shape, which all other rows must share."""

    first: str  # file and line of that row
    shape: Shape
    named: dict[str, str]  # our column -> theirs
    left: str = ""  # the first of two texts
    right: str = ""
    negatives: tuple[str, ...] = ()  # numbered ones, in order
    filled: frozenset[str] = frozenset()  # columns with a value in the first row
    undecided: bool = False  # whether numbers in `label` may be labels or scores

    @classmethod
    def of(cls, where: str, row: Row) -> Columns:
        """Recognize the columns of the first row.

        :raises InputError: when they have no known shape.
        """
        filled = frozenset(name for name, value in row.items() if not empty(value))
        named = _named(row, filled)
        negatives = tuple(sorted(filter(_number_of, row), key=_number_of))
        pair = next((pair for pair in _TWO if all(name in named for name in pair)), None)
        if pair:
            left, right = (named[name] for name in pair)
            shape, undecided = _of_two(where, row, named, left, negatives)
            if shape is Shape.PAIRS and pair[0] == "first":
                _check_unjudged(where, row)
            return cls(where, shape, named, left, right, negatives, filled, undecided)
        return cls(where, _of_one(where, row, named), named, filled=filled, negatives=negatives)

    def checked(self, rows: Rows) -> Rows:
        """Yield the rows, each checked for columns that would have given the first row another shape.

        :raises InputError: naming the row.
        """
        deciding = _DECIDING.get(self.shape, ("group",))
        for where, row in rows:
            for name in row:
                if name not in self.filled and not empty(row[name]) and any(_is(name, column) for column in deciding):
                    raise InputError(f"{where}: has {name!r}, which {self.first} had not: rows must be of one shape")
            yield where, row


def head_columns(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the row's name for each column of a classifier's rows that it has: text, sentence1, label and so on."""
    by_lower_name = {str(name).lower(): name for name in row}
    present = {ours: [name for name in names if name in by_lower_name] for ours, names in _OF_HEADS.items()}
    return {ours: by_lower_name[names[0]] for ours, names in present.items() if names}


def _is(name: object, column: str) -> bool:
    return str(name).lower() in NAMES[column] or (column == "negative" and bool(_number_of(name)))


def is_text(name: object) -> bool:
    """Whether a column of this name is known to hold texts."""
    return any(_is(name, column) for column in (*_TEXTS, "negative"))


def _named(row: Row, filled: frozenset[str]) -> dict[str, str]:
    """Map our columns to the row's names."""
    by_lower_name = {str(name).lower(): name for name in row}
    named = {}
    for column, names in NAMES.items():
        present = [by_lower_name[name] for name in names if name in by_lower_name]
        with_value = [name for name in present if name in filled]
        if with_value or (present and column in _TEXTS):  # a missing text is a mistake, a missing label need not be
            named[column] = (with_value or present)[0]
    return named


def _of_two(where: str, row: Row, named: dict[str, str], left: str, negatives: tuple[str, ...]) -> tuple[Shape, bool]:
    """Return the shape of rows with two texts, and whether the scores may still turn out to be labels."""
    if any(name in named for name in _SCORES):
        return Shape.GRADED, False
    if "negative" in named or negatives:
        if "label" in named:
            raise InputError(f"{where}: has {named['label']!r} beside a negative: {EXPECTED_SCORES}")
        return Shape.GRADED if "score" in named else Shape.TRIPLETS, False
    if "score" in named:
        return Shape.SCORED, False
    if "label" not in named:
        return Shape.PAIRS, False
    is_inference = str(left).lower() == "premise"  # its classes may be named 0, 1 and 2
    label = row[named["label"]]
    undecided = not is_inference and (is_number(label) or word(label) in TRUTH)
    return Shape.SCORED if undecided else Shape.CLASSED, undecided


def _of_one(where: str, row: Row, named: dict[str, str]) -> Shape:
    """Return the shape of rows with one text."""
    if "text" not in named:
        raise InputError(
            f"{where}: the columns {', '.join(map(repr, row)) or 'are none and'} are no training data: expected query "
            "and positive, with or without negative; english and non_english; sentence1 and sentence2 with score or "
            "label; or text"
        )
    query = named.get("query", "title")
    if query.lower() != "title":
        raise InputError(
            f"{where}: has {query!r} and {named['text']!r}, which may be pairs or not: expected "
            f"'positive' for what answers {query!r}, or texts alone"
        )
    return Shape.GROUPED if "class" in named else Shape.TEXTS


def _check_unjudged(where: str, row: Row) -> None:
    """:raises InputError: if a number beside two texts may be a judgement; as pairs, all would count as similar."""
    known = {name for names in NAMES.values() for name in names}
    for name, value in row.items():
        if str(name).lower() in known or _ID.fullmatch(str(name)):
            continue
        if is_number(value) or word(value) in TRUTH:
            raise InputError(
                f"{where}: {name!r} may be a judgement of the two texts: call it score or label, or leave it out"
            )


def _number_of(name: object) -> int:
    """Return the number of a column of negatives plus 1: 13 for negative_12; 0 for any other name."""
    match = _NUMBERED.fullmatch(str(name))
    return int(match[1]) + 1 if match else 0


def is_number(value: Any) -> bool:
    """Whether a value can be read as a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    except OverflowError:
        pass
    return True


def word(value: object) -> str:
    """Return a value as a word in lower case."""
    return str(value).strip().lower()


def empty(value: object) -> bool:
    """Whether a cell has no value."""
    return value is None or (isinstance(value, (str, list, tuple)) and not value)


def is_nan(value: object) -> bool:
    """Whether a cell is NaN: the number is missing."""
    return isinstance(value, float) and value != value  # noqa: PLR0124 - true of NaN only


def document_of(where: str, row: Mapping[str, Any], *more: str) -> str:
    """Return the document that a row names, in the first of the usual columns with a value; "" if it names none.

    :param more: names of further columns, in lower case, for rows without the usual ones.
    :raises InputError: when the name is a list or an object.
    """
    by_lower_name = {str(name).lower(): name for name in row}
    columns = [by_lower_name[name] for name in (*NAMES["group"], *more) if name in by_lower_name]
    return next(filter(None, (document_name(where, column, row[column]) for column in columns)), "")


def document_name(where: str, column: str, value: object) -> str:
    """Return a cell as the name of a document, a number too; "" if it is empty.

    :raises InputError: for a list or an object.
    """
    if empty(value) or is_nan(value):
        return ""
    if isinstance(value, (dict, list, tuple)):
        raise InputError(f"{where}: expected the name of a document in {column!r}, but {shown(value)} came")
    return encodable(str(value))


def shown(value: object) -> str:
    """Format a value for a message, cut if it is long."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return "nothing" if value is None else "an empty text"
    return first_of_repr(value, 60)
