"""Read a file of judged rows: pairs, queries with passages, texts with their class or names, questions with answers.

Formats are the same as for training: JSON lines, CSV or TSV with a header row, Parquet, and for heads CoNLL's columns
and SQuAD's JSON. The column names decide the kind. Usual names of common data sets are known too.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...core.errors import InputError
from ..data.columns import NAMES, head_columns, shown
from ..data.heads.squad import is_squad, read_questions
from ..data.heads.tagged import is_conll, read_texts
from ..data.sources import rows as rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..data.heads.squad import Question
    from ..data.heads.tagged import TaggedText

    Row = dict[str, Any]

Kind = Literal["similarity", "pairs", "reranking", "classes", "names", "answers"]

_FIRST, _SECOND, _SCORE, _LABEL = (NAMES[column] for column in ("first", "second", "score", "label"))
_QUERY = ("query", "anchor", "question")
_POSITIVE = ("positive", "pos", "positives", "relevant")
_NEGATIVE = ("negative", "neg", "negatives", "irrelevant", "non_relevant")
_EXPECTED = (
    "expected the columns sentence1, sentence2 and score; or text1, text2 and label (0 or 1); "
    "or query, positive and negative; or text and label; or text and entities; or question, context and answers"
)
_LABELS = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0}


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of texts with people's judgements: a score on any scale, or a label 0 or 1."""

    name: str
    kind: Kind
    left: list[str]
    right: list[str]
    gold: list[float]


@dataclass(frozen=True, slots=True)
class Rankings:
    """Queries, each with relevant and irrelevant passages to rank."""

    name: str
    queries: list[str]
    positives: list[list[str]]
    negatives: list[list[str]]


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts, each with its class."""

    name: str
    texts: list[str]
    labels: list[str]
    kind: Kind = "classes"


@dataclass(frozen=True, slots=True)
class TaggedTexts:
    """Texts, each with the spans of its names."""

    name: str
    texts: list[TaggedText]
    kind: Kind = "names"


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions, each with its passage and its answers there, perhaps none."""

    name: str
    questions: list[Question]
    kind: Kind = "answers"


HeadRows = LabelledTexts | TaggedTexts | Questions


def read(path: str | Path) -> Pairs | Rankings | HeadRows:
    """Read a whole file of judged rows.

    :raises InputError: naming the file and line of the first row that does not fit, or the columns of the file.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if is_conll(path):
        if not (texts := read_texts(path)):
            raise InputError(f"{path} holds no rows: {_EXPECTED}")
        return TaggedTexts(name_of(path), texts)
    if is_squad(path):
        return Questions(name_of(path), read_questions(path))
    rows = rows_of(path)
    try:
        where, first = next(rows)
    except StopIteration:
        raise InputError(f"{path} holds no rows: {_EXPECTED}") from None
    kind = _kind(where, first)
    all_rows = chain([(where, first)], rows)
    if kind == "names":
        return TaggedTexts(name_of(path), read_texts(path))
    if kind == "answers":
        return Questions(name_of(path), read_questions(path))
    if kind == "classes":
        return _labelled(name_of(path), all_rows)
    return _rankings(name_of(path), all_rows) if kind == "reranking" else _pairs(path, kind, all_rows)


def name_of(path: Path) -> str:
    """Return the name of a file's data: sts for sts.tsv.gz."""
    return Path(path.name.removesuffix(".gz")).stem


def _kind(where: str, row: Row) -> Kind:
    if _named(row, _QUERY) and (_columns(row, _POSITIVE) or _columns(row, _NEGATIVE)):
        return "reranking"
    if _named(row, _FIRST) and _named(row, _SECOND):
        if _named(row, _SCORE):
            return "similarity"
        if _named(row, _LABEL):
            return "pairs"
    if "context" in row and ("answers" in row or "qas" in row):
        return "answers"
    if {"tokens", "tags"} <= row.keys() or ({"text", "entities"} <= row.keys() and "label" not in row):
        return "names"
    if {"text", "label"} <= head_columns(row).keys():
        return "classes"
    columns = ", ".join(map(repr, list(row)[:8])) or "none"
    raise InputError(f"{where} has the columns {columns}: {_EXPECTED}")


def _named(row: Row, names: Sequence[str]) -> str | None:
    """Return the column with one of these names, in any case."""
    columns = {column.lower(): column for column in row}
    return next((columns[name] for name in names if name in columns), None)


def _columns(row: Row, names: Sequence[str]) -> list[str]:
    """Return all columns with one of these names, also numbered: negative_1, negative_2, …"""
    return [column for column in row if re.sub(r"_?[0-9]+$", "", column.lower()) in names]


def _pairs(path: Path, kind: Kind, rows: Iterator[tuple[str, Row]]) -> Pairs:
    pairs = Pairs(name_of(path), kind, [], [], [])
    for where, row in rows:
        pairs.left.append(_text(where, row, _FIRST))
        pairs.right.append(_text(where, row, _SECOND))
        pairs.gold.append(_score(where, row) if kind == "similarity" else _label(where, row))
    if len(set(pairs.gold)) < 2:
        judgement = "score" if kind == "similarity" else "label"
        raise InputError(f"{path} has the {judgement} {pairs.gold[0]:g} in every row: nothing can be told apart by it")
    return pairs


def _rankings(name: str, rows: Iterator[tuple[str, Row]]) -> Rankings:
    rankings = Rankings(name, [], [], [])
    for where, row in rows:
        positives, negatives = _passages(where, row, _POSITIVE), _passages(where, row, _NEGATIVE)
        both = sorted(set(positives) & set(negatives))
        if both:
            raise InputError(f"{where} has {both[0][:60]!r} as positive and as negative: keep one of them")
        rankings.queries.append(_text(where, row, _QUERY))
        rankings.positives.append(positives)
        rankings.negatives.append(negatives)
    return rankings


def _labelled(name: str, rows: Iterator[tuple[str, Row]]) -> LabelledTexts:
    texts = LabelledTexts(name, [], [])
    columns: dict[str, str] = {}
    for where, row in rows:
        columns = columns or head_columns(row)
        label = row.get(columns["label"])
        if isinstance(label, (bool, int)):
            label = str(label).lower()
        if not isinstance(label, str) or not label.strip():
            raise InputError(f"{where}: expected the name of a class in {columns['label']!r}, not {shown(label)}")
        texts.texts.append(_text(where, row, (columns["text"],)))
        texts.labels.append(label.strip())
    return texts


def _text(where: str, row: Row, names: Sequence[str]) -> str:
    value = row.get(_named(row, names) or names[0])
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: expected a text in {_named(row, names) or names[0]!r}, not {shown(value)}")
    return value


def _score(where: str, row: Row) -> float:
    value = row.get(_named(row, _SCORE) or _SCORE[0])
    try:
        score = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise InputError(f"{where}: expected a number in {_named(row, _SCORE) or _SCORE[0]!r}, not {shown(value)}")
    return score


def _label(where: str, row: Row) -> float:
    value = row.get(_named(row, _LABEL) or _LABEL[0])
    label = _LABELS.get(str(value).strip().lower())
    if label is None:
        raise InputError(
            f"{where}: expected 0 or 1 in {_named(row, _LABEL) or _LABEL[0]!r}, not {shown(value)}; "
            "name the column score if it says how alike the texts are"
        )
    return label


def _passages(where: str, row: Row, names: Sequence[str]) -> list[str]:
    """Return the different passages of a row, from one column with a text or a list, or from several."""
    passages: list[str] = []
    for column in _columns(row, names):
        value = row[column]
        for passage in value if isinstance(value, list) else [value]:
            if not isinstance(passage, str) or not passage.strip():
                raise InputError(f"{where}: expected a text, or a list of them, in {column!r}, not {shown(passage)}")
            passages.append(passage)
    if not passages:
        raise InputError(f"{where} has no {names[0]}: a query needs at least one positive and one negative passage")
    return list(dict.fromkeys(passages))
