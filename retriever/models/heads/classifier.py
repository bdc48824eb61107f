"""Classify texts, or pairs of texts: into one of several classes, with any number of labels, or by a number.

The head is one on an encoder's vectors (a probe), or a model that was fine-tuned whole. Neither needs torch where the
encoder is of the BERT family.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ....core.checks import is_real, is_whole, listed, precision_of
from ....core.errors import EncoderMismatchError, InputError
from ....core.files import expand_home
from ....core.words import encodable
from ..bert.weights import load_weights
from ..load import load_encoder
from ..model_files import PROBE
from ..settings import read_config
from .bag_of_words import BagOfWords
from .head import load_head
from .head_settings import CLASSIFIER, check_settings
from .kernel import KernelWeights
from .promised_precision import Precisions, are_precisions, threshold

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from ....core.arrays import Floats
    from ..encoder import Encoder
    from .head import EncoderWithHead

    Text = str | tuple[str, str]

WORDS = "words.json"  # of a probe, in its folder, if it has any
TUNED_ENCODER = "./encoder"  # in its folder, if the encoder was tuned for it; no other encoder has this name
TASKS = ("classes", "labels", "number")  # one of them; any number of them; a regression
_PROBLEMS = {"multi_label_classification": "labels", "regression": "number"}  # transformers' names
_LENGTH = 256  # tokens of a text, of a model that does not say


@dataclass(frozen=True, slots=True)
class ClassifierSettings:
    """The meaning of a classifier's logits; `binocle.json` of its folder has it."""

    task: str  # of TASKS
    labels: tuple[str, ...]
    pairs: bool = False  # whether it reads two texts together
    temperature: float = 1.0  # that divides the logits (Guo et al. 2017, arXiv:1706.04599)
    sure: Precisions = ()
    length: int = _LENGTH  # tokens that are read
    encoder: str = ""  # of a probe: a folder or name, or TUNED_ENCODER
    fingerprint: str = ""  # of that encoder

    @classmethod
    def read(cls, folder: Path) -> ClassifierSettings:
        """Read them; without them, those of a model of transformers.

        :raises InputError: when a value is wrong.
        """
        file = folder / "binocle.json"
        try:
            facts = json.loads(file.read_text("utf-8"))["classifier"] if file.is_file() else None
            if facts is None:
                return cls.of_config(read_config(folder))
            facts |= {"labels": tuple(facts["labels"]), "sure": tuple(map(tuple, facts["sure"]))}
            settings = cls(**facts)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InputError(f"{file} does not describe a classifier: copy the model folder again") from None
        has_names = all(isinstance(text, str) for text in settings.labels)
        rules = {
            "task": (settings.task in TASKS, f"one of {', '.join(TASKS)}"),
            "labels": (bool(settings.labels) and has_names, "a list of names"),
            "temperature": (is_real(settings.temperature) and settings.temperature > 0, "a number above 0"),
            "sure": (are_precisions(settings.sure), "pairs of a probability and a precision"),
            "length": (is_whole(settings.length, 3), "a whole number of tokens from 3"),
            "encoder": (isinstance(settings.encoder, str), "a text"),
            "fingerprint": (isinstance(settings.fingerprint, str), "a text"),
        }
        check_settings(folder, "classifier", settings, rules)
        return settings

    @classmethod
    def of_config(cls, config: dict[str, Any]) -> ClassifierSettings:
        """Take the task from a configuration of transformers; the labels come with the weights."""
        return cls(_PROBLEMS.get(str(config.get("problem_type")), "classes"), ())

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for JSON."""
        return asdict(self)

    def threshold(self, precision: float) -> float:
        """Return the lowest probability threshold that reaches this precision on the held-out rows.

        :raises InputError: when no probability was that precise.
        """
        return threshold(self.sure, precision, "classifier")


@dataclass(frozen=True, slots=True)
class Prediction:
    """The labels of a text, and the scores of all labels, best first.

    A score is the probability of a class or label; of the task "number" it is the number.
    """

    labels: tuple[str, ...]  # the likeliest class; every label that is likelier than not; none of a number
    scores: dict[str, float]

    @property
    def score(self) -> float:
        """The highest score."""
        return next(iter(self.scores.values()))


class Scorer(Protocol):
    """The source of the logits: a probe on vectors, or a whole model."""

    name: str
    fingerprint: str

    def logits(self, texts: Sequence[Text]) -> Floats:
        """Return logits, shape (texts, labels)."""
        ...


class Classifier:
    """A classifier of texts; `load_classifier` returns one."""

    def __init__(self, scorer: Scorer, settings: ClassifierSettings) -> None:
        self.scorer, self.settings = scorer, settings
        self.name, self.fingerprint = scorer.name, scorer.fingerprint

    def classify(self, texts: Sequence[Text], *, precision: float | None = None) -> list[Prediction]:
        """Return the labels of each text.

        :param texts: texts, or pairs of them where the classifier reads pairs.
        :param precision: promised share of right classes: texts that are less sure get none.
        :raises InputError: when they are no list, the texts are of the other kind, the precision cannot be promised, or
            the scores are no finite numbers.
        """
        floor = self._floor(precision)
        return self._predictions(self.scorer.logits(_checked(texts, pairs=self.settings.pairs)), floor)

    def predict(self, logits: Floats, *, precision: float | None = None) -> list[Prediction]:
        """Return the labels of texts from their logits, shape (texts, labels); see `classify`."""
        return self._predictions(logits, self._floor(precision))

    def _predictions(self, logits: Floats, floor: float) -> list[Prediction]:
        if not np.isfinite(logits).all():
            raise InputError(f"{self.name} gives scores that are no finite numbers: train it again, or copy it again")
        return [_prediction(row, self.settings, floor) for row in logits]

    def _floor(self, precision: float | None) -> float:
        """Return the least probability of a class that is given."""
        precision = precision_of(precision)
        if precision is None:
            return 0.0
        if self.settings.task != "classes":
            raise InputError("a precision is promised for one of several classes: leave it out")
        return self.settings.threshold(precision)


def _checked(texts: Sequence[Text], *, pairs: bool) -> list[Text]:
    """Return the texts, or pairs of them, as a tokenizer takes them."""
    if pairs:
        return [_pair(text) for text in listed(texts, "pairs of texts")]
    return [_single(text) for text in listed(texts, "texts")]


def _pair(text: Text) -> Text:
    if isinstance(text, (tuple, list)) and len(text) == 2 and all(isinstance(half, str) for half in text):
        return encodable(text[0]), encodable(text[1])
    raise InputError(f"this classifier reads pairs of texts, but {str(text)[:60]!r} is none")


def _single(text: Text) -> Text:
    if isinstance(text, str):
        return encodable(text)
    raise InputError(f"this classifier reads single texts, but one of type {type(text).__name__} came")


def _prediction(logits: Floats, settings: ClassifierSettings, floor: float) -> Prediction:
    likely = probabilities(logits[None], settings)[0]
    order = np.argsort(-likely, kind="stable").tolist()
    scores = {settings.labels[number]: float(likely[number]) for number in order}
    if settings.task == "number":
        return Prediction((), scores)
    best = settings.labels[order[0]]
    labels = [best] * (scores[best] >= floor)
    if settings.task == "labels":
        labels = [label for label, score in scores.items() if score >= 0.5]
    return Prediction(tuple(labels), scores)


def probabilities(logits: Floats, settings: ClassifierSettings) -> Floats:
    """Return the probabilities of logits, both (texts, labels); numbers as they are."""
    if settings.task == "number":
        return logits
    logits = logits / np.float32(settings.temperature)
    if settings.task == "labels":
        return (1 / (1 + np.exp(-np.clip(logits, -80, 80)))).astype(np.float32)
    likely = np.exp(logits - logits.max(1, keepdims=True))
    shares: Floats = likely / likely.sum(1, keepdims=True)
    return shares


def features(encoder: Encoder, texts: Sequence[Text]) -> Floats:
    """Return the vectors of texts; of pairs u, v, |u - v| and u * v, one after the other (arXiv:1705.02364)."""
    if not texts or isinstance(texts[0], str):
        return encoder.encode([str(text) for text in texts])
    left, right = (encoder.encode([text[side] for text in texts]) for side in (0, 1))
    return np.concatenate([left, right, np.abs(left - right), left * right], 1)


class ProbeScorer:
    """A head on an encoder's vectors."""

    def __init__(self, encoder: Encoder, weights: KernelWeights, name: str, fingerprint: str) -> None:
        self.name, self.fingerprint = name, fingerprint
        self._encoder, self._weights = encoder, weights

    def logits(self, texts: Sequence[Text]) -> Floats:
        """Return logits, shape (texts, labels)."""
        singles = [text for text in texts if isinstance(text, str)]  # a probe on pairs has no words
        return self.logits_of(features(self._encoder, texts), singles)

    @property
    def reads_words(self) -> bool:
        """Whether it needs the texts beside their vectors."""
        return self._weights.bag is not None

    def logits_of(self, vectors: Floats, texts: Sequence[str] = ()) -> Floats:
        """Return the logits of vectors of its encoder and of their texts, shape (vectors, labels)."""
        return self._weights.logits(vectors, texts)


class HeadScorer:
    """A model that was fine-tuned with its head."""

    def __init__(self, head: EncoderWithHead, length: int) -> None:
        self.name, self.fingerprint, self._head = head.name, head.fingerprint, head
        tokenizer = head.tokenizer()
        self._tokenizer = type(tokenizer).from_str(tokenizer.to_str())  # the other one does not truncate
        self._tokenizer.enable_truncation(min(length, head.settings.limit))

    def encodings(self, texts: Sequence[Text]) -> list[Any]:
        """Return the tokens of texts as the head reads them."""
        return list(self._tokenizer.encode_batch_fast(list(texts)))

    def logits(self, texts: Sequence[Text]) -> Floats:
        """Return logits, shape (texts, labels)."""
        rows = self._head.logits(self.encodings(texts))
        return np.stack(rows) if rows else np.empty((0, len(self._head.settings.labels)), np.float32)


def load_classifier(name: str | os.PathLike[str]) -> Classifier:
    """Load a classifier by folder or name: a probe, or a model with a head.

    :raises ModelNotFoundError: when the weights are neither on this machine nor on the hub.
    :raises InputError: when the model is no classifier, or is damaged.
    :raises EncoderMismatchError: when the encoder of a probe is another one now.
    """
    if isinstance(name, (str, Path)) and (expand_home(name) / PROBE).is_file():
        return _load_probe(expand_home(name).resolve())
    head = load_head(name, CLASSIFIER)
    settings = ClassifierSettings.read(head.folder)
    settings = settings if settings.labels else replace(settings, labels=head.settings.labels)
    if len(settings.labels) != len(head.settings.labels):
        raise InputError(f"{head.folder} has other labels in binocle.json than in config.json: copy it again")
    return Classifier(HeadScorer(head, settings.length), settings)


def _load_probe(folder: Path) -> Classifier:
    settings = ClassifierSettings.read(folder)
    arrays = load_weights(folder / PROBE)
    encoder = load_encoder(folder / TUNED_ENCODER if settings.encoder == TUNED_ENCODER else settings.encoder)
    if encoder.fingerprint != settings.fingerprint:
        raise EncoderMismatchError(
            f"{folder} was trained on {settings.encoder} (fingerprint {settings.fingerprint[:8]}), which is another "
            f"encoder now ({encoder.fingerprint[:8]}): train it again"
        )
    bag = BagOfWords.read(folder / WORDS, arrays["rarity"]) if "rarity" in arrays and not settings.pairs else None
    dim = encoder.dim * (4 if settings.pairs else 1)
    weights = KernelWeights.of(arrays, folder / PROBE, len(settings.labels), dim, bag)
    meaning = json.dumps([settings.task, settings.labels])  # equal weights can belong to classes of other names
    digest = hashlib.sha256(encoder.fingerprint.encode() + weights.tobytes() + meaning.encode()).hexdigest()[:32]
    return Classifier(ProbeScorer(encoder, weights, str(folder), digest), settings)
