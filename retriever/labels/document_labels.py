"""Label the documents of an index, and keep the labels that reach a precision."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError
from ..models.encoder import encode_finite
from .precision import chance, choose, corrected, log_odds
from .subjects import SUBJECTS
from .zero_shot import fit_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ...core.arrays import Floats
    from ..models.encoder import Encoder
    from ..store.records import Record

NONE = "none"  # the label of an example that no name fits


@dataclass(frozen=True, slots=True)
class DocumentLabel:
    """The best label of a document, the chance that it is right, and whether it is sure enough."""

    document: str  # its id, or the path of a file
    label: str
    chance: float
    sure: bool


def label_documents(
    records: Iterable[Record],
    encoder: Encoder,
    names: Sequence[str],
    *,
    precision: float = 0.9,
    examples: Mapping[str, str] | None = None,
) -> list[DocumentLabel]:
    """Label each document by its vectors, the surest first.

    :param records: with their vectors; a document without passages gets no label.
    :param precision: the share of right labels among the labels that are kept.
    :param examples: the true label of documents drawn at random, or "none". Without them the precision is an estimate.
    :raises InputError: when the names are not distinct, or an example names another label or no document.
    """
    check_names(names)
    documents, vectors = _document_vectors(records)
    if not documents:
        raise InputError("there are no documents to label")
    fit = fit_labels(vectors, *encode_names(encoder, names))
    odds = log_odds(fit.evidence)
    if examples is not None:
        rows = _rows_of(examples, documents, names)
        right = np.array([names[fit.labels[row]] == examples[documents[row]] for row in rows], bool)
        odds = corrected(odds, odds[rows], right)
    mask, chances = choose(odds, precision), chance(odds)
    order = np.argsort(-chances, kind="stable").tolist()
    return [
        DocumentLabel(documents[row], names[fit.labels[row]], float(chances[row]), bool(mask[row])) for row in order
    ]


def sample_records(records: Iterable[Record], count: int) -> list[Record]:
    """Draw documents to label by hand, always the same ones; a name that a terminal cannot show is left out."""
    candidates = [record for record in records if record.passages and record.id.isprintable()]
    order = np.random.default_rng(0).permutation(len(candidates))[:count].tolist()
    return [candidates[number] for number in order]


def read_examples(file: Path) -> dict[str, str]:
    """Read true labels from a CSV file with the columns document and label; rows without a label are left out.

    :raises InputError: when it is no such file, or gives a document two labels.
    """
    examples: dict[str, str] = {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.DictReader(stream)
            if not {"document", "label"} <= set(rows.fieldnames or ()):
                raise InputError(f"{file} has no columns document and label in its first line")
            for row in rows:
                document, label = row["document"], (row["label"] or "").strip()
                if label and (earlier := examples.setdefault(document, label)) != label:
                    raise InputError(
                        f"{file}:{rows.line_num}: {document!r} has the label {label!r} here and {earlier!r} above: "
                        "expected one label for each document"
                    )
            return examples
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file} is not a CSV file in UTF-8 ({error})") from None


def check_names(names: Sequence[str]) -> None:
    """:raises InputError: when these names of labels are not distinct, or too few."""
    if len(set(names)) < max(2, len(names)) or not all(map(str.strip, names)) or NONE in names:
        raise InputError(f"{', '.join(names)!r} are no labels: expected at least two different ones, and not {NONE!r}")


def encode_names(encoder: Encoder, names: Sequence[str]) -> tuple[Floats, Floats]:
    """Return the vectors of names, shape (names, dim), and of `SUBJECTS`, shape (subjects, dim)."""
    vectors = encode_finite(encoder, [*names, *SUBJECTS], kind="query")
    return vectors[: len(names)], vectors[len(names) :]


def _document_vectors(records: Iterable[Record]) -> tuple[list[str], Floats]:
    """Return the ids of documents, and the direction of the mean of their passages, shape (documents, dim)."""
    documents: list[str] = []
    means: list[Floats] = []
    for record in records:
        if record.vectors is not None and len(record.vectors):
            documents.append(record.id)
            means.append(record.vectors.mean(0))
    return documents, directions(np.array(means, np.float32))


def directions(vectors: Floats) -> Floats:
    """Return vectors, shape (documents, dim), with length 1."""
    units: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return units


def _rows_of(examples: Mapping[str, str], documents: Sequence[str], names: Sequence[str]) -> list[int]:
    numbers = {document: number for number, document in enumerate(documents)}
    for document, label in examples.items():
        if document not in numbers:
            raise InputError(f"the example {document!r} is no labelled document of the index")
        if label not in (*names, NONE):
            raise InputError(f"the example {document!r} has the label {label!r}: expected one of --as, or {NONE!r}")
    return [numbers[document] for document in examples]
