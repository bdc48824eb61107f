"""Fit an index's encoder to its documents, without a label, and put it in service only if it is better.

Queries are made from the documents' own structure (`pairs`); a teacher that is already there (the index's hybrid
search, a cross-encoder or a larger encoder) ranks the passages for each; the encoder learns these rankings
(`ranking_distillation`); and queries made from documents that it has not seen decide, by a paired test, whether the
index changes.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import checks as limits
from ...core.errors import InputError
from ...retriever.models.defended_encoder import DefendedEncoder
from ...retriever.models.files import find
from ...retriever.models.load import load_encoder
from ..data import documents as corpus
from ..encoders.config import EncoderConfig
from ..evaluation import significance
from ..runs import environment
from ..runs.training_run import TrainingRun
from . import query_generation as queries
from . import teachers
from .ranking_distillation import DistillationConfig, Passages, learn_ranking

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ...retriever.models import encoder as encoders
    from ...retriever.retriever import Retriever
    from ..runs.model_card import Card
    from ..runs.training_run import LoopResult
    from .query_generation import SyntheticPair


_ALPHA = 0.05
_MOST = 20_000  # passages that are learned from; of a larger index, those of some of its documents
_RIVALS = 3_000  # passages that a held-out query's own is to be told from, at most
_FEW = 8  # documents that are too few to learn from
_JUDGES = 12  # documents that are to judge, or half of all
_SAME = 1e-6  # cosines closer than this are equal
_SIGNIFICANT = 6  # documents, fewer of which cannot give a p below 0.05


@dataclass(frozen=True, slots=True)
class TuningConfig:
    """How to tune."""

    kinds: tuple[str, ...] = ("title", "section", "claim", "cloze", "definition", "keywords", "dropped")
    pairs: int = 10_000  # queries to learn from, at most
    teacher: str = teachers.HYBRID  # or the name of a model
    learning: DistillationConfig = field(default_factory=DistillationConfig)
    held_out: float = 0.1  # share of the documents that judge; more where there are few documents
    queries: int = 1_000  # of held-out documents, at most
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What queries of held-out documents say of two encoders; kinds of queries count alike."""

    queries: int
    before: float  # nDCG@10
    after: float
    difference: significance.Difference
    kinds: dict[str, float]  # kind of query -> difference

    @property
    def carried_by(self) -> str | None:
        """The kind without which nothing would be gained."""
        for kind in self.kinds:
            others = [gain for other, gain in self.kinds.items() if other != kind]
            if others and float(np.mean(others)) <= 0:
                return kind
        return None

    @property
    def is_gain(self) -> bool:
        return self.difference.value > 0 and self.difference.p < _ALPHA and self.carried_by is None


@dataclass(slots=True)
class TuningResult:
    """What came of it."""

    folder: Path
    pairs: int
    verdict: Verdict
    published: bool
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "pairs": self.pairs,
            "queries": self.verdict.queries,
            "published": self.published,
            "seconds": round(self.seconds, 1),
            "before": round(self.verdict.before, 4),
            "after": round(self.verdict.after, 4),
            "difference": {name: round(value, 4) for name, value in asdict(self.verdict.difference).items()},
            "kinds": {name: round(value, 4) for name, value in self.verdict.kinds.items()},
        }


def tune(
    retriever: Retriever,
    *,
    out: str | Path | None = None,
    recipe: TuningConfig | None = None,
    publish: bool = True,
    progress: OnProgress | None = None,
) -> TuningResult:
    """Train the index's encoder on its documents and switch the index to it if held-out documents say so.

    Killed, the same call goes on from its last checkpoint.

    :param out: where the tuned encoder goes; `encoders/` in the index unless given.
    :param publish: whether a significant gain (p < 0.05) changes the index. `Retriever.rollback` undoes it.
    :raises InputError: when the index holds too few documents.
    """
    environment.require("tuning")
    began = time.monotonic()
    recipe = recipe or TuningConfig()
    _check(recipe)
    if isinstance(retriever.encoder, DefendedEncoder):
        raise InputError(f"{retriever.path} has a defended encoder: 'binocle rollback' brings back the one to be tuned")
    folder = Path(out) if out is not None else _free(retriever.path / "encoders")
    run = TrainingRun(folder / "model", retriever.encoder.name, recipe, progress)
    tuning = IndexTuning(run, retriever)
    verdict = tuning.train()
    if publish and verdict.is_gain:
        run.report("embedding the index anew beside the old one")
        retriever.switch(run.out)
    return TuningResult(run.out, len(tuning.chosen), verdict, publish and verdict.is_gain, time.monotonic() - began)


def _check(recipe: TuningConfig) -> None:
    for name in ("pairs", "queries"):
        if getattr(recipe, name) < 1:
            raise InputError(f"{name} is a whole number from 1, not {getattr(recipe, name)}")
    limits.above_0(recipe.learning, *asdict(recipe.learning))
    limits.seed(recipe)
    if not 0 < recipe.held_out < 1:
        raise InputError(f"held out is a share of the documents between 0 and 1, not {recipe.held_out}")


def _free(parent: Path) -> Path:
    """`tuned-N` that is not there yet, or that holds an unfinished run."""
    number = 1
    while (parent / f"tuned-{number}" / "model" / "model.safetensors").is_file():
        number += 1
    return parent / f"tuned-{number}"


class IndexTuning:
    """The tuning of one index: the queries made from its documents, their passages, and what is learned.

    :raises InputError: if the index holds too few documents.
    """

    def __init__(self, run: TrainingRun[TuningConfig], retriever: Retriever) -> None:
        self.run, self.config, self.base = run, run.config, retriever.encoder
        recipe, snapshot = run.config, retriever.snapshot()
        run.report("making queries from the documents")
        sources = corpus.sample(corpus.from_index(snapshot), _MOST, recipe.seed)
        share = judging_share(sum(1 for _ in sources), recipe.held_out)
        learned, judging = corpus.split(sources, share, recipe.seed)
        made = queries.make(learned, seed=recipe.seed, kinds=recipe.kinds)
        self.chosen = queries.sample(made, recipe.pairs, recipe.seed)
        self.asked = even(queries.make(judging, seed=recipe.seed, kinds=recipe.kinds), recipe.queries, recipe.seed)
        judges = len({pair.document for pair in self.asked})
        if len({pair.document for pair in self.chosen}) < _FEW or judges < 2:
            raise InputError(
                f"{retriever.path} holds too little to learn from: {len(self.chosen)} queries came from training "
                f"documents and {len(self.asked)} from held-out ones; expected some dozens of documents with sentences"
            )
        if judges < _SIGNIFICANT:
            run.report(f"queries came from {judges} held-out documents: no gain on so few is significant")
        self.passages = Passages.read(snapshot, {source.id for source in learned})
        run.report(f"{len(self.chosen):,} queries of {len(self.passages.texts):,} passages")
        texts, vectors = self.passages.texts, self.passages.vectors
        self.teacher = teachers.teacher(recipe.teacher, self.base, texts, vectors, run.progress)
        run.open({"encoder": self.base.fingerprint, "index": snapshot.head.chunks})

    def train(self) -> Verdict:
        """Learn, judge, and write the encoder with its card."""
        from ..encoders.base_model import make_model

        self.run.report("loading the encoder to train")
        tokens = float(np.percentile([len(text) for text in self.passages.texts], 75)) / 4  # about
        model = make_model(str(find(self.base.name)), EncoderConfig(seed=self.config.seed), tokens)
        loop = self._learned(model)
        folder = self.run.new_model_folder()
        model.eval().save_pretrained(str(folder), create_model_card=False)
        self.run.report("asking held-out documents")
        tuned = load_encoder(str(folder))
        verdict = self._judged(tuned)
        (folder / "binocle.json").write_text(json.dumps({"tuning": self._facts(verdict)}), "utf-8")
        self.run.finish(self._card(loop, verdict, tuned), loop.history, None)
        return verdict

    def _learned(self, model: Any) -> LoopResult:
        return learn_ranking(
            model,
            self.chosen,
            self.passages,
            self.teacher,
            self.config.learning,
            seed=self.config.seed,
            folder=self.run.checkpoints,
            progress=self.run.progress,
        )

    def _judged(self, tuned: encoders.Encoder) -> Verdict:
        generator = np.random.default_rng(self.config.seed)
        some = generator.permutation(len(self.passages.texts))[:_RIVALS]
        texts = [self.passages.texts[place] for place in some]
        before = found(self.base, self.asked, texts, self.passages.vectors[some])
        after = found(tuned, self.asked, texts, tuned.encode(texts))
        return verdict(self.asked, before, after, self.config.seed)

    def _facts(self, verdict: Verdict) -> dict[str, Any]:
        facts = TuningResult(self.run.out, len(self.chosen), verdict, published=False, seconds=0.0).as_dict()
        return {name: facts[name] for name in ("pairs", "queries", "before", "after", "difference", "kinds")}

    def _card(self, loop: LoopResult, verdict: Verdict, tuned: encoders.Encoder) -> Card:
        gain = verdict.difference
        measure = {
            "name": "gain in nDCG@10",
            "value": gain.value,
            "interval": [gain.low, gain.high],
            "on": f"queries made from held-out documents, p {gain.p:.4f}",
            "rows": verdict.queries,
        }
        return self.run.card(
            kind="encoder",
            objective=f"the rankings of a teacher ({self.config.teacher}), KL divergence over all passages",
            data={"queries made": len(self.chosen), "passages": len(self.passages.texts)},
            measures=[measure],
            loop=loop,
            fingerprint=tuned.fingerprint,
        )


def judging_share(documents: int, asked: float) -> float:
    """The share of so many documents that judges: as asked, but more where that would be too few to judge by."""
    return max(asked, min(0.5, _JUDGES / max(1, documents)))


def even(made: Iterable[SyntheticPair], most: int, seed: int) -> list[SyntheticPair]:
    """About as many queries of each kind, so that none decides for all."""
    kinds: dict[str, list[SyntheticPair]] = {}
    for pair in made:
        kinds.setdefault(pair.kind, []).append(pair)
    each = -(-most // max(1, len(kinds)))
    return [pair for kind in kinds.values() for pair in queries.sample(kind, each, seed)]


def found(encoder: encoders.Encoder, asked: Sequence[SyntheticPair], texts: Sequence[str], rivals: Floats) -> Floats:
    """nDCG@10 of each query, whose one relevant passage is its own; rivals are other documents' passages.

    What queries of other documents are to find are rivals too. One that scores the same as the query's own is ranked
    above it, so that nothing is gained by telling none apart; one of the same words is no rival.

    :param texts: of the rivals.
    """
    vectors = encoder.encode([pair.query for pair in asked], kind="query")
    positives = encoder.encode([pair.positive for pair in asked])
    own = (vectors * positives).sum(1, keepdims=True) - _SAME
    documents = np.unique([pair.document for pair in asked], return_inverse=True)[1]
    words = [*(pair.positive.strip() for pair in asked), *(text.strip() for text in texts)]
    numbers = np.unique(words, return_inverse=True)[1]
    mine, theirs = numbers[: len(asked)], numbers[len(asked) :]
    others = (vectors @ positives.T >= own) & (documents[:, None] != documents) & (mine[:, None] != mine)
    ranks = 1 + ((vectors @ rivals.T >= own) & (mine[:, None] != theirs)).sum(1) + others.sum(1)
    return np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0).astype(np.float32)


def verdict(asked: Sequence[SyntheticPair], before: Floats, after: Floats, seed: int) -> Verdict:
    """What the gains come to. Queries of one document gain and lose together: what could be chance is its sum."""
    kinds = np.array([pair.kind for pair in asked])
    weights = np.empty(len(asked))  # mean 1, the same in sum for each kind
    for kind in set(kinds.tolist()):
        weights[kinds == kind] = len(asked) / len(set(kinds.tolist())) / (kinds == kind).sum()
    documents = np.unique([pair.document for pair in asked], return_inverse=True)[1]

    def sums(values: Floats) -> NDArray[np.float64]:
        """A value for each document, whose mean is that of all queries."""
        totals = np.bincount(documents, weights * values)
        return totals * len(totals) / len(asked)

    gains = after - before
    return Verdict(
        len(asked),
        float((weights * before).mean()),
        float((weights * after).mean()),
        significance.difference(sums(after), sums(before), seed=seed),
        {kind: float(gains[kinds == kind].mean()) for kind in sorted(set(kinds.tolist()))},
    )
