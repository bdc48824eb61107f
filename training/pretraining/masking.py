"""What a masked language model is asked: which tokens of a text it must name, and what stands in their places.

Devlin et al. 2019 (arXiv:1810.04805), section 3.1: 15 % of the tokens are chosen; of those 80 % become [MASK], 10 % a
random token and 10 % stay. transformers' own collator draws each token for itself, so that a short text may lose none
or half of its tokens, always writes [MASK] for whole words, and cannot go on from the middle of an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...core.arrays import Integers, Mask


IGNORED = -100  # the label of a token that is not asked for: torch's cross entropy passes over it


@dataclass(frozen=True, slots=True)
class Masking:
    """How texts in one vocabulary are masked."""

    mask: int  # the id of [MASK]
    special: Integers  # ids that are never chosen and never put in
    vocabulary: Integers  # ids that a random token is drawn from
    share: float = 0.15
    whole_words: bool = False  # choose all pieces of a word or none

    @classmethod
    def of(
        cls, mask: int, special: Iterable[int], size: int, *, share: float = 0.15, whole_words: bool = False
    ) -> Masking:
        """:param size: of the vocabulary, special tokens included."""
        never = np.array(sorted(special), np.int64)
        return cls(mask, never, np.setdiff1d(np.arange(size), never), share, whole_words)

    def __call__(self, tokens: Integers, starts: Mask, random: np.random.Generator) -> tuple[Integers, Integers]:
        """The tokens as the model sees them, and the labels: the true token where one was chosen, else `IGNORED`.

        :param starts: whether a word begins with the token.
        """
        eligible = ~np.isin(tokens, self.special)
        choose = choose_words if self.whole_words else choose_tokens
        chosen = choose(eligible, starts, self.share, random)
        return self._hidden(tokens, chosen, random), np.where(chosen, tokens, IGNORED)

    def _hidden(self, tokens: Integers, chosen: Mask, random: np.random.Generator) -> Integers:
        fate = random.random(len(tokens))
        any_token = self.vocabulary[random.integers(0, len(self.vocabulary), len(tokens))]
        seen = np.where(fate < 0.8, self.mask, np.where(fate < 0.9, any_token, tokens))
        return np.where(chosen, seen, tokens)


def choose_tokens(eligible: Mask, starts: Mask, share: float, random: np.random.Generator) -> Mask:  # noqa: ARG001 - one signature
    """That share of the eligible tokens, to the nearest whole number, and one at least."""
    places = np.flatnonzero(eligible)
    chosen = np.zeros(len(eligible), bool)
    chosen[random.permutation(places)[: _budget(len(places), share)]] = True
    return chosen


def choose_words(eligible: Mask, starts: Mask, share: float, random: np.random.Generator) -> Mask:
    """Whole words in a random order, as long as their pieces stay within the share; one word at least.

    A word with a piece that is not eligible is never chosen.
    """
    if not len(starts):
        return np.zeros(0, bool)
    words: Integers = np.cumsum(starts) - bool(
        starts[0]
    )  # tokens before the first start are the rest of a word cut in two
    sizes = np.bincount(words)
    whole = np.bincount(words, weights=eligible) == sizes
    order = random.permutation(np.flatnonzero(whole))
    left = _budget(int(eligible.sum()), share)
    taken = []
    for word, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        if size <= left:
            taken.append(word)
            left -= size
        if not left:
            break
    return np.isin(words, taken or order[:1])


def _budget(count: int, share: float) -> int:
    return min(count, max(1, round(count * share)))
