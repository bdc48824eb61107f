"""Training data: rows of texts from any of the usual places, checked to the last line before a model is touched.

The columns say what the rows are (`Shape`); the names below are those that the field's own data sets use. Every row
is read and checked once, in a stream, and written to one Arrow file that training maps into memory: its last line is
known to be right before the first step, and all that is held of a row is its number, its part and a hash, some 25
bytes, while the held-out ones are chosen.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ..indexes.errors import InputError
from .sources import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from .run import RunFolder

    Row = dict[str, Any]

_BATCH = 10_000  # rows written to the Arrow file at a time
TRAIN, HELD_OUT, LEFT_OUT = 0, 1, 2  # in which part of the data a row is; left out, since a held-out text is in it


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
_TEXTS = ("query", "positive", "first", "second", "text")
_SCORES = ("scores", "positive_scores")
_DECIDING = {  # what a row of this shape cannot have, since it would be of another
    Shape.PAIRS: ("group", "negative", "score", "label", *_SCORES),
    Shape.TRIPLETS: ("group", "score", "label", *_SCORES),
    Shape.TEXTS: ("group", "class"),
}
_WANTED_SCORES = "expected 'scores', the positive's and then each negative's"
_TRUTH = {"false": 0.0, "true": 1.0}  # labels in words, in any case
_ID = re.compile(r"(.*_)?(q|p|s|doc|pair)?(id|idx|index)[0-9]*", re.IGNORECASE)  # a number that is a name
_LARGEST = float(np.finfo(np.float32).max)
_NUMBERED = re.compile(r"negative_([0-9]{1,9})", re.IGNORECASE)


@dataclass(slots=True)
class Prepared:
    """Rows on disk: `rows.arrow` with the columns of one shape, and which part of the data each row is in."""

    shape: Shape
    folder: Path
    texts: tuple[str, ...]  # names of the columns that are texts, in the order in which an objective takes them
    classes: tuple[str, ...] = ()  # names of the classes, where rows have them
    low: float = 0.0  # the range of scores
    high: float = 1.0
    part: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    source: str = ""  # what the rows came from has this name, if any

    def table(self) -> pa.Table:
        """All rows, mapped into memory."""
        return pa.ipc.open_stream(pa.memory_map(str(self.folder / "rows.arrow"))).read_all()

    def training(self) -> NDArray[np.uint32]:
        return np.flatnonzero(self.part == TRAIN).astype(np.uint32)

    def held_out(self) -> NDArray[np.uint32]:
        return np.flatnonzero(self.part == HELD_OUT).astype(np.uint32)


def prepare(
    source: str | Path | Iterable[Mapping[str, Any]],
    folder: Path,
    *,
    split: str = "train",
    held_out: float = 0.05,
    most_held_out: int = 1_000,
    development: str | Path | None = None,
    seed: int = 0,
) -> Prepared:
    """Read and check every row, write them below `folder`, and set some aside by document.

    A row is held out by the hash of the document that it is about: its `document_id` if it has one, else its positive
    (the second text). Rows whose query or positive is in a held-out one are left out of both parts; a negative may be,
    since what is mined has the positives of many rows as negatives of others.

    :param source: a file, a BEIR folder, a Lance table, a data set's name, or the rows themselves.
    :param split: which qrels of a BEIR folder, or which split of a data set.
    :param held_out: share of the documents set aside; 0 for none.
    :param most_held_out: rows set aside at most.
    :param development: rows to hold out instead, in a file of their own; the shape must be the same.
    :raises InputError: naming the file and line of the first row that does not fit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    reader, file = _Reader(), folder / "rows.arrow"
    with _written(file, reader) as write:
        given = write(rows(source, split))
        if not given:
            raise InputError(f"{named(source)} holds no rows to train on")
        if given > 1:
            reader.tells_apart(named(source))
        apart = 0 if development is None else write(rows(development, "dev"))
        if development is not None and not apart:
            raise InputError(f"{named(development)} holds no rows to hold out")
    if reader.decides():
        _cast(file, reader.schema())
    assert reader.shape is not None
    made = Prepared(reader.shape, folder, reader.texts, tuple(reader.classes), reader.low, reader.high)
    if isinstance(source, (str, Path)):
        made.source = Path(source).resolve().name if Path(source).exists() else str(source)
    if development is None:
        keys = _keys(made.table(), "group" if reader.grouped else made.texts[min(1, len(made.texts) - 1)])
        part = _split(keys, held_out, most_held_out, seed)
    else:
        part = np.repeat(np.array([TRAIN, HELD_OUT], np.uint8), [given, apart])
    made.part = _without_leaks(made.table(), made.texts, part)
    if not (made.part == TRAIN).any():
        if development is not None:
            raise InputError(f"every row of {named(source)} shares a text with one of {named(development)}")
        raise InputError(f"{named(source)} has too few different documents to hold any out: give --held-out 0")
    return made


def named(source: Any) -> str:
    """What messages call a source."""
    return str(source) if isinstance(source, (str, Path)) else "the data"


@contextlib.contextmanager
def _written(file: Path, reader: _Reader) -> Iterator[Callable[[Iterator[tuple[str, Row]]], int]]:
    """Give a function that checks rows, writes them to the file and says how many they became."""
    writer: Any = None

    def write(given: Iterator[tuple[str, Row]]) -> int:
        nonlocal writer
        count = 0
        fitted = (one for where, row in given for one in reader.fit(where, row))
        while batch := list(islice(fitted, _BATCH)):
            writer = writer or pa.ipc.new_stream(stream, reader.schema())
            writer.write_batch(pa.RecordBatch.from_pylist(batch, reader.schema()))
            count += len(batch)
        return count

    with file.open("wb") as stream:
        yield write
        if writer is not None:
            writer.close()


def _cast(file: Path, schema: pa.Schema) -> None:
    """Give the columns of a file other types."""
    aside = file.with_suffix(".part")
    with pa.memory_map(str(file)) as given, aside.open("wb") as stream, pa.ipc.new_stream(stream, schema) as writer:
        for batch in pa.ipc.open_stream(given):
            writer.write_batch(batch.cast(schema))
    aside.replace(file)


class _Reader:
    """Fits rows to the shape of the first one."""

    def __init__(self) -> None:
        self.shape: Shape | None = None
        self.texts: tuple[str, ...] = ()
        self.classes: dict[str, int] = {}
        self.low, self.high = float("inf"), float("-inf")
        self.grouped = False
        self._columns: dict[str, str] = {}
        self._negatives: tuple[str, ...] = ()
        self._width = 0  # negatives a row has
        self._first = ""
        self._filled: frozenset[str] = frozenset()  # columns that the first row has a value in
        self._undecided = False  # whether there are numbers in `label`, which may be labels or scores
        self._graded = False  # … of which one at least is written with a fraction
        self._odd: tuple[str, Any] | None = None  # the first of them that is neither 0 nor 1, and where it is

    def schema(self) -> pa.Schema:
        fields = [(name, pa.string()) for name in self.texts]
        if self.shape in (Shape.LABELLED, Shape.CLASSED, Shape.GROUPED):
            fields.append(("label", pa.int64()))
        elif self.shape is Shape.SCORED:
            fields.append(("label", pa.float32()))
        elif self.shape is Shape.GRADED:
            fields.append(("label", pa.list_(pa.float32())))
        return pa.schema([*fields, *([("group", pa.string())] if self.grouped else [])])

    def fit(self, where: str, row: Row) -> list[Row]:
        """What the row gives: one row, or one for each positive where it has a list of them."""
        if self.shape is None:
            self._learn(where, row)
        self._check_shape(where, row)
        made = list(self._fitted(where, row))
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
            column = next(self._columns[name] for name in names if name in self._columns)
            raise InputError(f"{source} has {every} in {column!r} in every row: nothing can be told apart by it")

    def decides(self) -> bool:
        """Whether numbers in `label`, taken for scores until all were seen, are labels: 0 or 1 every one.

        :raises InputError: when they are neither that nor plainly scores, which have fractions or go beyond 2.
        """
        if not self._undecided or (self._odd and (self._graded or self.high > 2)):
            return False
        if self._odd:
            where, value = self._odd
            raise InputError(
                f"{where}: expected 0 or 1 in {self._columns['label']!r}, but {_shown(value)} came, which may be a "
                "class or a score: call the texts premise and hypothesis for classes, or the column score for scores"
            )
        self.shape = Shape.LABELLED
        return True

    def _learn(self, where: str, row: Row) -> None:
        """The shape from the first row."""
        self._first = where
        self._filled = frozenset(name for name, value in row.items() if not _empty(value))
        there = {str(name).lower(): name for name in row}
        for column, names in NAMES.items():
            found = [there[name] for name in names if name in there]
            filled = [name for name in found if name in self._filled]
            if filled or (found and column in _TEXTS):  # a missing text is a mistake, a missing label need not be
                self._columns[column] = (filled or found)[0]
        self._negatives = tuple(sorted(filter(_number_of, row), key=_number_of))
        self.grouped = "group" in self._columns
        self.shape = self._shape(where, row)
        if self.shape in (Shape.SCORED, Shape.LABELLED, Shape.CLASSED):
            self.texts = ("sentence1", "sentence2")
        elif self.shape in (Shape.TEXTS, Shape.GROUPED):
            self.texts = ("text",)
        else:
            self._width = len(self._negative_texts(where, row))
            if self.shape is Shape.GRADED and not self._width:
                raise InputError(f"{where}: has a teacher's scores but no negative: expected one at least beside it")
            negatives = ["negative"] if self._width == 1 else [f"negative_{n + 1}" for n in range(self._width)]
            self.texts = ("query", "positive", *negatives)

    def _shape(self, where: str, row: Row) -> Shape:
        has = self._columns.__contains__
        two = ("first", "second") if has("first") and has("second") else ("query", "positive")
        if has(two[0]) and has(two[1]):
            self._columns |= {"one": self._columns[two[0]], "two": self._columns[two[1]]}
            if any(map(has, _SCORES)):
                return Shape.GRADED
            if has("negative") or self._negatives:
                if has("label"):
                    raise InputError(f"{where}: has {self._columns['label']!r} beside a negative: {_WANTED_SCORES}")
                return Shape.GRADED if has("score") else Shape.TRIPLETS
            if has("score"):
                return Shape.SCORED
            if has("label"):
                inferred = str(self._columns["one"]).lower() == "premise"  # whose classes may be called 0, 1 and 2
                label = row[self._columns["label"]]
                self._undecided = not inferred and (_is_number(label) or _word(label) in _TRUTH)
                return Shape.SCORED if self._undecided else Shape.CLASSED
            if two[0] == "first":
                self._check_unjudged(where, row)
            return Shape.PAIRS
        if has("text"):
            asked = self._columns.get("query", "title")
            if asked.lower() != "title":
                raise InputError(
                    f"{where}: has {asked!r} and {self._columns['text']!r}, which may be pairs or not: expected "
                    f"'positive' for what answers {asked!r}, or texts alone"
                )
            return Shape.GROUPED if has("class") else Shape.TEXTS
        raise InputError(
            f"{where}: the columns {', '.join(map(repr, row)) or 'are none and'} are no training data: expected query "
            "and positive, with or without negative; sentence1 and sentence2 with score or label; or text"
        )

    def _check_unjudged(self, where: str, row: Row) -> None:
        """Raise InputError where a number beside two texts may say how alike they are: as pairs all would be alike."""
        known = {name for names in NAMES.values() for name in names}
        for name, value in row.items():
            if str(name).lower() in known or _ID.fullmatch(str(name)):
                continue
            if _is_number(value) or _word(value) in _TRUTH:
                raise InputError(
                    f"{where}: {name!r} may be a judgement of the two texts: call it score or label, or leave it out"
                )

    def _check_shape(self, where: str, row: Row) -> None:
        """Raise InputError where a row has what would have made the first one of another shape."""
        assert self.shape is not None
        for name in row:
            if name in self._filled or _empty(row[name]):
                continue
            lower = str(name).lower()
            for column in _DECIDING.get(self.shape, ("group",)):
                if lower in NAMES[column] or (column == "negative" and _number_of(name)):
                    raise InputError(f"{where}: has {name!r}, which {self._first} had not: rows must be of one shape")

    def _group(self, where: str, row: Row) -> str:
        """The document that a row is from."""
        column = self._columns["group"]
        value = row.get(column)
        if _empty(value) or _is_nan(value):
            raise InputError(f"{where}: {column!r} is empty: expected the document it is from, as in {self._first}")
        if isinstance(value, (dict, list, tuple)):
            raise InputError(f"{where}: expected the name of a document in {column!r}, but {_shown(value)} came")
        return str(value).encode("utf-8", "replace").decode()

    def _fitted(self, where: str, row: Row) -> Iterator[Row]:
        if self.shape in (Shape.TEXTS, Shape.GROUPED):
            made: Row = {"text": self._text(where, row, self._columns["text"])}
            if self.shape is Shape.GROUPED:
                made["label"] = self._class(where, row)
            yield made
            return
        one, two = self._columns["one"], self._columns["two"]
        first = self._text(where, row, one)
        seconds = row.get(two) if isinstance(row.get(two), (list, tuple)) else [row.get(two)]
        for place, _ in enumerate(seconds or [None]):
            second = self._text(where, {two: (seconds or [None])[place]}, two)
            made = {self.texts[0]: first, self.texts[1]: second}
            made.update(zip(self.texts[2:], self._negative_texts(where, row), strict=True))
            if self.shape is Shape.SCORED:
                made["label"] = self._label(where, row) if self._undecided else self._score(where, row)
            elif self.shape is Shape.CLASSED:
                made["label"] = self._class(where, row)
            elif self.shape is Shape.GRADED:
                made["label"] = self._scores(where, row, place)
            yield made

    def _text(self, where: str, row: Row, column: str) -> str:
        value = row.get(column)
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(where, "a text", column, value)
        return value.encode("utf-8", "replace").decode()

    def _wrong(self, where: str, wanted: str, column: str, value: Any) -> InputError:
        before = "" if where == self._first else f" as in {self._first},"
        return InputError(f"{where}: expected {wanted} in {column!r},{before} but {_shown(value)} came")

    def _negative_texts(self, where: str, row: Row) -> list[str]:
        assert self.shape is not None
        if self.shape not in (Shape.TRIPLETS, Shape.GRADED):
            return []
        column = self._columns.get("negative")
        if self._negatives:
            texts = [self._text(where, row, name) for name in self._negatives]
        elif column is None:
            texts = []
        elif isinstance(row.get(column), (list, tuple)):
            texts = [self._text(where, {column: text}, column) for text in row[column]]
        else:
            texts = [self._text(where, row, column)]
        if self._width and len(texts) < self._width:
            raise InputError(f"{where}: has {len(texts)} negatives, {self._first} had {self._width}: give each as many")
        return texts[: self._width or None]

    def _number(self, where: str, column: str, value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if isinstance(value, bool) or not abs(number) <= _LARGEST:
            raise self._wrong(where, "a number", column, value)
        return number

    def _score(self, where: str, row: Row) -> float:
        column = self._columns["score"]
        return self._seen(self._number(where, column, row.get(column)))

    def _seen(self, number: float) -> float:
        self.low, self.high = min(self.low, number), max(self.high, number)
        return number

    def _label(self, where: str, row: Row) -> float:
        """A number of which `decides` says what it is."""
        column = self._columns["label"]
        value = row.get(column)
        truth = _TRUTH.get(_word(value))
        number = self._number(where, column, value) if truth is None else truth
        self._graded |= not number.is_integer() or (isinstance(value, str) and "." in value)
        if number not in (0, 1) and self._odd is None:
            self._odd = where, value
        return self._seen(number)

    def _class(self, where: str, row: Row) -> int:
        column = self._columns["class" if self.shape is Shape.GROUPED else "label"]
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
        if "scores" in self._columns:
            column = self._columns["scores"]
            values = row.get(column)
        elif "positive_scores" not in self._columns:
            return [self._margin(where, row), 0.0]
        else:
            column = self._columns["positive_scores"]
            positive, negative = row.get(column), row.get(self._columns.get("negative_scores", ""))
            if not isinstance(positive, (list, tuple)) or not isinstance(negative, (list, tuple)):
                raise InputError(f"{where}: expected lists of scores for positives and negatives")
            values = [*positive[place : place + 1], *negative]
        wanted = 1 + self._count(row)
        if not isinstance(values, (list, tuple)) or len(values) != wanted:
            raise InputError(
                f"{where}: expected {wanted} numbers in {column!r}, the positive's and then the others', but "
                f"{_shown(values)} came"
            )
        return [self._number(where, column, value) for value in values[: self._width + 1]]

    def _margin(self, where: str, row: Row) -> float:
        """By how much the teacher scores the positive above the only negative."""
        column, count = self._columns["score"], self._count(row)
        if count != 1:
            raise InputError(f"{where}: has one {column!r} for {count} negatives: {_WANTED_SCORES}")
        return self._number(where, column, row.get(column))

    def _count(self, row: Row) -> int:
        """How many negatives the row has, of which it may give more than are used."""
        negatives = row.get(self._columns.get("negative", ""))
        return len(negatives) if isinstance(negatives, (list, tuple)) else self._width


def _number_of(name: Any) -> int:
    """The place of a numbered column of negatives, from 1: 13 for negative_12; 0 for any other name."""
    match = _NUMBERED.fullmatch(str(name))
    return int(match[1]) + 1 if match else 0


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    except OverflowError:
        pass
    return True


def _word(value: Any) -> str:
    return str(value).strip().lower()


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, list, tuple)) and not value)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124 - what only NaN is


def _shown(value: Any) -> str:
    """A value in a message."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return "nothing" if value is None else "an empty text"
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}…"


def _keys(table: pa.Table, column: str) -> NDArray[np.uint64]:
    """A hash of a column's text for each row."""
    keys = np.empty(len(table), np.uint64)
    start = 0
    for batch in table.select([column]).to_batches():
        keys[start : start + len(batch)] = [hash_of(text) for text in batch.column(0).to_pylist()]
        start += len(batch)
    return keys


def take(table: pa.Table, rows: NDArray[Any]) -> pa.Table:
    """Rows by number, in that order. `Table.take` would copy the whole of a table that is mapped into memory."""
    batches = table.to_batches()
    ends = np.cumsum([len(batch) for batch in batches])
    which = np.searchsorted(ends, rows, side="right")
    order = np.argsort(which, kind="stable")
    pieces = []
    for number, group in groupby(order.tolist(), key=which.__getitem__):
        local = np.asarray(rows)[list(group)].astype(np.int64) - (ends[number] - len(batches[number]))
        pieces.append(batches[number].take(pa.array(local)))
    return pa.Table.from_batches(pieces, table.schema).take(pa.array(np.argsort(order)))


def hash_of(text: str) -> int:
    """64 bits of BLAKE2b of the text without case and superfluous space."""
    normal = " ".join(text.casefold().split())
    return int.from_bytes(hashlib.blake2b(normal.encode(), digest_size=8).digest(), "little")


def _split(keys: NDArray[np.uint64], share: float, most: int, seed: int) -> NDArray[np.uint8]:
    """Hold out whole documents: as many as give `share` of the rows, `most` rows at most, chosen by hash and seed."""
    if not 0 <= share < 1:
        raise InputError(f"held out is a share of the documents, from 0 to below 1, not {share}")
    part = np.full(len(keys), TRAIN, np.uint8)
    wanted = min(most, round(share * len(keys)))
    others = keys[keys != keys[0]]
    if not wanted or not len(others) or (others == others[0]).all():  # fewer than three documents
        return part
    del others
    salt = np.uint64(int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=8).digest(), "little"))
    places = keys ^ salt
    last = min(wanted, len(keys) - 1)
    first = np.sort(np.partition(places, last)[: last + 1])
    whole = first if wanted == len(keys) else first[first < first[-1]]
    part[places <= (whole[-1] if len(whole) else first[0])] = HELD_OUT
    return part


def _without_leaks(table: pa.Table, columns: tuple[str, ...], part: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Leave out training rows whose first two texts are among those of held-out ones."""
    held = np.flatnonzero(part == HELD_OUT)
    if not len(held):
        return part
    known: set[int] = set()
    for column in take(table.select(list(columns[:2])), held).columns:
        known.update(hash_of(text) for text in column.to_pylist())
    start = 0
    for batch in table.select(list(columns[:2])).to_batches():
        for column in batch.columns:
            for place, text in enumerate(column.to_pylist()):
                if part[start + place] == TRAIN and hash_of(text) in known:
                    part[start + place] = LEFT_OUT
        start += len(batch)
    return part


def counts(made: Prepared) -> dict[str, int]:
    """How many rows are in each part."""
    parts = {"training": TRAIN, "held_out": HELD_OUT, "left_out": LEFT_OUT}
    return {name: int((made.part == number).sum()) for name, number in parts.items()}


def describe(made: Prepared) -> dict[str, Any]:
    """What a model card says about the data."""
    return {
        **({"source": made.source} if made.source else {}),
        "shape": made.shape.value,
        **counts(made),
        **({"classes": list(made.classes)} if made.classes else {}),
    }


def save(made: Prepared) -> None:
    """Remember the parts beside the rows, so that a resumed run has the same ones."""
    np.save(made.folder / "part.npy", made.part, allow_pickle=False)
    facts = {
        "shape": made.shape.name,
        "texts": made.texts,
        "classes": made.classes,
        "low": made.low if np.isfinite(made.low) else 0.0,
        "high": made.high if np.isfinite(made.high) else 1.0,
        "source": made.source,
    }
    (made.folder / "data.json").write_text(json.dumps(facts), "utf-8")


def load(folder: Path) -> Prepared:
    """What `save` remembered."""
    facts = json.loads((folder / "data.json").read_text("utf-8"))
    return Prepared(
        Shape[facts["shape"]],
        folder,
        tuple(facts["texts"]),
        tuple(facts["classes"]),
        facts["low"],
        facts["high"],
        np.load(folder / "part.npy", allow_pickle=False),
        facts.get("source", ""),
    )


def once(run: RunFolder, source: Any, **options: Any) -> Prepared:
    """What `prepare` gives of these options, made once however often a run is resumed."""
    folder = run.folder / "data"
    with run.alone():
        if (folder / "data.json").is_file():
            return load(folder)
        with run.unless_wrong():
            made = prepare(source, folder, **options)
        save(made)
        return made
