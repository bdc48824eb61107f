"""Read labelled texts: a class, a list of labels, or a number for each text or pair of texts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.checks import is_flag, is_real
from ....core.errors import InputError
from ....core.units import count_of
from ....core.words import encodable
from ....retriever.documents.document import metadata_of
from ..columns import document_of, head_columns
from ..dataset import HELD_OUT, LEFT_OUT, TRAIN, divide
from ..sources import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from ....core.arrays import Floats
    from ....retriever.models.heads.classifier import Text
    from ....retriever.retriever import Retriever

MAX_UNLABELLED = 3_000  # rows without labels
_MAX_LABELS = 10_000
_SHOWN = 60  # characters of a value in a message
_MAXIMUM = 1e30  # of a score: sums of many still fit into 32 bits
NUMBER = "score"  # the column of numbers, and the name of their only label


@dataclass(frozen=True, slots=True)
class Example:
    """A text or a pair of texts, with its labels or its number."""

    text: Text
    labels: tuple[str, ...]
    number: float
    document: str
    vector: Floats | None = None  # of the text, (dim,), where an index has it


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples of one task, in two parts."""

    task: str  # of `classifier.TASKS`
    labels: tuple[str, ...]  # in the order of their columns
    pairs: bool
    learned: list[Example]
    held_out: list[Example]
    unlabelled: tuple[Example, ...] = ()  # of the same kind
    left_out: int = 0  # rows of other documents with the text of a held-out row

    def targets(self, examples: list[Example]) -> Floats:
        """Return (examples, labels), 1 for each label that one has; (examples, 1), the number."""
        targets = np.zeros((len(examples), len(self.labels)), np.float32)
        columns = {label: column for column, label in enumerate(self.labels)}
        for row, example in enumerate(examples):
            if self.task == "number":
                targets[row] = example.number
            targets[row, [columns[label] for label in example.labels]] = 1
        return targets


def read_examples(
    source: str | Path | Iterable[Mapping[str, Any]], split: str, share: float, maximum: int, seed: int
) -> Examples:
    """Read and check every row, and hold some out.

    The columns are `text`, or `sentence1` and `sentence2`; and `label` (a class, or a list of labels) or `score`;
    or they have other usual names, such as `premise`, `hypothesis` and `category`, as in the first row. Rows of one
    text, or of one document (`document_id`, or another name of `columns.NAMES`), are in one part. So are pairs with
    the same first text, such as the premise of several hypotheses. A text of several documents, some of them held
    out, is not learned from.

    :param source: what `data.sources.rows` reads.
    :param split: of a data set.
    :param share: of the documents to hold out; `maximum` rows at most.
    :raises InputError: naming the place of the first row that does not fit.
    """
    examples: list[Example] = []
    names: dict[str, str] = {}
    task, pairs = "", False
    for location, row in rows(source, split):
        if not task:
            names = head_columns(row)
            task, pairs = _task(location, _renamed(row, names)), {"sentence1", "sentence2"} <= names.keys()
        examples.append(_example(location, _renamed(row, names), task, pairs=pairs))
    return _divided(examples, task, share, maximum, seed, pairs=pairs)


def read_passages(retriever: Retriever, key: str, share: float, maximum: int, seed: int) -> Examples:
    """Take the passages of an index with their vectors; a key of their documents' metadata has the label.

    Whole documents are held out. Documents without the key have no label: some of their passages are taken too. An
    empty list, which `enrich` stores where no class fits, is no label either, unless all values are lists.

    :raises InputError: when too few documents have the key, or a value is no label.
    """
    snapshot = retriever.snapshot()
    rows = snapshot.documents_by_id(snapshot.document_rows["id"].to_pylist(), ["id", "path", "metadata"]).values()
    metadata = {row["id"]: (row["path"], metadata_of(row)) for row in rows}
    labelled = {number: (path, facts[key]) for number, (path, facts) in metadata.items() if key in facts}
    if not labelled:
        raise InputError(f"no document of {retriever.path} has the key {key!r} in its metadata")
    task = "labels" if all(isinstance(value, list) for _, value in labelled.values()) else "classes"
    if task == "classes":
        labelled = {number: (path, value) for number, (path, value) in labelled.items() if value != []}
    examples, unlabelled = [], []
    random = np.random.default_rng(seed)
    chance = MAX_UNLABELLED / max(1, snapshot.chunks.count_rows())
    for batch in snapshot.read("chunks", ["document", "context", "vector"]).to_batches():
        texts = batch.select(["document", "context"]).to_pylist()
        for row, vector in zip(texts, _vectors(batch), strict=True):
            if row["document"] in labelled and row["context"].strip():
                path, value = labelled[row["document"]]
                example = _example(path, {"text": row["context"], "label": value}, task, pairs=False)
                examples.append(replace(example, document=path, vector=vector))
            elif row["context"].strip() and random.random() < chance:
                unlabelled.append(Example(row["context"], (), 0.0, "", vector))
    divided = _divided(examples, task, share, maximum, seed, pairs=False)
    return replace(divided, unlabelled=tuple(unlabelled))


def read_unlabelled(source: str | Path | Iterable[Mapping[str, Any]], *, pairs: bool) -> tuple[Example, ...]:
    """Read the first texts or pairs without labels, at most as many as a fit uses.

    :param source: what `data.sources.rows` reads, with the columns of `read_examples`; labels are not read.
    :raises InputError: naming the place of the first row that does not fit.
    """
    texts = islice(rows(source), MAX_UNLABELLED)
    examples = tuple(
        Example(_texts(location, _renamed(row, head_columns(row)), pairs=pairs), (), 0.0, "") for location, row in texts
    )
    if not examples:
        raise InputError("the data without labels are empty: expected texts")
    return examples


def _vectors(batch: pa.RecordBatch) -> Floats:
    """Return the vectors of a batch of chunks, (rows, dim)."""
    column = batch.column("vector")
    vectors: Floats = np.asarray(column.flatten(), np.float32).reshape(len(column), -1)
    return vectors


def _divided(examples: list[Example], task: str, share: float, maximum: int, seed: int, *, pairs: bool) -> Examples:
    """Hold out documents, and check the labels."""
    labels = tuple(sorted({label for example in examples for label in example.labels}))
    if task == "number":
        labels = (NUMBER,)
    elif len(labels) < 2 or len(labels) > _MAX_LABELS:
        have = count_of(len(labels), "different label")
        raise InputError(f"the data have {have}: expected 2 to {_MAX_LABELS:,}")
    documents, texts = (example.document for example in examples), (_first(example.text) for example in examples)
    part = divide(documents, texts, share, maximum, seed).tolist()
    learned, held_out = (
        [row for row, own in zip(examples, part, strict=True) if own == side] for side in (TRAIN, HELD_OUT)
    )
    return Examples(task, labels, pairs, learned, held_out, left_out=part.count(LEFT_OUT))


def _first(text: Text) -> str:
    """Return a text, or the first of a pair."""
    return text if isinstance(text, str) else text[0]


def _renamed(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a row with our names of columns beside its own.

    :param names: ours -> the row's.
    """
    return {**row, **{ours: row.get(theirs) for ours, theirs in names.items()}}


def _task(location: str, row: Mapping[str, Any]) -> str:
    if "label" in row:
        return "labels" if isinstance(row["label"], (list, tuple)) else "classes"
    if NUMBER in row:
        return "number"
    raise InputError(
        f"{location} has the columns {', '.join(map(str, row))}: expected text, or sentence1 and sentence2, with label "
        "or score"
    )


def _example(location: str, row: Mapping[str, Any], task: str, *, pairs: bool) -> Example:
    text = _texts(location, row, pairs=pairs)
    document = document_of(location, row) or _first(text)
    if task == "number":
        number = row.get(NUMBER)
        if isinstance(number, str):
            number = _number(number)
        if not is_real(number) or abs(number) > _MAXIMUM:  # type: ignore[arg-type]
            raise InputError(
                f"{location}: {NUMBER} is {str(row.get(NUMBER))[:_SHOWN]!r}: expected a finite number, up to "
                f"{_MAXIMUM:.0e} in size"
            )
        return Example(text, (), float(number), document)  # type: ignore[arg-type]
    value = row.get("label")
    values = list(value) if task == "labels" and isinstance(value, (list, tuple)) else [value]
    return Example(text, tuple(_label(location, item) for item in values), 0.0, document)


def _texts(location: str, row: Mapping[str, Any], *, pairs: bool) -> Text:
    names = ("sentence1", "sentence2") if pairs else ("text",)
    texts = [_text(location, row.get(name), name) for name in names]
    return (texts[0], texts[1]) if pairs else texts[0]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _label(location: str, value: Any) -> str:
    if isinstance(value, Integral) or is_flag(value):
        return str(value).lower()
    if not isinstance(value, str) or value.strip() in ("", "-"):  # the judges of inference agreed on none
        raise InputError(f"{location}: label is {str(value)[:_SHOWN]!r}: expected a name or a whole number as before")
    return encodable(value.strip())


def _text(location: str, value: object, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{location}: {name} is {str(value)[:_SHOWN]!r}: expected a text with words")
    return encodable(value)
