"""Tune an encoder on few labelled texts: texts of one class come closer, and those of other classes move apart.

SetFit (Tunstall et al. 2022, arXiv:2209.11055): a probe on the tuned encoder's vectors is the classifier. Instead of
SetFit's pairs of two classes, the texts of the other pairs in a batch are the negatives. A batch has at most one pair
of a class.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import InputError
from ....retriever.models import model_files
from ....retriever.models.heads.classifier import TUNED_ENCODER
from ....retriever.models.load import load_encoder
from ....retriever.models.settings import ModelSettings
from ...data.dataset import hash_of
from ...encoders.config import EncoderConfig
from ...encoders.train import train_encoder
from ...runs.run_folder import folder_of
from ..config import default_learning_rate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ...data.heads.examples import Examples
    from ...runs.training_run import TrainingRun
    from ..config import ClassifierConfig

OBJECTIVE = "contrastive learning of the encoder from pairs of one class (arXiv:2209.11055)"
_STEPS = 60
_PAIRS = 16  # of a batch, at most
_TOKENS = 48  # of a text that are read in training: two or three sentences
_RATE = 0.5  # of the learning rate of a head: fewer steps on fewer texts


def tune_encoder(run: TrainingRun[ClassifierConfig], pairs: list[dict[str, str]]) -> Path:
    """Tune the base of a run, and return the folder of the encoder, which is in the run's own.

    A run that was killed goes on: with the last checkpoint, or with the finished encoder.
    """
    folder = run.folder / TUNED_ENCODER
    if folder.is_dir() and not folder_of(folder).exists():
        return folder
    base = model_files.find(run.base)
    config = EncoderConfig(
        objective="symmetric-ranking",
        steps=_STEPS,
        batch_size=min(_PAIRS, len({pair["document_id"] for pair in pairs})),
        learning_rate=_RATE * default_learning_rate(load_encoder(run.base).dim),
        max_length=_TOKENS,
        held_out=0.0,
        query_prompt=ModelSettings.read(base).document_prompt,  # both texts of a pair are documents
        bf16=run.config.bf16,
        seed=run.config.seed,
    )
    train_encoder(pairs, folder, base=run.base, config=config, progress=run.progress)
    return folder


def class_pairs(examples: Examples, seed: int) -> list[dict[str, str]]:
    """Return pairs of different texts of one class, as many of each class, for all steps.

    :raises InputError: unless the rows are single texts of one class each, and two classes have two texts.
    """
    if examples.task != "classes" or examples.pairs:
        raise InputError("contrastive training takes single texts, each of one class: leave it out")
    texts: dict[str, dict[int, str]] = {}
    for example in examples.learned:
        assert isinstance(example.text, str)
        texts.setdefault(example.labels[0], {})[hash_of(example.text)] = example.text
    classes = {label: [*different.values()] for label, different in texts.items() if len(different) > 1}
    if len(classes) < 2:
        raise InputError(
            "contrastive training compares texts of one class: expected two classes with two different texts to learn "
            f"from, but {len(classes)} of {len(texts)} have as many"
        )
    random = np.random.default_rng(seed)
    count = math.ceil(_STEPS * min(_PAIRS, len(classes)) / len(classes))
    return [
        {"query": query, "positive": positive, "document_id": label}
        for label, different in sorted(classes.items())
        for query, positive in itertools.islice(_neighbours(different, random), count)
    ]


def _neighbours(texts: list[str], random: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Yield pairs without end: each text with the next one in a circle, which is then shuffled anew."""
    while True:
        order = random.permutation(len(texts)).tolist()
        for first, second in zip(order, [*order[1:], order[0]], strict=True):
            yield texts[first], texts[second]
