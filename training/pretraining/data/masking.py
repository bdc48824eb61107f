"""Mask tokens for a masked language model to predict.

Devlin et al. 2019 (arXiv:1810.04805), section 3.1: 15 % of the tokens are chosen. 80 % of them become [MASK], 10 % a
random token, and 10 % stay. transformers' own collator is not used, for three reasons. It draws each token
independently, so that a short text may lose none or half of its tokens. It always writes [MASK] for whole words. It
cannot resume in the middle of an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ....core.arrays import Integers, Mask


IGNORED = -100  # label of a token not to predict, as in torch's cross entropy


@dataclass(frozen=True, slots=True)
class Masking:
    """The rules for masking texts of one vocabulary."""

    mask: int  # the id of [MASK]
    special: Integers  # ids that are never masked and never drawn
    vocabulary: Integers  # ids to draw random tokens from
    share: float = 0.15
    whole_words: bool = False  # mask all pieces of a word or none

    @classmethod
    def of(
        cls, mask: int, special: Iterable[int], size: int, *, share: float = 0.15, whole_words: bool = False
    ) -> Masking:
        """:param size: of the vocabulary, special tokens included."""
        never = np.array(sorted(special), np.int64)
        return cls(mask, never, np.setdiff1d(np.arange(size), never), share, whole_words)

    def __call__(self, tokens: Integers, starts: Mask, random: np.random.Generator) -> tuple[Integers, Integers]:
        """Return the masked tokens, and labels: the true token where one was chosen, else `IGNORED`.

        :param starts: whether each token begins a word.
        """
        eligible = ~np.isin(tokens, self.special)
        choose = choose_words if self.whole_words else choose_tokens
        targets = choose(eligible, starts, self.share, random)
        return self._mask(tokens, targets, random), np.where(targets, tokens, IGNORED)

    def _mask(self, tokens: Integers, targets: Mask, random: np.random.Generator) -> Integers:
        fate = random.random(len(tokens))
        any_token = self.vocabulary[random.integers(0, len(self.vocabulary), len(tokens))]
        masked = np.where(fate < 0.8, self.mask, np.where(fate < 0.9, any_token, tokens))
        return np.where(targets, masked, tokens)


def choose_tokens(eligible: Mask, starts: Mask, share: float, random: np.random.Generator) -> Mask:  # noqa: ARG001 - one signature
    """Choose a share of the eligible tokens, rounded, at least one."""
    positions = np.flatnonzero(eligible)
    targets = np.zeros(len(eligible), bool)
    targets[random.permutation(positions)[: _budget(len(positions), share)]] = True
    return targets


def choose_words(eligible: Mask, starts: Mask, share: float, random: np.random.Generator) -> Mask:
    """Choose random whole words until their pieces reach the share; at least one word.

    A word with an ineligible piece is never chosen.
    """
    if not len(starts):
        return np.zeros(0, bool)
    words: Integers = np.cumsum(starts) - bool(starts[0])  # tokens before the first start are the rest of a cut word
    sizes = np.bincount(words)
    whole = np.bincount(words, weights=eligible) == sizes
    order = random.permutation(np.flatnonzero(whole))
    budget = _budget(int(eligible.sum()), share)
    target_words = []
    for word, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        if size <= budget:
            target_words.append(word)
            budget -= size
        if not budget:
            break
    return np.isin(words, target_words or order[:1])


def _budget(count: int, share: float) -> int:
    return min(count, max(1, round(count * share)))
