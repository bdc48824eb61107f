"""What rows of training data are, as their columns say: the names are those that the field's own data sets use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError

if TYPE_CHECKING:
    Row = dict[str, Any]


class Shape(Enum):
    """What a row of training data is."""

    PAIRS = "pairs (query, positive)"
    TRIPLETS = "triplets (query, positive, negative, …)"
    SCORED = "pairs with a score (sentence1, sentence2, score)"
    LABELLED = "pairs with a label 0 or 1 (sentence1, sentence2, label)"
    CLASSED = "pairs with a class (premise, hypothesis, label)"
    GRADED = "candidates with a teacher's scores (query, positive, negative, …, scores)"
    GROUPED = "texts with a class (text, label)"
    TEXTS = "texts (text)"


NAMES: dict[str, tuple[str, ...]] = {  # our column -> what others call it, in any case, the first there counting
    "query": ("query", "anchor", "question", "query_text", "title"),
    "positive": ("positive", "pos", "positives", "answer", "passage", "document", "context", "response", "body"),
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
_TWO = (("first", "second"), ("query", "positive"))  # columns of rows with two texts
_TEXTS = ("query", "positive", "first", "second", "text")
_SCORES = ("scores", "positive_scores")
_DECIDING = {  # what a row of this shape cannot have, since it would be of another
    Shape.PAIRS: ("group", "negative", "score", "label", *_SCORES),
    Shape.TRIPLETS: ("group", "score", "label", *_SCORES),
    Shape.TEXTS: ("group", "class"),
}
WANTED_SCORES = "expected 'scores', the positive's and then each negative's"
TRUTH = {"false": 0.0, "true": 1.0}  # labels in words, in any case
_ID = re.compile(r"(.*_)?(q|p|s|doc|pair)?(id|idx|index)[0-9]*", re.IGNORECASE)  # a number that is a name
_NUMBERED = re.compile(r"negative_([0-9]{1,9})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column is what, and the shape that follows: told by the first row, which the others must be like."""

    first: str  # where that row stands
    shape: Shape
    named: dict[str, str]  # our column -> theirs
    one: str = ""  # of two texts
    two: str = ""
    negatives: tuple[str, ...] = ()  # numbered ones, in order
    filled: frozenset[str] = frozenset()  # columns that the first row has a value in
    undecided: bool = False  # whether there are numbers in `label`, which may be labels or scores

    @classmethod
    def of(cls, where: str, row: Row) -> Columns:
        """:raises InputError: when the columns are those of no shape."""
        filled = frozenset(name for name, value in row.items() if not empty(value))
        named = _named(row, filled)
        negatives = tuple(sorted(filter(_number_of, row), key=_number_of))
        pair = next((pair for pair in _TWO if all(name in named for name in pair)), None)
        if pair:
            one, two = (named[name] for name in pair)
            shape, undecided = _of_two(where, row, named, one, negatives)
            if shape is Shape.PAIRS and pair[0] == "first":
                _check_unjudged(where, row)
            return cls(where, shape, named, one, two, negatives, filled, undecided)
        return cls(where, _of_one(where, row, named), named, filled=filled, negatives=negatives)

    def check(self, where: str, row: Row) -> None:
        """:raises InputError: where a row has what would have made the first one of another shape."""
        deciding = _DECIDING.get(self.shape, ("group",))
        for name in row:
            if name not in self.filled and not empty(row[name]) and any(_is(name, column) for column in deciding):
                raise InputError(f"{where}: has {name!r}, which {self.first} had not: rows must be of one shape")


def _is(name: Any, column: str) -> bool:
    return str(name).lower() in NAMES[column] or (column == "negative" and bool(_number_of(name)))


def is_text(name: Any) -> bool:
    """Whether a column of this name is known to hold texts."""
    return any(_is(name, column) for column in (*_TEXTS, "negative"))


def _named(row: Row, filled: frozenset[str]) -> dict[str, str]:
    """Our columns, with what the row calls them."""
    there = {str(name).lower(): name for name in row}
    named = {}
    for column, names in NAMES.items():
        found = [there[name] for name in names if name in there]
        with_value = [name for name in found if name in filled]
        if with_value or (found and column in _TEXTS):  # a missing text is a mistake, a missing label need not be
            named[column] = (with_value or found)[0]
    return named


def _of_two(where: str, row: Row, named: dict[str, str], one: str, negatives: tuple[str, ...]) -> tuple[Shape, bool]:
    """The shape of rows with two texts, and whether it may yet turn out to be labels."""
    if any(name in named for name in _SCORES):
        return Shape.GRADED, False
    if "negative" in named or negatives:
        if "label" in named:
            raise InputError(f"{where}: has {named['label']!r} beside a negative: {WANTED_SCORES}")
        return Shape.GRADED if "score" in named else Shape.TRIPLETS, False
    if "score" in named:
        return Shape.SCORED, False
    if "label" not in named:
        return Shape.PAIRS, False
    inferred = str(one).lower() == "premise"  # whose classes may be called 0, 1 and 2
    label = row[named["label"]]
    undecided = not inferred and (is_number(label) or word(label) in TRUTH)
    return Shape.SCORED if undecided else Shape.CLASSED, undecided


def _of_one(where: str, row: Row, named: dict[str, str]) -> Shape:
    """The shape of rows with one text."""
    if "text" not in named:
        raise InputError(
            f"{where}: the columns {', '.join(map(repr, row)) or 'are none and'} are no training data: expected query "
            "and positive, with or without negative; sentence1 and sentence2 with score or label; or text"
        )
    asked = named.get("query", "title")
    if asked.lower() != "title":
        raise InputError(
            f"{where}: has {asked!r} and {named['text']!r}, which may be pairs or not: expected "
            f"'positive' for what answers {asked!r}, or texts alone"
        )
    return Shape.GROUPED if "class" in named else Shape.TEXTS


def _check_unjudged(where: str, row: Row) -> None:
    """:raises InputError: where a number beside two texts may say how alike they are: as pairs all would be alike."""
    known = {name for names in NAMES.values() for name in names}
    for name, value in row.items():
        if str(name).lower() in known or _ID.fullmatch(str(name)):
            continue
        if is_number(value) or word(value) in TRUTH:
            raise InputError(
                f"{where}: {name!r} may be a judgement of the two texts: call it score or label, or leave it out"
            )


def _number_of(name: Any) -> int:
    """The place of a numbered column of negatives, from 1: 13 for negative_12; 0 for any other name."""
    match = _NUMBERED.fullmatch(str(name))
    return int(match[1]) + 1 if match else 0


def is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    except OverflowError:
        pass
    return True


def word(value: Any) -> str:
    return str(value).strip().lower()


def empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, list, tuple)) and not value)


def shown(value: Any) -> str:
    """Format a value for a message, with at most 60 characters."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return "nothing" if value is None else "an empty text"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
