"""The values that a head gives documents: from their stored vectors if they suffice, or else from their passages.

A classifier's logits are averaged over the passages of a document. A tagger's names are gathered from all of them.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow.compute as pc

from ...core.errors import InputError
from ..labels.document_labels import check_names, directions, encode_names
from ..labels.precision import choose, log_odds
from ..labels.zero_shot import fit_labels
from ..models import model_files
from ..models.heads.classifier import ProbeScorer, load_classifier
from ..models.heads.head_settings import CLASSIFIER, TAGGER
from ..models.heads.tagger import load_tagger
from ..models.settings import read_config
from ..store.tables import matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ...core.arrays import Floats, Ids, Positions
    from ..models.encoder import Encoder
    from ..models.heads.classifier import Classifier, Prediction
    from ..models.heads.tagger import Entity, Tagger
    from ..store.snapshot import Snapshot
    from ..store.stored_heads import StoredHead

_REFERENCE = 4_000  # more documents, beside those to label, with which names of labels are compared
_LIKELY = 0.5  # least probability of a tagger's name, unless a precision is promised
_MAX_NAMES = 100  # of a label in one document, the most frequent


@dataclass(frozen=True, slots=True)
class DocumentPassages:
    """The passages of some documents."""

    rows: pa.Table  # grouped by document
    documents: Ids  # ascending
    starts: Positions  # the first row of each document

    @classmethod
    def of(cls, snapshot: Snapshot, documents: Ids, columns: Sequence[str]) -> DocumentPassages:
        """Read columns of the passages of documents. Each document has passages."""
        rows = snapshot.take("chunks", snapshot.chunks_of(np.sort(documents)), ["document", *columns])
        owners = rows["document"].to_numpy()
        order = np.argsort(owners, kind="stable")
        present, starts = np.unique(owners[order], return_index=True)
        return cls(rows.take(order), present, starts)

    def vectors(self, dim: int) -> Floats:
        """Return the stored vectors, shape (passages, dim)."""
        return matrix(self.rows["vector"], dim)

    def mean(self, values: Floats) -> Floats:
        """Average rows, one a passage, over each document."""
        counts = np.diff(np.append(self.starts, len(values)))
        means: Floats = (np.add.reduceat(values, self.starts) / counts[:, None]).astype(np.float32)
        return means

    def subset(self, documents: Ids) -> DocumentPassages:
        """Return the passages of some of these documents."""
        mask = np.isin(self.rows["document"].to_numpy(), documents)
        rows = self.rows.filter(mask)
        present, starts = np.unique(rows["document"].to_numpy(), return_index=True)
        return DocumentPassages(rows, present, starts)


class Labeller(Protocol):
    """Gives the documents the values of its keys."""

    keys: tuple[str, ...]
    fingerprint: str
    columns: tuple[str, ...]  # of the passages that it reads

    def values(self, passages: DocumentPassages) -> list[tuple[Any, ...]]:
        """Return for each document the value of each key: a label, a number, or a list of labels, perhaps empty."""
        ...


class ClassifierLabeller:
    """A classifier. A probe on the vectors of this index encodes nothing."""

    def __init__(self, key: str, classifier: Classifier, encoder: Encoder, precision: float | None) -> None:
        """:raises InputError: when it reads pairs, or cannot promise the precision."""
        if classifier.settings.pairs:
            raise InputError(f"{classifier.name} reads pairs of texts: expected a classifier of single texts")
        classifier.predict(np.empty((0, 0), np.float32), precision=precision)  # raises if it cannot be promised
        self.keys: tuple[str, ...] = (key,)
        self.fingerprint = classifier.fingerprint
        self._classifier, self._precision, self._dim = classifier, precision, encoder.dim
        scorer = classifier.scorer
        is_same = classifier.settings.fingerprint == encoder.fingerprint
        self._probe = scorer if isinstance(scorer, ProbeScorer) and is_same else None
        self.columns: tuple[str, ...] = ("context",)
        if self._probe:
            self.columns = ("vector", "context") if self._probe.reads_words else ("vector",)

    def values(self, passages: DocumentPassages) -> list[tuple[Any, ...]]:
        """Classify the mean of a document's logits."""
        if self._probe:
            texts = passages.rows["context"].to_pylist() if self._probe.reads_words else []
            logits = self._probe.logits_of(passages.vectors(self._dim), texts)
        else:
            logits = self._classifier.scorer.logits(passages.rows["context"].to_pylist())
        predictions = self._classifier.predict(passages.mean(logits), precision=self._precision)
        return [(self._value(prediction),) for prediction in predictions]

    def _value(self, prediction: Prediction) -> Any:
        if self._classifier.settings.task == "number":
            return prediction.score
        labels = list(prediction.labels)
        return labels[0] if self._classifier.settings.task == "classes" and labels else labels


class TaggerLabeller:
    """A tagger: a key has the names that it found under a label, the most frequent first."""

    columns: tuple[str, ...] = ("text",)

    def __init__(self, key: str, tagger: Tagger, precision: float | None) -> None:
        """:raises InputError: when it gives no names, or cannot promise the precision."""
        self.fingerprint, self._tagger = tagger.fingerprint, tagger
        self._min_probability = _LIKELY if precision is None else tagger.floor(precision)
        self._labels = sorted({label.partition("-")[2] for label in tagger.labels} - {""})
        if not self._labels:
            raise InputError(f"{tagger.name} has the labels {', '.join(tagger.labels)}: expected B-NAME and I-NAME")
        self.keys: tuple[str, ...] = (
            (key,) if len(self._labels) == 1 else tuple(f"{key}.{label}" for label in self._labels)
        )

    def values(self, passages: DocumentPassages) -> list[tuple[Any, ...]]:
        """Gather the names in all passages of each document."""
        entities = self._tagger.tag(passages.rows["text"].to_pylist())
        ends = [*passages.starts[1:].tolist(), len(entities)]
        return [
            self._names([entity for of_passage in entities[start:end] for entity in of_passage])
            for start, end in zip(passages.starts.tolist(), ends, strict=True)
        ]

    def _names(self, entities: list[Entity]) -> tuple[list[str], ...]:
        counts: dict[str, Counter[str]] = {label: Counter() for label in self._labels}
        for entity in entities:
            if entity.probability >= self._min_probability:
                counts[entity.label][" ".join(entity.text.split())] += 1
        return tuple([name for name, _ in counts[label].most_common(_MAX_NAMES)] for label in self._labels)


class NamesLabeller:
    """Names of labels, which the encoder alone gives; see `labels.zero_shot`."""

    columns: tuple[str, ...] = ("vector",)

    def __init__(
        self, key: str, names: Sequence[str], encoder: Encoder, precision: float | None, snapshot: Snapshot
    ) -> None:
        """:raises InputError: when the names are not distinct, or too few."""
        check_names(names)
        self.keys: tuple[str, ...] = (key,)
        self._names, self._dim = tuple(names), encoder.dim
        self._precision = 0.9 if precision is None else precision
        self.fingerprint = hashlib.sha256(json.dumps([*names]).encode()).hexdigest()[:32]
        self._vectors, self._subjects = encode_names(encoder, names)
        rows = snapshot.document_rows
        owners = rows["id"].filter(pc.greater(rows["chunks"], 0)).to_numpy()
        sample = np.sort(np.random.default_rng(0).permutation(owners)[:_REFERENCE])
        self._reference = DocumentPassages.of(snapshot, sample, self.columns)

    def values(self, passages: DocumentPassages) -> list[tuple[Any, ...]]:
        """Compare documents with the names, beside a sample of the others."""
        is_other = ~np.isin(self._reference.documents, passages.documents)
        own, reference = (part.mean(part.vectors(self._dim)) for part in (passages, self._reference))
        fit = fit_labels(directions(np.concatenate([own, reference[is_other]])), self._vectors, self._subjects)
        sure = choose(log_odds(fit.evidence), self._precision)
        results = zip(fit.labels[: len(own)].tolist(), sure[: len(own)].tolist(), strict=True)
        return [(self._names[label] if is_sure else [],) for label, is_sure in results]


def load_labeller(head: StoredHead, encoder: Encoder, snapshot: Snapshot) -> Labeller:
    """Load the labeller of a head.

    :raises InputError: when its model is no classifier or tagger, or its names are no labels.
    :raises ModelNotFoundError: when there is no such model.
    """
    if head.names:
        return NamesLabeller(head.key, head.names, encoder, head.precision, snapshot)
    if _is_tagger(head.model):
        return TaggerLabeller(head.key, load_tagger(head.model), head.precision)
    return ClassifierLabeller(head.key, load_classifier(head.model), encoder, head.precision)


def load_stored(head: StoredHead, encoder: Encoder, snapshot: Snapshot) -> Labeller:
    """Load the labeller of a head that has labelled documents.

    :raises InputError: when its model is another one now, or for the reasons of `load_labeller`.
    :raises ModelNotFoundError: when there is no such model.
    """
    labeller = load_labeller(head, encoder, snapshot)
    if head.model and (labeller.keys, labeller.fingerprint) != (head.keys, head.fingerprint):
        precision = "" if head.precision is None else f" --precision {head.precision}"
        option = shlex.quote(f"{head.key}={head.model}") + precision
        raise InputError(
            f"the model of {head.key!r} is another one now: 'binocle enrich --head {option}' labels all documents anew"
        )
    return labeller


def _is_tagger(model: str) -> bool:
    if (Path(model) / model_files.PROBE).is_file():
        return False
    architectures = read_config(model_files.find(model, CLASSIFIER.role)).get("architectures") or [""]
    return str(architectures[0]).endswith(f"For{TAGGER.task}")
