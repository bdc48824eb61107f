"""Train an encoder to rank all passages for a query as a better ranker does.

The teacher's scores of every passage, and the student's cosines with every stored vector, are two distributions over
the collection. The loss is the KL divergence between them, as TAS-B and RocketQAv2 take it within a batch (Hofstaetter
et al. 2021, arXiv:2104.06967, and Ren et al. 2021, arXiv:2110.07367). A query that was made from a document does not
show how people ask for it, so both distributions omit that document: the student learns the order of all others.

Each step encodes queries and a few passages, mostly ones that the teacher ranks high. The new vectors replace the
stored ones, which thus follow the student at a distance.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers.util import batch_to_device
from torch.nn import functional

from ..runs import environment
from ..runs.loop import Schedule, run_loop
from .teachers import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ..runs.training_run import LoopResult
    from .passages import Passages
    from .queries.query_generation import SyntheticPair
    from .teachers import Teacher
    from .tuning_config import DistillationConfig


_SCALE = 30.0  # of cosines, for their softmax
_BEST = 20  # the passages to encode again are drawn from this number of the teacher's best
_BATCH_CHARACTERS = 6_000  # of texts of similar length that are encoded together


def learn_ranking(
    model: Any,
    pairs: Sequence[SyntheticPair],
    passages: Passages,
    teacher: Teacher,
    config: DistillationConfig,
    *,
    seed: int = 0,
    folder: Path | None = None,
    progress: OnProgress | None = None,
) -> LoopResult:
    """Train a `SentenceTransformer` in place.

    :param folder: of the checkpoints; training resumes at the newest.
    """
    student = RankingStudent(model, pairs, passages, teacher, config, seed)
    schedule = Schedule(
        learning_rate=config.learning_rate,
        batch_size=min(config.queries, len(pairs)),
        steps=config.steps,
        seed=seed,
        bf16=environment.has_bf16(),
        warmup=math.ceil(config.warmup * config.steps),
        rows=len(pairs),
    )
    result = run_loop(student.state, student.loss, schedule, folder=folder, progress=progress)
    model.load_state_dict(student.state.mean.state_dict())
    return result


class StudentState(torch.nn.Module):
    """The content of a checkpoint: the model, the mean of its weights, and the vectors of the passages."""

    vectors: torch.Tensor

    def __init__(self, model: Any, vectors: Floats) -> None:
        super().__init__()
        self.model, self.mean = model, copy.deepcopy(model).requires_grad_(requires_grad=False)
        self.register_buffer("vectors", torch.from_numpy(vectors.copy()).to(model.device))


class RankingStudent:
    """The model, and the loss of each step, which follows from the step's number and the seed."""

    def __init__(
        self,
        model: Any,
        pairs: Sequence[SyntheticPair],
        passages: Passages,
        teacher: Teacher,
        config: DistillationConfig,
        seed: int,
    ) -> None:
        self._model, self._pairs, self._passages = model, pairs, passages
        self._teacher, self._config, self._seed = teacher, config, seed
        self._scale = cosine_scale(passages.vectors)
        self._shares = drawing_shares(pairs)
        self._first_averaged = config.steps - math.ceil(config.averaged * config.steps)  # step
        self.state = StudentState(model, passages.vectors)

    def loss(self, step: int) -> torch.Tensor:
        """Return the loss of a step, and store the new vectors of its passages."""
        self._average(step)
        generator = np.random.default_rng((self._seed, step))
        count = min(self._config.queries, len(self._pairs))
        drawn = generator.choice(len(self._pairs), count, replace=False, p=self._shares)
        pairs = [self._pairs[number] for number in drawn]
        targets = scores_of_others(self._teacher, pairs, self._passages)
        numbers = self._passages_to_encode(targets, generator)
        queries = self._encode([pair.query for pair in pairs], "query")
        vectors = self._encode([self._passages.texts[number] for number in numbers], "document")
        rows = torch.from_numpy(numbers).to(vectors.device)
        with torch.autocast(vectors.device.type, enabled=False):
            scores = self._scale * queries @ self.state.vectors.index_copy(0, rows, vectors).T
            loss = divergence(scores, torch.from_numpy(targets).to(scores.device))
        self.state.vectors[rows] = vectors.detach()
        return loss

    def _average(self, step: int) -> None:
        """Add the weights before this step to their mean."""
        averaged = step - self._first_averaged
        if averaged >= 0:
            with torch.no_grad():
                for mean, weight in zip(self.state.mean.parameters(), self._model.parameters(), strict=True):
                    mean.lerp_(weight, 1 / (averaged + 1))

    def _passages_to_encode(self, scores: Floats, generator: np.random.Generator) -> NDArray[np.int64]:
        """Draw from the teacher's best passages of random queries, each passage once."""
        count = min(_BEST, scores.shape[1])
        best = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        rows = generator.integers(0, len(scores), self._config.passages)
        return np.unique(best[rows, generator.integers(0, count, len(rows))])

    def _encode(self, texts: Sequence[str], kind: str) -> torch.Tensor:
        """Return vectors with gradients, shape (texts, dim)."""
        order = np.argsort([len(text) for text in texts], kind="stable")
        prompt = self._model.prompts.get(kind) or None
        parts = []
        count = max(1, sum(map(len, texts)) // _BATCH_CHARACTERS)
        for numbers in np.array_split(order, min(count, len(order))):
            batch = [texts[number] for number in numbers]
            features = self._model.preprocess(batch, prompt=prompt, max_length=self._config.max_length)
            features = batch_to_device(features, self._model.device)
            parts.append(self._model(features)["sentence_embedding"].float())
        return torch.cat(parts)[torch.from_numpy(np.argsort(order))]


def cosine_scale(vectors: Floats) -> float:
    """Return the factor that dot products have in the softmax.

    :param vectors: of passages; their length is 1, unless the model is made for dot products.
    """
    return _SCALE / max(float(np.square(vectors).sum(1).mean()), 1e-12)


def scores_of_others(teacher: Teacher, pairs: Sequence[SyntheticPair], passages: Passages) -> Floats:
    """Return the teacher's scores, shape (pairs, passages), without each query's own document."""
    scores = teacher.scores([pair.query for pair in pairs])
    own = np.array([passages.numbers.get(pair.document, -1) for pair in pairs])  # a log has no documents
    scores[own[:, None] == passages.documents] = NEVER
    return scores


def drawing_shares(pairs: Sequence[SyntheticPair]) -> NDArray[np.float64]:
    """Return the probability of drawing each query, by its weight. Logged queries beside others have half of it."""
    weights = np.array([pair.weight for pair in pairs], np.float64)
    logged = np.array([not pair.document for pair in pairs])
    if logged.any() and not logged.all():
        weights[logged] *= weights[~logged].sum() / weights[logged].sum()
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def divergence(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Return KL(teacher || student) of the softmax over passages, mean over queries; both (queries, passages).

    Passages that the teacher has not scored are left out of both distributions.
    """
    unscored = teacher <= float(NEVER)
    targets = teacher.masked_fill(unscored, float(NEVER)).softmax(1)
    log_shares = student.masked_fill(unscored, float(NEVER)).log_softmax(1)
    return functional.kl_div(log_shares, targets, reduction="batchmean")
