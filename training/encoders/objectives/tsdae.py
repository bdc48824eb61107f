"""Delete words from texts, which TSDAE (Wang et al. 2021, arXiv:2104.06979) learns to restore."""

from __future__ import annotations

import re

import numpy as np

from ....core.words import UNSPACED_RANGES
from ...data.dataset import hash_of

_WORD = re.compile(rf" ?(?:[{UNSPACED_RANGES}]|[^ {UNSPACED_RANGES}]+)")  # or a character, where a script has no spaces


def delete_words(text: str, epoch: int, seed: int) -> str:
    """Delete six of ten words, the best ratio in the paper. Text, epoch and seed decide which, so that runs repeat."""
    words = _WORD.findall(" ".join(text.split()))
    generator = np.random.default_rng((hash_of(text), epoch, seed))
    rest = [word for word, stays in zip(words, generator.random(len(words)) > 0.6, strict=True) if stays]
    return "".join(rest or words[:1]).strip()
