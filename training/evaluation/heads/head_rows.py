"""The kinds of judged rows that are for heads: for each its model, and its evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....core.errors import InputError
from ....retriever.models.heads.classifier import Classifier
from ....retriever.models.heads.reader import Reader
from ....retriever.models.heads.tagger import Tagger
from .answers import evaluate_answers
from .answers import load as load_reader
from .classes import evaluate_classes
from .classes import load as load_classifier
from .names import evaluate_names
from .names import load as load_tagger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..judged_rows import HeadRows
    from ..result import JudgedRowsResult

Head = Classifier | Tagger | Reader


@dataclass(frozen=True, slots=True)
class HeadRowsKind:
    """What is done with one kind of rows."""

    noun: str  # of the model
    rows: str  # for messages
    type: type
    load: Callable[[str | None], Head]
    evaluate: Callable[[Any, Any], JudgedRowsResult]


HEAD_ROWS = {
    "classes": HeadRowsKind("classifier", "texts with labels", Classifier, load_classifier, evaluate_classes),
    "names": HeadRowsKind("tagger", "texts with marked names", Tagger, load_tagger, evaluate_names),
    "answers": HeadRowsKind("reader", "questions with answers", Reader, load_reader, evaluate_answers),
}


def evaluate_head(rows: HeadRows, head: Any) -> JudgedRowsResult:
    """Evaluate a head on rows of its kind.

    :raises InputError: for any other model.
    """
    kind = HEAD_ROWS[rows.kind]
    if not isinstance(head, kind.type):
        raise InputError(f"{head.name} and {rows.name} do not fit: {kind.rows} are for a {kind.noun}")
    return kind.evaluate(rows, head)
