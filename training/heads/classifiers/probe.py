"""Fit a probe on the vectors of an encoder: an unchanged base, or a tuned encoder. Needs no torch."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import save_file

from ....core.errors import InputError
from ....core.progress import Progress
from ....retriever.models.heads.classifier import TUNED_ENCODER, WORDS, ClassifierSettings, features, load_classifier
from ....retriever.models.load import load_encoder
from ....retriever.models.model_files import PROBE
from ...runs import environment
from ...runs.model_card import Card
from ...runs.training_run import LoopResult
from ..result import HeadResult
from .judge import facts_of, judge
from .kernel_ridge import fit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ....core.arrays import Floats
    from ....core.progress import OnProgress
    from ....retriever.models.encoder import Encoder
    from ....retriever.models.heads.kernel import KernelWeights
    from ...data.heads.examples import Example, Examples
    from ...encoders.heldout import Estimate
    from ...runs.training_run import TrainingRun
    from ..config import ClassifierConfig

_BLOCK = 2_000  # texts encoded between two events


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe on an encoder's vectors, fitted and measured."""

    run: TrainingRun[ClassifierConfig]
    examples: Examples
    weights: KernelWeights
    settings: ClassifierSettings
    measures: list[Estimate]  # of the held-out rows
    held_out_logits: Floats
    seconds: float  # of embedding and fitting
    tuned: Path | None  # folder of an encoder that was tuned for this probe, to be copied into its own

    @classmethod
    def fit(
        cls, run: TrainingRun[ClassifierConfig], examples: Examples, stored: str = "", tuned: Path | None = None
    ) -> Probe:
        """Embed the examples, fit the probe on them, and measure it on the held-out ones.

        :param stored: fingerprint of the encoder that gave the examples their vectors.
        :param tuned: folder of an encoder that was tuned for this probe; None: the run's base.
        :raises InputError: for vectors that are not finite.
        """
        run.report("loading the model")
        encoder = load_encoder(tuned or run.base)
        start = time.monotonic()
        is_stored, width = stored == encoder.fingerprint, encoder.dim * (4 if examples.pairs else 1)

        def vectors(rows: Sequence[Example]) -> Floats:
            if not rows:
                return np.empty((0, width), np.float32)
            if is_stored:
                return np.stack([row.vector for row in rows if row.vector is not None])
            return _embed(encoder, rows, run.progress)

        learned, held_out = vectors(examples.learned), vectors(examples.held_out)
        run.report("fitting a probe")
        unlabelled = vectors(examples.unlabelled), _texts(examples.unlabelled)
        targets = examples.targets(examples.learned)
        weights = fit(learned, targets, examples.task, run.config.seed, _texts(examples.learned), unlabelled)
        if not all(np.isfinite(part).all() for part in weights.arrays().values()):
            raise InputError(f"the fit gave no finite weights: expected finite vectors of {encoder.name}")
        seconds = time.monotonic() - start
        logits = weights.logits(held_out, _texts(examples.held_out))
        settings = ClassifierSettings(
            examples.task,
            examples.labels,
            examples.pairs,
            encoder=TUNED_ENCODER if tuned else encoder.name,
            fingerprint=encoder.fingerprint,
        )
        held_out_targets = examples.targets(examples.held_out)
        settings, measures = judge(logits, held_out_targets, settings, run.config.seed)
        return cls(run, examples, weights, settings, measures, logits, seconds, tuned)

    def save(self, folder: Path) -> None:
        """Write the weights and the words into a folder."""
        save_file(self.weights.arrays(), folder / PROBE)
        if self.weights.bag:
            self.weights.bag.write(folder / WORDS)

    @property
    def objective(self) -> str:
        """The method and its features, for the card."""
        words = f", and {len(self.weights.bag.columns):,} words" if self.weights.bag else ""
        return f"ridge regression with a Gaussian kernel on the encoder's vectors{words}"

    def write(self) -> HeadResult:
        """Write the folder and its card."""
        folder = self.run.new_model_folder()
        folder.mkdir()
        self.save(folder)
        (folder / "binocle.json").write_text(json.dumps({"classifier": self.settings.as_dict()}), "utf-8")
        if self.tuned:
            shutil.copytree(self.tuned, folder / TUNED_ENCODER)  # a run that is killed here needs it again
        fingerprint = load_classifier(folder).fingerprint
        examples = self.examples
        rows = {"training": len(examples.learned), "held_out": len(examples.held_out)}
        if examples.unlabelled:
            rows["unlabelled"] = len(examples.unlabelled)
        loop = self._cost(sum(rows.values()))
        if examples.left_out:
            rows["left_out"] = examples.left_out
        facts = facts_of(self.settings) | rows
        measures = [measure.as_dict() | {"when": "after"} for measure in self.measures]
        objective = self.objective
        if self.tuned:
            from .contrastive import OBJECTIVE

            objective = f"{OBJECTIVE}, then {objective}"
        card = Card(  # not `run.card`, which asks torch for the device
            kind="classifier",
            base=self.run.base,
            objective=objective,
            data=facts,
            config=asdict(self.run.config),
            measures=measures,
            seconds=loop.seconds,
            steps=loop.steps,
            texts_per_second=loop.texts_per_second,
            fingerprint=fingerprint,
            device=environment.device() if self.tuned else "cpu",
            bf16=self.run.bf16 if self.tuned else False,
        )
        self.run.finish(card, [], None)
        return HeadResult(self.run.out, "classifier", rows, loop, self.measures, fingerprint)

    def _cost(self, rows: int) -> LoopResult:
        """Return the cost of the fit, and of the steps of a tuned encoder."""
        if not self.tuned:
            return LoopResult(0, self.seconds, rows / max(self.seconds, 1e-9))
        steps = json.loads((self.tuned / "binocle.json").read_text("utf-8"))
        return LoopResult(steps["steps"], steps["seconds"] + self.seconds, steps["texts_per_second"])


def _embed(encoder: Encoder, rows: Sequence[Example], progress: OnProgress) -> Floats:
    """Encode texts block by block; a text that is there twice is encoded once."""
    texts = list(dict.fromkeys(row.text for row in rows))
    blocks = []
    for start in range(0, len(texts), _BLOCK):
        progress(Progress("embedding", start, len(texts)))
        blocks.append(features(encoder, texts[start : start + _BLOCK]))
    numbers = {text: number for number, text in enumerate(texts)}
    vectors: Floats = np.concatenate(blocks)[[numbers[row.text] for row in rows]]
    return vectors


def _texts(rows: Sequence[Example]) -> list[str]:
    return [row.text for row in rows if isinstance(row.text, str)]
