"""An encoder learns how a better ranker ranks all passages for a query, not a few that were drawn for it.

The teacher's scores of every passage, and the student's cosines with every stored vector, are two distributions over
the collection; the loss is the KL divergence between them (as TAS-B and RocketQAv2 do within a batch, Hofstaetter et
al. 2021, arXiv:2104.06967, and Ren et al. 2021, arXiv:2110.07367). A query that was made from a document says nothing
of how people ask for it, so that document is left out of both: what is learned is the order of all others. Queries are
encoded in every step, and so are a few passages, most of them such as the teacher ranks high; their new vectors
replace the stored ones, which thus follow the student at a distance.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...retriever.store.tables import matrix
from ..runs import environment
from ..runs.loop import Schedule, run_loop
from .teachers import NEVER

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ...retriever.store.snapshot import Snapshot
    from ..runs.training_run import LoopResult
    from .query_generation import SyntheticPair
    from .teachers import Teacher


_SCALE = 30.0  # of cosines, for their softmax
_NEAR = 20  # the teacher's best, from which a query's passage to encode anew is drawn
_TOGETHER = 6_000  # characters of texts of like length that make one pass


@dataclass(frozen=True, slots=True)
class Passages:
    """Those that are ranked, with the vectors the encoder gave them and the document each is of."""

    texts: list[str]
    vectors: Floats
    documents: NDArray[np.int64]
    numbers: dict[str, int]  # path of a document -> its number in `documents`

    @classmethod
    def read(cls, snapshot: Snapshot, paths: Collection[str]) -> Passages:
        """Those of some documents, in the order of the index."""
        rows = snapshot.read("documents", ["id", "path"]).to_pylist()
        numbers = {row["path"]: row["id"] for row in rows if row["path"] in paths}
        wanted = np.array(list(numbers.values()), np.int64)
        texts: list[str] = []
        owners, vectors = [np.empty(0, np.int64)], [np.empty((0, snapshot.head.encoder.dim), np.float32)]
        for batch in snapshot.batches(["document", "context", "vector"]):
            kept = np.isin(batch["document"].to_numpy(), wanted)
            texts += [text for text, keep in zip(batch["context"].to_pylist(), kept.tolist(), strict=True) if keep]
            owners.append(batch["document"].to_numpy()[kept])
            vectors.append(matrix(batch["vector"], snapshot.head.encoder.dim)[kept])
        return cls(texts, np.concatenate(vectors), np.concatenate(owners), numbers)


@dataclass(frozen=True, slots=True)
class DistillationConfig:
    """How to learn."""

    steps: int = 60
    queries: int = 160  # of a step
    passages: int = 24  # of a step, encoded anew
    learning_rate: float = 5e-5
    warmup: float = 0.1  # share of the steps
    averaged: float = 0.5  # share of the steps, the last ones, whose weights are averaged (arXiv:1803.05407)
    max_length: int | None = None  # tokens that are learned from, of which a stored vector has all


def learn_ranking(
    model: Any,
    asked: Sequence[SyntheticPair],
    passages: Passages,
    teacher: Teacher,
    settings: DistillationConfig,
    *,
    seed: int = 0,
    folder: Path | None = None,
    progress: OnProgress | None = None,
) -> LoopResult:
    """Train a `SentenceTransformer` in place.

    :param folder: for checkpoints, from the newest of which it goes on.
    """
    student = _Student(model, asked, passages, teacher, settings, seed)
    plan = Schedule(
        learning_rate=settings.learning_rate,
        batch_size=min(settings.queries, len(asked)),
        steps=settings.steps,
        seed=seed,
        bf16=environment.has_bf16(),
        warmup=math.ceil(settings.warmup * settings.steps),
        rows=len(asked),
    )
    learned = run_loop(student.state, student.loss, plan, folder=folder, progress=progress)
    model.load_state_dict(student.state.mean.state_dict())
    return learned


class _Student:
    """The model, and what a step of it is made of: which follows from the step's number and the seed.

    `state` is what a checkpoint holds: the model, the mean of its weights, and the vectors of the passages.
    """

    def __init__(
        self,
        model: Any,
        asked: Sequence[SyntheticPair],
        passages: Passages,
        teacher: Teacher,
        settings: DistillationConfig,
        seed: int,
    ) -> None:
        import torch

        self._model, self._asked, self._passages = model, asked, passages
        self._teacher, self._settings, self._seed = teacher, settings, seed
        lengths = np.square(passages.vectors).sum(1)  # 1, unless the model is made for dot products
        self._scale = _SCALE / max(float(lengths.mean()), 1e-12)
        self._first = settings.steps - math.ceil(settings.averaged * settings.steps)  # of the steps that are averaged
        self.state: Any = torch.nn.Module()
        self.state.model, self.state.mean = model, copy.deepcopy(model).requires_grad_(requires_grad=False)
        self.state.register_buffer("vectors", torch.from_numpy(passages.vectors.copy()).to(model.device))

    def loss(self, step: int) -> Any:
        import torch

        self._average(step)
        generator = np.random.default_rng((self._seed, step))
        drawn = generator.choice(len(self._asked), min(self._settings.queries, len(self._asked)), replace=False)
        chosen = [self._asked[place] for place in drawn]
        taught = self._taught(chosen)
        anew = self._anew(taught, generator)
        queries = self._encoded([pair.query for pair in chosen], "query")
        vectors = self._encoded([self._passages.texts[place] for place in anew], "document")
        places = torch.from_numpy(anew).to(vectors.device)
        with torch.autocast(vectors.device.type, enabled=False):
            found = self._scale * queries @ self.state.vectors.index_copy(0, places, vectors).T
            loss = divergence(found, torch.from_numpy(taught).to(found.device))
        self.state.vectors[places] = vectors.detach()
        return loss

    def _average(self, step: int) -> None:
        """Take the weights as they are before this step into their mean."""
        import torch

        taken = step - self._first
        if taken >= 0:
            with torch.no_grad():
                for mean, weight in zip(self.state.mean.parameters(), self._model.parameters(), strict=True):
                    mean.lerp_(weight, 1 / (taken + 1))

    def _taught(self, chosen: Sequence[SyntheticPair]) -> Floats:
        """The teacher's scores, each query's own document left out."""
        scores = self._teacher.scores([pair.query for pair in chosen])
        own = np.array([self._passages.numbers[pair.document] for pair in chosen])
        scores[own[:, None] == self._passages.documents] = NEVER
        return scores

    def _anew(self, taught: Floats, generator: np.random.Generator) -> NDArray[np.int64]:
        """Passages among the teacher's best of some of the queries, each once."""
        near = min(_NEAR, taught.shape[1])
        best = np.argpartition(-taught, near - 1, axis=1)[:, :near]
        rows = generator.integers(0, len(taught), self._settings.passages)
        return np.unique(best[rows, generator.integers(0, near, len(rows))])

    def _encoded(self, texts: Sequence[str], kind: str) -> Any:
        """Shape (texts, dim), with gradients."""
        import torch
        from sentence_transformers.util import batch_to_device

        order = np.argsort([len(text) for text in texts], kind="stable")
        prompt = self._model.prompts.get(kind) or None
        parts = []
        passes = max(1, sum(map(len, texts)) // _TOGETHER)
        for places in np.array_split(order, min(passes, len(order))):
            some = [texts[place] for place in places]
            features = self._model.preprocess(some, prompt=prompt, max_length=self._settings.max_length)
            features = batch_to_device(features, self._model.device)
            parts.append(self._model(features)["sentence_embedding"].float())
        return torch.cat(parts)[torch.from_numpy(np.argsort(order))]


def divergence(student: Any, teacher: Any) -> Any:
    """KL(teacher || student) of the softmax over passages, mean over queries; both (queries, passages).

    Passages of which the teacher has no opinion are none of the student's distribution either.
    """
    from torch.nn import functional

    unknown = teacher <= float(NEVER)
    wanted = teacher.masked_fill(unknown, float(NEVER)).softmax(1)
    found = student.masked_fill(unknown, float(NEVER)).log_softmax(1)
    return functional.kl_div(found, wanted, reduction="batchmean")
