"""What an encoder is trained towards: sentence-transformers' losses by their names, and which data each takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from ...core import checks as limits
from ...core.errors import InputError
from ..data.dataset import Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..data.dataset import TrainingSet


@dataclass(frozen=True, slots=True)
class LossOptions:
    """What objectives can be told; each takes some, as `Objective.takes` says."""

    scale: float = 20.0  # of cosines before a softmax: the inverse of a temperature
    margin: float | None = None  # between distances; the objective's own unless given
    mini_batch: int = 32  # texts in memory at once for cached objectives
    gather: bool = False  # negatives of all devices
    temperature: float | None = None  # of a teacher's scores: where all could be cosines as `scale` says, else 1


@dataclass(frozen=True, slots=True)
class Objective:
    """A loss, the shapes of data that it takes, and what its batches must be."""

    shapes: tuple[Shape, ...]
    build: Callable[[Any, TrainingSet, LossOptions], Any]
    source: str  # the paper
    different: bool = False  # whether a text may be in a batch once only: other rows are its negatives
    grouped: bool = False  # whether a batch needs several texts of a class
    wrappable: bool = True  # whether Matryoshka can wrap it
    takes: tuple[str, ...] = ()  # of the options


def _losses() -> Any:
    from sentence_transformers.sentence_transformer import losses

    return losses


def _ranking(model: Any, data: TrainingSet, options: LossOptions) -> Any:  # noqa: ARG001 - one signature in the table
    return _losses().MultipleNegativesRankingLoss(model, scale=options.scale, gather_across_devices=options.gather)


def _cached_ranking(model: Any, data: TrainingSet, options: LossOptions) -> Any:  # noqa: ARG001
    return _losses().CachedMultipleNegativesRankingLoss(
        model, scale=options.scale, mini_batch_size=options.mini_batch, gather_across_devices=options.gather
    )


def _contrastive(model: Any, data: TrainingSet, options: LossOptions) -> Any:  # noqa: ARG001
    return _losses().ContrastiveLoss(model, margin=0.5 if options.margin is None else options.margin)


def _online_contrastive(model: Any, data: TrainingSet, options: LossOptions) -> Any:  # noqa: ARG001
    return _losses().OnlineContrastiveLoss(model, margin=0.5 if options.margin is None else options.margin)


def _triplet(metric: str, margin: float) -> Callable[[Any, TrainingSet, LossOptions], Any]:
    def build(model: Any, data: TrainingSet, options: LossOptions) -> Any:  # noqa: ARG001
        from sentence_transformers.sentence_transformer.losses import TripletDistanceMetric

        chosen = margin if options.margin is None else options.margin
        return _losses().TripletLoss(model, getattr(TripletDistanceMetric, metric), triplet_margin=chosen)

    return build


def _batch(name: str) -> Callable[[Any, TrainingSet, LossOptions], Any]:
    def build(model: Any, data: TrainingSet, options: LossOptions) -> Any:  # noqa: ARG001
        from sentence_transformers.sentence_transformer.losses import BatchHardTripletLossDistanceFunction as Distance

        given: dict[str, Any] = {"distance_metric": Distance.cosine_distance}
        if name != "BatchHardSoftMarginTripletLoss":
            given["margin"] = 0.2 if options.margin is None else options.margin
        return getattr(_losses(), name)(model, **given)

    return build


def _cosent(model: Any, data: TrainingSet, options: LossOptions) -> Any:  # noqa: ARG001 - it compares scores only
    return _losses().CoSENTLoss(model, scale=options.scale)


def _cosine(model: Any, data: TrainingSet, options: LossOptions) -> Any:  # noqa: ARG001
    """Mean squared error of the cosine against the score, brought to 0 to 1 where it is beyond what a cosine can be."""
    loss = _losses().CosineSimilarityLoss(model)
    within = data.low >= -1 and data.high <= 1
    return loss if within else _rescaled(loss, data.low, data.high)


def _rescaled(loss: Any, low: float, high: float) -> Any:
    """The same loss, on labels brought from [low, high] to [0, 1]."""
    unscaled = type(loss).forward

    class Rescaled(type(loss)):  # type: ignore[misc]
        def forward(self, features: Any, labels: Any) -> Any:
            return unscaled(self, features, (labels - low) / (high - low))

    loss.__class__ = Rescaled
    return loss


def _softmax(model: Any, data: TrainingSet, options: LossOptions) -> Any:  # noqa: ARG001
    loss = _losses().SoftmaxLoss(model, model.get_embedding_dimension(), max(2, len(data.classes)))
    _read_shorter(loss.classifier)
    return loss


def _read_shorter(classifier: Any) -> None:
    """Let the classifier take (u, v, |u - v|) of shorter vectors too, which Matryoshka gives it: the rest is 0."""
    from torch.nn.functional import pad

    linear = type(classifier).forward

    class Filled(type(classifier)):  # type: ignore[misc]
        def forward(self, features: Any) -> Any:
            parts = features.unflatten(1, (3, -1))
            return linear(self, pad(parts, (0, self.in_features // 3 - parts.shape[-1])).flatten(1))

    classifier.__class__ = Filled


def _margin_mse(model: Any, data: TrainingSet, options: LossOptions) -> Any:
    """Cosines of unit vectors have margins up to 2: they are scaled where those of the teacher are not such."""
    from sentence_transformers.sentence_transformer.modules import Normalize
    from sentence_transformers.util import pairwise_dot_score

    scale = options.scale if isinstance(model[-1], Normalize) and not _are_cosines(data) else 1.0

    def scaled(one: Any, other: Any) -> Any:
        return scale * pairwise_dot_score(one, other)

    return _losses().MarginMSELoss(model, similarity_fct=scaled)


def _kl(model: Any, data: TrainingSet, options: LossOptions) -> Any:
    """Both sides on one scale: a teacher whose scores are cosines, as an index's are, is as sure as the student."""
    from sentence_transformers.util import pairwise_cos_sim

    scale, temperature = options.scale, options.temperature
    if temperature is None:
        temperature = 1 / scale if _are_cosines(data) else 1.0

    def scaled(one: Any, other: Any) -> Any:
        return scale * pairwise_cos_sim(one, other)

    return _losses().DistillKLDivLoss(
        model, similarity_fct=scaled, student_temperature=1.0, teacher_temperature=temperature
    )


def _are_cosines(data: TrainingSet) -> bool:
    """Whether all of a teacher's scores lie between -1 and 1."""
    low, high = score_range(data)
    return low >= -1.001 and high <= 1.001


def score_range(data: TrainingSet) -> tuple[float, float]:
    """The lowest and the highest of a teacher's scores."""
    chunks = [pc.min_max(pc.list_flatten(chunk)).as_py() for chunk in data.table()["label"].chunks if len(chunk)]
    return min(one["min"] for one in chunks), max(one["max"] for one in chunks)


def _tsdae(model: Any, data: TrainingSet, options: LossOptions) -> Any:  # noqa: ARG001
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    words = getattr(model[0], "auto_model", None)
    if words is None or type(words.config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        kind = "a table of words" if words is None else words.config.model_type
        raise InputError(
            f"the objective tsdae needs a base that can write too, such as BERT or RoBERTa, but this one is {kind}: "
            "take another base, or learn a teacher's vectors with --teacher MODEL"
        )
    name = words.config._name_or_path  # noqa: SLF001 - the loss makes its decoder from the same
    return _losses().DenoisingAutoEncoderLoss(model, decoder_name_or_path=name, tie_encoder_decoder=True)


def _embeddings(model: Any, data: TrainingSet, options: LossOptions) -> Any:  # noqa: ARG001
    """Mean squared error, of the beginning of the teacher's vectors where Matryoshka gives the student's."""
    from torch.nn.functional import normalize

    loss = _losses().MSELoss(model)
    whole = type(loss).compute_loss_from_embeddings

    class Shortened(type(loss)):  # type: ignore[misc]
        def compute_loss_from_embeddings(self, embeddings: Any, teacher_embeddings: Any) -> Any:
            length = embeddings[0].shape[-1]
            if length < teacher_embeddings[0].shape[-1]:
                teacher_embeddings = [normalize(one[..., :length], dim=-1) for one in teacher_embeddings]
            return whole(self, embeddings, teacher_embeddings)

    loss.__class__ = Shortened
    return loss


OBJECTIVES: dict[str, Objective] = {
    "ranking": Objective(
        (Shape.PAIRS, Shape.TRIPLETS),
        _ranking,
        "multiple negatives ranking, arXiv:1705.00652",
        different=True,
        takes=("scale",),
    ),
    "cached-ranking": Objective(
        (Shape.PAIRS, Shape.TRIPLETS),
        _cached_ranking,
        "the same with GradCache, arXiv:2101.06983",
        different=True,
        takes=("scale", "mini_batch"),
    ),
    "contrastive": Objective((Shape.LABELLED,), _contrastive, "Hadsell et al. 2006", takes=("margin",)),
    "online-contrastive": Objective(
        (Shape.LABELLED,), _online_contrastive, "its hard pairs only, sbert.net", takes=("margin",)
    ),
    "triplet-cosine": Objective(
        (Shape.TRIPLETS,), _triplet("COSINE", 0.2), "arXiv:1503.03832 on cosine distance", takes=("margin",)
    ),
    "triplet-euclidean": Objective(
        (Shape.TRIPLETS,), _triplet("EUCLIDEAN", 1.0), "arXiv:1503.03832, arXiv:1908.10084", takes=("margin",)
    ),
    "batch-all": Objective(
        (Shape.GROUPED,), _batch("BatchAllTripletLoss"), "arXiv:1703.07737", grouped=True, takes=("margin",)
    ),
    "batch-hard": Objective(
        (Shape.GROUPED,), _batch("BatchHardTripletLoss"), "arXiv:1703.07737", grouped=True, takes=("margin",)
    ),
    "batch-hard-soft": Objective(
        (Shape.GROUPED,), _batch("BatchHardSoftMarginTripletLoss"), "arXiv:1703.07737", grouped=True
    ),
    "batch-semi-hard": Objective(
        (Shape.GROUPED,), _batch("BatchSemiHardTripletLoss"), "arXiv:1503.03832", grouped=True, takes=("margin",)
    ),
    "cosent": Objective((Shape.SCORED, Shape.LABELLED), _cosent, "CoSENT, kexue.fm/archives/8847", takes=("scale",)),
    "cosine": Objective((Shape.SCORED, Shape.LABELLED), _cosine, "cosine regression, arXiv:1908.10084 section 3"),
    "softmax": Objective(
        (Shape.CLASSED, Shape.LABELLED),
        _softmax,
        "softmax over (u, v, |u - v|), arXiv:1908.10084 section 3",
    ),
    "margin-mse": Objective((Shape.GRADED,), _margin_mse, "MarginMSE, arXiv:2010.02666", takes=("scale",)),
    "kl": Objective(
        (Shape.GRADED,),
        _kl,
        "KL divergence from a teacher's distribution, arXiv:2010.11386",
        takes=("scale", "temperature"),
    ),
    "embeddings": Objective((Shape.TEXTS,), _embeddings, "mean squared error to a teacher's vectors, arXiv:2004.09813"),
    "tsdae": Objective((Shape.TEXTS,), _tsdae, "denoising autoencoder, arXiv:2104.06979", wrappable=False),
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


def choose(name: str | None, shape: Shape, *, teacher: bool = False) -> str:
    """The objective asked for, or the one for this shape of data.

    :raises InputError: when there is none of that name, or it takes other data.
    """
    if name is None:
        return "embeddings" if teacher and shape is Shape.TEXTS else _DEFAULTS[shape]
    if name not in OBJECTIVES:
        raise InputError(f"there is no objective {name!r}: expected one of {', '.join(OBJECTIVES)}")
    if shape not in OBJECTIVES[name].shapes:
        wanted = " or ".join(one.value for one in OBJECTIVES[name].shapes)
        raise InputError(f"the objective {name} takes {wanted}, but the data are {shape.value}")
    if name == "embeddings" and not teacher:
        raise InputError("the objective embeddings needs a teacher whose vectors are learned: give --teacher MODEL")
    return name


def check_uses(name: str, config: Any) -> None:
    """:raises InputError: for an option that is given, although the objective has no use for it."""
    for option in ("scale", "margin", "temperature", "mini_batch"):
        if option not in OBJECTIVES[name].takes:
            takers = ", ".join(other for other, one in OBJECTIVES.items() if option in one.takes)
            limits.left_out(config, (option,), f"for {takers}, not for the objective {name}: leave it out")


def build(name: str, model: Any, data: TrainingSet, options: LossOptions, matryoshka: Sequence[int] = ()) -> Any:
    """The loss as a module of sentence-transformers.

    :param matryoshka: lengths at which a vector's beginning must do too (arXiv:2205.13147), the full one added.
    """
    objective = OBJECTIVES[name]
    loss = objective.build(model, data, options)
    if not matryoshka:
        return loss
    full = model.get_embedding_dimension()
    if not objective.wrappable or any(not 0 < dim <= full for dim in matryoshka):
        raise InputError(
            f"Matryoshka lengths are from 1 to {full}, for any objective but tsdae, not {list(matryoshka)} for {name}"
        )
    dims = sorted({full, *matryoshka}, reverse=True)
    return _losses().MatryoshkaLoss(model, loss, matryoshka_dims=dims)
