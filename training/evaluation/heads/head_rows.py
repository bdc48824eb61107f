"""The kinds of judged rows that are for heads: for each its model, and its evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....core.errors import InputError
from ....retriever.models.heads.classifier import Classifier
from ....retriever.models.heads.reader import Reader, load_reader
from ....retriever.models.heads.tagger import Tagger, load_tagger
from .answers import evaluate_answers
from .classes import evaluate_classes, load_text_classifier
from .names import evaluate_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..judged_rows import HeadRows
    from ..result import JudgedRowsResult

Head = Classifier | Tagger | Reader


@dataclass(frozen=True, slots=True)
class HeadRowsKind:
    """A kind of judged rows: the head that evaluates them, and the function that measures it."""

    noun: str  # of the model
    rows: str  # for messages
    type: type
    load: Callable[[str], Head]
    evaluate: Callable[[Any, Any], JudgedRowsResult]


HEAD_ROWS = {
    "classes": HeadRowsKind("classifier", "texts with labels", Classifier, load_text_classifier, evaluate_classes),
    "names": HeadRowsKind("tagger", "texts with marked names", Tagger, load_tagger, evaluate_names),
    "answers": HeadRowsKind("reader", "questions with answers", Reader, load_reader, evaluate_answers),
}


def load_head(rows: HeadRows, model: str | None) -> Head:
    """Load the head that rows of this kind are for.

    :raises InputError: without a model, or when the model is no such head.
    """
    kind = HEAD_ROWS[rows.kind]
    if model is None:
        raise InputError(f"{kind.rows} are for a {kind.noun}: give it as --model")
    return kind.load(model)


def evaluate_head(rows: HeadRows, head: Any) -> JudgedRowsResult:
    """Evaluate a head on rows of its kind.

    :raises InputError: for any other model.
    """
    kind = HEAD_ROWS[rows.kind]
    if not isinstance(head, kind.type):
        raise InputError(f"{head.name} and {rows.name} do not fit: {kind.rows} are for a {kind.noun}")
    return kind.evaluate(rows, head)
