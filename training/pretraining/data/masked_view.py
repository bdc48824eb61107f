"""Show for `binocle look` how `masking` would hide the tokens of a text in each epoch of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.errors import InputError
from .masking import IGNORED, Masking

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ....retriever.inspection.token_states import TokenStates


class MaskedEpoch(NamedTuple):
    """The tokens that the model reads, and the number of targets: masked, replaced and unchanged ones."""

    pieces: list[str]
    targets: int
    masked: int
    replaced: int
    unchanged: int


def masked_epochs(text: TokenStates, tokenizer: Tokenizer, count: int) -> list[MaskedEpoch]:
    """Mask a text for several epochs, by the rules of `pretrain`.

    :raises InputError: when the vocabulary has no mask token.
    """
    mask = next((tokenizer.token_to_id(name) for name in ("[MASK]", "<mask>") if tokenizer.token_to_id(name)), None)
    if mask is None:
        raise InputError("the vocabulary of this model has no mask token")
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    masking = Masking.of(mask, special, tokenizer.get_vocab_size())
    ids, random = np.array(text.ids, np.int64), np.random.default_rng(0)
    starts = np.ones(len(ids), bool)
    return [_epoch(ids, *masking(ids, starts, random), mask, tokenizer) for _ in range(count)]


def _epoch(ids: np.ndarray, tokens: np.ndarray, labels: np.ndarray, mask: int, tokenizer: Tokenizer) -> MaskedEpoch:
    targets = labels != IGNORED
    masked, unchanged = targets & (tokens == mask), targets & (tokens == ids)
    pieces = [tokenizer.id_to_token(token) or "" for token in tokens.tolist()]
    replaced = targets.sum() - masked.sum() - unchanged.sum()
    return MaskedEpoch(pieces, int(targets.sum()), int(masked.sum()), int(replaced), int(unchanged.sum()))
