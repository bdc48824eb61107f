"""The loss of each objective: sentence-transformers' own, adapted where our data or options differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.losses import (
    BatchHardTripletLossDistanceFunction,
    TripletDistanceMetric,
)
from sentence_transformers.sentence_transformer.modules import Normalize
from sentence_transformers.util import pairwise_cos_sim, pairwise_dot_score
from torch.nn.functional import normalize, pad
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from ....core.errors import InputError
from .objectives import OBJECTIVES, are_cosines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...data.dataset import TrainingSet

    Build = Callable[[Any, TrainingSet, "LossOptions"], torch.nn.Module]


def _squared_distances(embeddings: torch.Tensor) -> torch.Tensor:
    """Return the squared distances of all vectors at length 1, shape (rows, rows), as in arXiv:1503.03832."""
    return 2 * BatchHardTripletLossDistanceFunction.cosine_distance(embeddings)


_EUCLIDEAN = BatchHardTripletLossDistanceFunction.euclidean_distance


@dataclass(frozen=True, slots=True)
class LossOptions:
    """Options of the losses; `Objective.takes` says which objective takes which."""

    scale: float = 20.0  # of cosines before a softmax: the inverse of a temperature
    margin: float | None = None  # between distances; the objective's own unless given
    mini_batch: int = 32  # texts in memory at once for cached objectives
    gather: bool = False  # negatives of all devices
    guide: Any = None  # a `SentenceTransformer` that drops false negatives
    temperature: float | None = None  # of a teacher's scores; None: 1/scale if they look like cosines, else 1
    unit: bool = False  # whether vectors reach the loss at length 1, though no module of the model brings them there


def build(
    name: str, model: Any, data: TrainingSet, options: LossOptions, matryoshka: Sequence[int] = ()
) -> torch.nn.Module:
    """Return the loss of an objective.

    :param model: the `SentenceTransformer` to train.
    :param matryoshka: lengths at which the beginning of a vector is trained too (arXiv:2205.13147), besides the full.
    """
    loss = _BUILDERS[name](model, data, replace(options, unit=bool(matryoshka)))  # which MatryoshkaLoss does
    if not matryoshka:
        return loss
    full = model.get_embedding_dimension()
    if not OBJECTIVES[name].wrappable or any(not 0 < dim <= full for dim in matryoshka):
        raise InputError(
            f"Matryoshka lengths are from 1 to {full}, for any objective but tsdae, not {list(matryoshka)} for {name}"
        )
    dims = sorted({full, *matryoshka}, reverse=True)
    return losses.MatryoshkaLoss(model, loss, matryoshka_dims=dims)


# Losses adapted to our data


class RescaledCosineLoss(losses.CosineSimilarityLoss):
    """Squared error of the cosine, on labels brought from [low, high] to [0, 1]."""

    def __init__(self, model: Any, low: float, high: float) -> None:
        super().__init__(model)
        self._low, self._high = low, high

    def forward(self, sentence_features: Any, labels: torch.Tensor) -> torch.Tensor:
        """Take two columns of features and labels (rows,) in [low, high]; return the mean squared error, a scalar."""
        return super().forward(sentence_features, (labels - self._low) / (self._high - self._low))


class PaddedLinear(torch.nn.Linear):
    """A classifier of (u, v, |u - v|) that also takes shorter vectors, as Matryoshka gives it: the rest is 0."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Pad each third of the features (rows, 3 * length) with zeros; return logits (rows, classes)."""
        parts = features.reshape(len(features), 3, -1)
        return super().forward(pad(parts, (0, self.in_features // 3 - parts.shape[-1])).flatten(1))


class ShortenedMSELoss(losses.MSELoss):
    """Squared error to the beginning of the teacher's vectors, where Matryoshka shortens the student's."""

    def compute_loss_from_embeddings(
        self, embeddings: list[torch.Tensor], teacher_embeddings: list[torch.Tensor]
    ) -> torch.Tensor:
        """Cut the teacher's vectors (rows, dim) as the student's are, at length 1; return a scalar."""
        length = embeddings[0].shape[-1]
        if length < (self.model.get_embedding_dimension() or length):
            teacher_embeddings = [normalize(vectors[..., :length], dim=-1) for vectors in teacher_embeddings]
        return super().compute_loss_from_embeddings(embeddings, teacher_embeddings)


def scaled_dot(left: torch.Tensor, right: torch.Tensor, *, scale: float) -> torch.Tensor:
    """Return the scaled dot products of rows."""
    return scale * pairwise_dot_score(left, right)


def squared_distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the squared distances of rows at length 1, as FaceNet takes them (arXiv:1503.03832): twice 1 - cosine."""
    return 2 * (1 - pairwise_cos_sim(left, right))


def scaled_cosine(left: torch.Tensor, right: torch.Tensor, *, scale: float) -> torch.Tensor:
    """Return the scaled cosines of rows."""
    return scale * pairwise_cos_sim(left, right)


# One builder for each objective: model, data and options to a loss


def _ranking(model: Any, _data: TrainingSet, options: LossOptions) -> torch.nn.Module:
    return losses.MultipleNegativesRankingLoss(model, scale=options.scale, gather_across_devices=options.gather)


def _cached_ranking(model: Any, _data: TrainingSet, options: LossOptions) -> torch.nn.Module:
    return losses.CachedMultipleNegativesRankingLoss(
        model, scale=options.scale, mini_batch_size=options.mini_batch, gather_across_devices=options.gather
    )


def _symmetric_ranking(model: Any, _data: TrainingSet, options: LossOptions) -> torch.nn.Module:
    return losses.MultipleNegativesRankingLoss(
        model,
        scale=options.scale,
        gather_across_devices=options.gather,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )


def _guided_ranking(model: Any, data: TrainingSet, options: LossOptions) -> torch.nn.Module:
    """Drop each text of the batch that the guide ranks above the positive: it may be an answer that nobody marked."""
    if len(data.texts) > 3:
        raise InputError(
            f"the objective guided-ranking takes one negative for each pair, but the data have {len(data.texts) - 2}: "
            "mine with --negatives 1, or take ranking"
        )
    try:
        return losses.GISTEmbedLoss(
            model,
            options.guide.requires_grad_(requires_grad=False),
            temperature=1 / options.scale,
            gather_across_devices=options.gather,
        )
    except ValueError as error:  # the message names the tokenizers
        raise InputError(f"the objective guided-ranking cannot use this base with this guide: {error}") from None


def _contrastive(loss: Any, model: Any, _data: TrainingSet, options: LossOptions) -> torch.nn.Module:
    built: torch.nn.Module = loss(model, margin=0.5 if options.margin is None else options.margin)
    return built


def _triplet(metric: Any, margin: float, model: Any, _data: TrainingSet, options: LossOptions) -> torch.nn.Module:
    return losses.TripletLoss(model, metric, triplet_margin=margin if options.margin is None else options.margin)


def _batch(loss: Any, distance: Any, model: Any, _data: TrainingSet, options: LossOptions) -> torch.nn.Module:
    keywords: dict[str, Any] = {"distance_metric": distance}
    if loss is not losses.BatchHardSoftMarginTripletLoss:
        keywords["margin"] = 0.2 if options.margin is None else options.margin
    built: torch.nn.Module = loss(model, **keywords)
    return built


def _cosent(model: Any, _data: TrainingSet, options: LossOptions) -> torch.nn.Module:
    """Compare scores only with each other, so that their range does not matter."""
    return losses.CoSENTLoss(model, scale=options.scale)


def _cosine(model: Any, data: TrainingSet, _options: LossOptions) -> torch.nn.Module:
    """Rescale scores that a cosine cannot reach."""
    if data.low >= -1 and data.high <= 1:
        return losses.CosineSimilarityLoss(model)
    return RescaledCosineLoss(model, data.low, data.high)


def _softmax(model: Any, data: TrainingSet, _options: LossOptions) -> torch.nn.Module:
    loss = losses.SoftmaxLoss(model, model.get_embedding_dimension(), max(2, len(data.classes)))
    linear = loss.classifier
    with torch.device("meta"):  # draws no random numbers
        padded = PaddedLinear(linear.in_features, linear.out_features)
    padded.weight, padded.bias = linear.weight, linear.bias
    loss.classifier = padded
    return loss


def _margin_mse(model: Any, data: TrainingSet, options: LossOptions) -> torch.nn.Module:
    """Cosines of unit vectors differ by 2 at most: scale them unless the teacher's scores are cosines too."""
    is_unit = options.unit or isinstance(model[-1], Normalize)
    scale = options.scale if is_unit and not are_cosines(data) else 1.0
    return losses.MarginMSELoss(model, similarity_fct=partial(scaled_dot, scale=scale))


def _kl(model: Any, data: TrainingSet, options: LossOptions) -> torch.nn.Module:
    """Bring both sides to one scale, so that a teacher with cosines for scores is as sure as the student."""
    temperature = options.temperature
    if temperature is None:
        temperature = 1 / options.scale if are_cosines(data) else 1.0
    return losses.DistillKLDivLoss(
        model,
        similarity_fct=partial(scaled_cosine, scale=options.scale),
        student_temperature=1.0,
        teacher_temperature=temperature,
    )


def _embeddings(model: Any, _data: TrainingSet, _options: LossOptions) -> torch.nn.Module:
    return ShortenedMSELoss(model)


def _tsdae(model: Any, _data: TrainingSet, _options: LossOptions) -> torch.nn.Module:
    words = getattr(model[0], "auto_model", None)
    if words is None or type(words.config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        kind = "a table of words" if words is None else words.config.model_type
        raise InputError(
            f"the objective tsdae needs a base that can write too, such as BERT or RoBERTa, but this one is {kind}: "
            "take another base, or learn a teacher's vectors with --teacher MODEL"
        )
    name = words.config._name_or_path  # noqa: SLF001 - the loss makes its decoder from the same
    return losses.DenoisingAutoEncoderLoss(model, decoder_name_or_path=name, tie_encoder_decoder=True)


_BUILDERS: dict[str, Build] = {
    "ranking": _ranking,
    "cached-ranking": _cached_ranking,
    "symmetric-ranking": _symmetric_ranking,
    "guided-ranking": _guided_ranking,
    "contrastive": partial(_contrastive, losses.ContrastiveLoss),
    "online-contrastive": partial(_contrastive, losses.OnlineContrastiveLoss),
    "triplet-cosine": partial(_triplet, squared_distance, 0.2),
    "triplet-euclidean": partial(_triplet, TripletDistanceMetric.EUCLIDEAN, 1.0),
    "batch-all": partial(_batch, losses.BatchAllTripletLoss, _EUCLIDEAN),
    "batch-hard": partial(_batch, losses.BatchHardTripletLoss, _EUCLIDEAN),
    "batch-hard-soft": partial(_batch, losses.BatchHardSoftMarginTripletLoss, _EUCLIDEAN),
    "batch-semi-hard": partial(_batch, losses.BatchSemiHardTripletLoss, _squared_distances),
    "cosent": _cosent,
    "cosine": _cosine,
    "softmax": _softmax,
    "margin-mse": _margin_mse,
    "kl": _kl,
    "embeddings": _embeddings,
    "tsdae": _tsdae,
}
