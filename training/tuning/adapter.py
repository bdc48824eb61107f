"""Fit an adapter: a linear map of the query vectors that learns a teacher's rankings. The encoder does not change.

The loss is that of `ranking_distillation`, without an encoder: the teacher's scores of all passages, and the cosines of
the mapped query with them, are two distributions, and their KL divergence is minimised. The map begins as the identity,
and a penalty keeps it near. At the end it is averaged with the identity (Wortsman et al. 2021, arXiv:2109.01903).
Held-out queries choose the share: see `weaken`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from ...retriever.models.encoders.adapted_encoder import AdaptedEncoder
from . import base_share
from .ranking_distillation import cosine_scale, divergence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...retriever.models.encoder import Encoder
    from .verdict import Judges, LogJudges

_STEPS, _BATCH, _RATE, _PENALTY = 450, 256, 1e-3, 3e-3


def fit_map(queries: Floats, scores: Floats, passages: Floats, shares: NDArray[np.float64], seed: int) -> Floats:
    """Return the map, shape (dim, dim), by Adam (Kingma and Ba 2015) with a rate that falls to 0.

    :param queries: vectors, shape (n, dim).
    :param scores: of the teacher, shape (n, passages).
    :param passages: vectors, shape (passages, dim).
    :param shares: how often each query is drawn; their sum is 1.
    """
    generator = np.random.default_rng(seed)
    vectors = torch.from_numpy(passages)
    scale = cosine_scale(passages)
    identity = torch.eye(queries.shape[1])
    matrix = identity.clone().requires_grad_()
    optimizer = torch.optim.Adam([matrix], lr=_RATE)
    for step in range(_STEPS):
        optimizer.param_groups[0]["lr"] = _RATE * (1 - step / _STEPS)
        rows = generator.choice(len(queries), min(_BATCH, len(queries)), replace=False, p=shares)
        drawn = torch.from_numpy(queries[rows])
        images = functional.normalize(drawn @ matrix, dim=1) * drawn.norm(dim=1, keepdim=True)
        loss = divergence(scale * images @ vectors.T, torch.from_numpy(scores[rows]))
        loss = loss + _PENALTY * (matrix - identity).square().sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return np.ascontiguousarray(matrix.detach().numpy())


def weaken(matrix: Floats, base: Encoder, judges: Judges, log: LogJudges | None = None) -> tuple[Floats, float]:
    """Mix a map with the identity, and return it with its share.

    Without a log, generated queries choose the share that ranks best, or share .5 if they are few. With a log, the
    share that agrees most with the teacher is chosen. A share is excluded if generated queries lose much by it, unless
    these queries are few. Share 0 is the identity.

    :param judges: held-out generated queries.
    :param log: held-out queries of a log.
    """
    identity = np.eye(len(matrix), dtype=np.float32)
    vectors = judges.stored_vectors(base)

    def mixed(share: float) -> Floats:
        return np.ascontiguousarray(identity + np.float32(share) * (matrix - identity))

    def adapted(share: float) -> Encoder:
        return AdaptedEncoder(base.name, base, mixed(share))

    def values(share: float) -> dict[str, Floats]:
        return judges.by_mode(adapted(share), vectors)

    def quality(share: float) -> float:
        return sum(float(of_mode.mean()) for of_mode in values(share).values())

    shares: tuple[float, ...] = (0.0, *base_share.SHARES)
    if log is None:
        share = base_share.best(shares, quality, judges)
    else:
        agreement = {share: float(log.agreement(adapted(share)).mean()) for share in shares}
        if len(judges.pairs) >= base_share.MIN_QUERIES:
            before = values(0.0)
            shares = tuple(share for share in shares if not judges.judge(before, values(share), log.seed).loses_much)
        share = max(shares, key=agreement.__getitem__)
    return mixed(share), share
