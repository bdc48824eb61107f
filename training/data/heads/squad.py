"""Read questions with their answers: SQuAD's JSON, or rows with a question, a context and answers.

Rajpurkar et al. 2016 (arXiv:1606.05250) and 2018 (arXiv:1806.03822). The second version has questions without answer.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....core.checks import is_whole
from ....core.errors import InputError
from ....core.printable import first_of_repr
from ....core.words import encodable
from ..columns import NAMES, document_of
from ..dataset import HELD_OUT, TRAIN, divide
from ..sources import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Row = tuple[str, Mapping[str, Any]]  # its location, for messages, and its fields

_SHOWN = 60  # characters of a text in a message


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a passage. No answers means that the passage does not answer it."""

    text: str
    passage: str
    answers: tuple[str, ...]  # each is a part of the passage; again for each place, if the data do not say which
    starts: tuple[int, ...]  # of the answers, in characters
    document: str  # that the passage is from: its id or title, else the passage itself


def read_questions(source: str | Path | Iterable[Mapping[str, Any]]) -> list[Question]:
    """Read and check every question.

    :param source: a .json or .json.gz file in SQuAD's layout; or what `data.sources.rows` reads, with columns
        `question`, `context` and `answers`, or with `context` and a list `qas` of these.
    :raises InputError: naming the location of the first question that does not fit.
    """
    questions: list[Question] = []
    passages: dict[str, str] = {}  # each is in memory once
    for location, row in _rows(source):
        for inner, fields in _flat(location, row):
            questions.append(_question(inner, fields, passages))
    if not questions:
        raise InputError("the data hold no questions to learn from")
    return questions


def is_squad(path: Path) -> bool:
    """Whether a file has the layout of SQuAD's JSON: articles with paragraphs."""
    try:
        articles = _articles(path) or []
    except InputError:
        return False
    return any(isinstance(article, dict) and "paragraphs" in article for article in articles[:1])


def split(questions: list[Question], share: float, maximum: int, seed: int) -> tuple[list[Question], list[Question]]:
    """Hold out whole documents. Return the questions to learn from and the held-out ones, about `maximum` at most.

    A question about the same passage in another document is in neither part.
    """
    documents = (question.document for question in questions)
    texts = (f"{question.text}\n{question.passage}" for question in questions)
    part = divide(documents, texts, share, maximum, seed)
    learned, held_out = (
        [question for question, own in zip(questions, part, strict=True) if own == side] for side in (TRAIN, HELD_OUT)
    )
    return learned, held_out


def _rows(source: str | Path | Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    if isinstance(source, (str, Path)):
        path = Path(source)
        if path.is_file() and (articles := _articles(path)) is not None:
            return _paragraphs(path, articles)
    return rows(source)


def _articles(path: Path) -> list[Any] | None:
    """Return the articles of a file in SQuAD's layout, or None for a file of rows."""
    if Path(path.name.removesuffix(".gz")).suffix.lower() != ".json":
        return None
    opener: Any = gzip.open if path.name.endswith(".gz") else open
    try:
        with opener(path, "rb") as stream:
            value = json.loads(stream.read())
    except (ValueError, EOFError, OSError, RecursionError):  # lines of JSON, or damage that `rows` describes
        return None
    articles = value.get("data") if isinstance(value, dict) else value
    if not isinstance(articles, list):
        raise InputError(f"{path} has no list 'data': expected the JSON of SQuAD, or one row a line in a .jsonl file")
    return articles


def _paragraphs(path: Path, articles: list[Any]) -> Iterator[Row]:
    for number, article in enumerate(articles):
        location = f"{path}, data[{number}]"
        for inner, paragraph in enumerate(_list(location, article, "paragraphs")):
            title = {"title": article["title"]} if "title" in article else {}
            yield f"{location}.paragraphs[{inner}]", title | _object(f"{location}.paragraphs[{inner}]", paragraph)


def _flat(location: str, row: Mapping[str, Any]) -> Iterator[Row]:
    """Yield a row for each question of a paragraph."""
    if "qas" not in row:
        yield location, row
        return
    for number, question in enumerate(_list(location, row, "qas")):
        inner = f"{location}.qas[{number}]"
        shared = {name: row[name] for name in ("title", "context", *NAMES["group"]) if name in row}
        yield inner, shared | _object(inner, question)


def _question(location: str, row: Mapping[str, Any], passages: dict[str, str]) -> Question:
    text, passage = _text(location, row, "question"), _text(location, row, "context")
    passage = passages.setdefault(passage, passage)
    answers = _answers(location, row, passage)
    impossible = row.get("is_impossible", False)
    if impossible not in (True, False):
        raise InputError(f"{location}: is_impossible is true or false, not {impossible!r}")
    if impossible and answers:
        raise InputError(f"{location}: is_impossible is true, but there are answers: expected one or the other")
    document = document_of(location, row, "title") or passage
    return Question(text, passage, tuple(text for text, _ in answers), tuple(start for _, start in answers), document)


def _answers(location: str, row: Mapping[str, Any], passage: str) -> list[tuple[str, int]]:
    """Return each answer with its start; one without a start comes once for each place where the passage has it."""
    answers = row.get("answers")
    if isinstance(answers, dict):  # as the hub has SQuAD: lists of texts and of starts
        texts, starts = _list(location, answers, "text"), _list(location, answers, "answer_start")
        if len(texts) != len(starts):
            raise InputError(f"{location} has {len(texts)} answers with {len(starts)} starts: expected one for each")
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if not isinstance(answers, list):
        raise InputError(f"{location} has no list of 'answers': expected one, empty where the context has no answer")
    return [pair for answer in answers for pair in _answer(location, answer, passage)]


def _answer(location: str, answer: Any, passage: str) -> list[tuple[str, int]]:
    fields = {"text": answer} if isinstance(answer, str) else _object(location, answer)
    text = _text(location, fields, "text")
    start: Any = fields.get("answer_start", passage.find(text))
    if not is_whole(start, 0) or passage[start : start + len(text)] != text:
        where = f" at character {start}" if "answer_start" in fields else ""
        raise InputError(
            f"{location}: the context does not have the answer {text[:_SHOWN]!r}{where}: an answer is a part of its "
            "context, letter by letter"
        )
    return (
        [(text, int(start))] if "answer_start" in fields else [(text, first) for first in _occurrences(text, passage)]
    )


def _occurrences(text: str, passage: str) -> list[int]:
    """Return the starts of an answer in a passage: of whole words, or inside other words if there are none."""
    left, right = r"\b" * text[0].isalnum(), r"\b" * text[-1].isalnum()
    whole, anywhere = (
        [match.start() for match in re.finditer(f"(?={pattern})", passage)]
        for pattern in (left + re.escape(text) + right, re.escape(text))
    )
    return whole or anywhere


def _text(location: str, row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{location}: {name} is {_shown(value)}: expected a text with words")
    return encodable(value)


def _list(location: str, row: Any, name: str) -> list[Any]:
    value = _object(location, row).get(name)
    if not isinstance(value, list):
        raise InputError(f"{location} has no list {name!r}: expected the layout of SQuAD")
    return value


def _object(location: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{location} is {_shown(value)}: expected an object with fields")
    return value


def _shown(value: Any) -> str:
    return "missing" if value is None else first_of_repr(value, _SHOWN)
