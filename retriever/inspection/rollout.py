"""Sum the attention of all layers and heads: how much of each last state comes from each token of the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ...core.arrays import Floats


def rollout(attention: Floats) -> Floats:
    """Return the share of each token of the text in each last state, shape (tokens, tokens); each row sums to 1.

    A layer adds the attended values to the token's own state, so half of each step is the token itself. Reference:
    attention rollout, Abnar and Zuidema 2020, arXiv:2005.00928.

    :param attention: of each layer and head, shape (layers, heads, tokens, tokens).
    """
    steps = (attention.mean(1) + np.eye(attention.shape[-1], dtype=np.float32)) / 2
    shares: Floats = steps[0]
    for step in steps[1:]:
        shares = step @ shares
    return shares
