"""The objectives that a reranker can be trained with: the data that each takes, its loss and its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.errors import InputError
from ..data.dataset import Shape
from ..encoders.objectives.objectives import score_range

if TYPE_CHECKING:
    from ..data.dataset import TrainingSet

LISTS = (Shape.PAIRS, Shape.TRIPLETS, Shape.GRADED)  # a query with several passages


@dataclass(frozen=True, slots=True)
class RankingObjective:
    """A loss of sentence-transformers for cross-encoders."""

    shapes: tuple[Shape, ...]
    loss: str  # class in sentence_transformers.cross_encoder.losses
    source: str
    whole_batch: bool = False  # its option `mini_batch_size` must not split the pairs of a batch


OBJECTIVES: dict[str, RankingObjective] = {
    "listwise": RankingObjective(
        LISTS, "ListNetLoss", "ListNet, Cao et al. 2007: softmax over a query's passages", whole_batch=True
    ),
    "lambda": RankingObjective(LISTS, "LambdaLoss", "LambdaLoss, Wang et al. 2018", whole_batch=True),
    "pairwise": RankingObjective(LISTS, "RankNetLoss", "RankNet, Burges et al. 2005", whole_batch=True),
    "binary": RankingObjective(
        (Shape.LABELLED, *LISTS), "BinaryCrossEntropyLoss", "binary cross-entropy, arXiv:1901.04085"
    ),
    "mse": RankingObjective(
        (Shape.SCORED, Shape.GRADED), "MSELoss", "mean squared error to a teacher's scores, arXiv:2010.02666"
    ),
}
_DEFAULTS = {Shape.LABELLED: "binary", Shape.SCORED: "mse"}


def choose(name: str | None, data: TrainingSet) -> str:
    """Return the named objective, or the default for this shape of data.

    :raises InputError: if there is none of that name, or it takes other data.
    """
    shape = data.shape
    if name is None:
        name = _DEFAULTS.get(shape, "listwise")
    if name not in OBJECTIVES:
        raise InputError(f"there is no objective {name!r} for rerankers: expected one of {', '.join(OBJECTIVES)}")
    if shape not in OBJECTIVES[name].shapes:
        expected = " or ".join(taken.value for taken in OBJECTIVES[name].shapes)
        raise InputError(f"the objective {name} takes {expected}, but the data are {shape.value}")
    if name == "binary" and shape is Shape.GRADED:
        low, high = score_range(data)
        if low < 0 or high > 1:
            raise InputError(
                f"the objective binary takes scores from 0 to 1, which are probabilities, but they are {low:g} to "
                f"{high:g}: take mse or listwise"
            )
    return name
