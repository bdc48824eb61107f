"""The objectives that an encoder can be trained with: the data that each takes, and its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from ....core import checks as limits
from ....core.errors import InputError
from ...data.dataset import Shape

if TYPE_CHECKING:
    from ...data.dataset import TrainingSet


@dataclass(frozen=True, slots=True)
class Objective:
    """The data, batches and options that an objective takes. `losses.build` makes its loss."""

    shapes: tuple[Shape, ...]
    source: str  # the paper
    different: bool = False  # a text may be in a batch only once, since the other rows are its negatives
    compared: bool = False  # rows of a batch are compared with each other, so one alone teaches nothing
    grouped: bool = False  # a batch needs several texts of a class
    wrappable: bool = True  # Matryoshka can wrap it
    takes: tuple[str, ...] = ()  # options of `losses.LossOptions`


_RANKED = (Shape.PAIRS, Shape.TRIPLETS)
OBJECTIVES: dict[str, Objective] = {
    "ranking": Objective(_RANKED, "multiple negatives ranking, arXiv:1705.00652", different=True, takes=("scale",)),
    "cached-ranking": Objective(
        _RANKED, "the same with GradCache, arXiv:2101.06983", different=True, takes=("scale", "mini_batch")
    ),
    "symmetric-ranking": Objective(
        _RANKED,
        "ranking of documents for a query and of queries for a document, arXiv:2310.19923",
        different=True,
        takes=("scale",),
    ),
    "guided-ranking": Objective(
        _RANKED,
        "ranking without negatives that a guide ranks above the positive, GISTEmbed, arXiv:2402.16829",
        different=True,
        takes=("scale", "guide"),
    ),
    "contrastive": Objective((Shape.LABELLED,), "Hadsell et al. 2006", takes=("margin",)),
    "online-contrastive": Objective(
        (Shape.LABELLED,), "its hard pairs only, sbert.net", compared=True, takes=("margin",)
    ),
    "triplet-cosine": Objective((Shape.TRIPLETS,), "arXiv:1503.03832, squared distance at length 1", takes=("margin",)),
    "triplet-euclidean": Objective(
        (Shape.TRIPLETS,), "arXiv:1908.10084 section 3, Euclidean distance", takes=("margin",)
    ),
    "batch-all": Objective((Shape.GROUPED,), "arXiv:1703.07737", grouped=True, takes=("margin",)),
    "batch-hard": Objective((Shape.GROUPED,), "arXiv:1703.07737", grouped=True, takes=("margin",)),
    "batch-hard-soft": Objective((Shape.GROUPED,), "arXiv:1703.07737", grouped=True),
    "batch-semi-hard": Objective((Shape.GROUPED,), "arXiv:1503.03832", grouped=True, takes=("margin",)),
    "cosent": Objective(
        (Shape.SCORED, Shape.LABELLED), "CoSENT, kexue.fm/archives/8847", compared=True, takes=("scale",)
    ),
    "cosine": Objective((Shape.SCORED, Shape.LABELLED), "cosine regression, arXiv:1908.10084 section 3"),
    "softmax": Objective((Shape.CLASSED, Shape.LABELLED), "softmax over (u, v, |u - v|), arXiv:1908.10084 section 3"),
    "margin-mse": Objective((Shape.GRADED,), "MarginMSE, arXiv:2010.02666", takes=("scale",)),
    "kl": Objective(
        (Shape.GRADED,), "KL divergence from a teacher's distribution, arXiv:2010.11386", takes=("scale", "temperature")
    ),
    "embeddings": Objective(
        (Shape.TEXTS, Shape.PAIRS),
        "mean squared error to a teacher's vectors; of a pair, both texts to the first one's, arXiv:2004.09813",
    ),
    "tsdae": Objective((Shape.TEXTS,), "denoising autoencoder, arXiv:2104.06979", wrappable=False),
}

_DEFAULTS = {
    Shape.PAIRS: "ranking",
    Shape.TRIPLETS: "ranking",
    Shape.SCORED: "cosent",
    Shape.LABELLED: "online-contrastive",
    Shape.CLASSED: "softmax",
    Shape.GRADED: "kl",
    Shape.GROUPED: "batch-semi-hard",
    Shape.TEXTS: "tsdae",
}


def choose(name: str | None, shape: Shape, *, teacher: bool = False, guide: bool = False) -> str:
    """Return the named objective, or the default for this shape of data.

    :param teacher: whether there is a teacher with vectors to learn.
    :param guide: whether there is a guide that drops false negatives.
    :raises InputError: if there is none of that name, or it takes other data.
    """
    if name is None:
        if guide and shape in _RANKED:
            return "guided-ranking"
        return "embeddings" if teacher and shape is Shape.TEXTS else _DEFAULTS[shape]
    if name not in OBJECTIVES:
        raise InputError(f"there is no objective {name!r}: expected one of {', '.join(OBJECTIVES)}")
    if shape not in OBJECTIVES[name].shapes:
        expected = " or ".join(taken.value for taken in OBJECTIVES[name].shapes)
        raise InputError(f"the objective {name} takes {expected}, but the data are {shape.value}")
    if name == "embeddings" and not teacher:
        raise InputError("the objective embeddings learns the vectors of a teacher: give --teacher MODEL")
    return name


def check_uses(config: Any, *names: str) -> None:
    """:raises InputError: for an option that is set, although none of the objectives takes it."""
    for option in ("scale", "margin", "temperature", "mini_batch", "guide"):
        if not any(option in OBJECTIVES[name].takes for name in names):
            takers = ", ".join(taker for taker, objective in OBJECTIVES.items() if option in objective.takes)
            limits.left_out(config, (option,), f"for {takers}, not for the objective {', '.join(names)}: leave it out")


def score_range(data: TrainingSet) -> tuple[float, float]:
    """Return the lowest and the highest of a teacher's scores."""
    chunks = [pc.min_max(pc.list_flatten(chunk)).as_py() for chunk in data.table()["label"].chunks if len(chunk)]
    return min(chunk["min"] for chunk in chunks), max(chunk["max"] for chunk in chunks)


def are_cosines(data: TrainingSet) -> bool:
    """Check whether a teacher's scores can be cosines: all lie between -1 and 1, or all differences between -2 and 2.

    A row that has only the difference stores it as the positive's score, and 0 as the negative's.
    """
    low, high = score_range(data)
    of_negatives = pc.list_element(data.table()["label"], 1).to_numpy()
    are_differences = len(data.texts) == 3 and not of_negatives.any()
    limit = 2.001 if are_differences else 1.001
    return low >= -limit and high <= limit
