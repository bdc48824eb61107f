"""Predict the masked words of a text with a masked language model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.checks import is_whole
from ...core.errors import InputError, MissingExtraError
from ...core.words import encodable
from ...retriever.models import model_files
from ..runs import environment

if TYPE_CHECKING:
    from .masked_model import MaskedModel

MASK = "[MASK]"  # in every text, whatever the model's own mask token is


@dataclass(frozen=True, slots=True)
class TokenPrediction:
    """A token for a mask. The probabilities of all tokens for a mask add up to 1."""

    token: str
    probability: float


@dataclass(frozen=True, slots=True)
class FilledMask:
    """A mask that was filled: its number in the text, from 1, and its token's probability at that moment."""

    mask: int
    token: str
    probability: float


class Filler:
    """A model that predicts masked words.

    >>> Filler.load("bert-rust").fill("The [MASK] of a value drops it.", k=2)  # doctest: +SKIP
    """

    def __init__(self, masked: MaskedModel) -> None:
        self._masked, self._tokenizer = masked, masked.tokenizer

    @classmethod
    def load(cls, name: str) -> Filler:
        """Load a model by folder or name.

        :raises InputError: when the model has no head for masked words.
        """
        model_files.find(name, model_files.MASKED)  # a missing model is reported before torch takes seconds to load
        try:
            from transformers.utils import logging

            from .masked_model import load
        except ImportError:
            raise MissingExtraError("torch", "train", "filling in masked words") from None
        chatter: Any = logging
        chatter.set_verbosity_error()
        chatter.disable_progress_bar()
        masked = load(name)
        if masked.new_head:
            raise InputError(
                f"{name} has no head that names masked words: give a model made by 'binocle pretrain', or one of the "
                "hub's fill-mask models"
            )
        masked.model.eval().to(environment.device())
        return cls(masked)

    def fill(self, text: str, k: int = 5) -> list[list[TokenPrediction]]:
        """Predict the k likeliest tokens for each mask in the text, the likeliest first.

        With several masks, each prediction leaves the other masks unfilled.
        """
        if not is_whole(k, 1):
            raise InputError(f"k is how many words to give, a whole number from 1, not {k!r}")
        probabilities = self._masked.mask_logits(self._encode(text)).softmax(1)
        likely = probabilities.topk(min(k, len(self._tokenizer)))
        return [
            [TokenPrediction(self._word(token), share) for token, share in zip(tokens, shares, strict=True)]
            for tokens, shares in zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
        ]

    def fill_in_turn(self, text: str) -> list[FilledMask]:
        """Fill the masks one after the other, the surest first; each prediction sees the words filled before.

        Masks that are filled at once may get words that do not go together. Reference: mask-predict decoding,
        Ghazvininejad et al. 2019, arXiv:1904.09324, with one mask a step.
        """
        encoded = self._encode(text)
        ids = encoded["input_ids"][0]
        positions = (ids == self._tokenizer.mask_token_id).nonzero()[:, 0].tolist()
        numbers = {position: number for number, position in enumerate(positions, 1)}
        filled = []
        while positions:
            probabilities = self._masked.mask_logits(encoded).detach().softmax(1)
            probabilities[:, self._tokenizer.mask_token_id] = 0  # a mask fills no mask
            shares, tokens = probabilities.max(1)
            surest = int(shares.argmax())
            position, token = positions.pop(surest), int(tokens[surest])
            ids[position] = token
            filled.append(FilledMask(numbers[position], self._word(token), float(shares[surest])))
        return filled

    def _encode(self, text: str) -> Any:
        own = self._tokenizer.mask_token
        text = re.sub(re.escape(MASK), lambda _: own, text, flags=re.IGNORECASE)
        if own not in text:
            raise InputError(f"there is no {MASK} in {text[:60]!r}: put it where a word is to be filled in")
        encoded = self._tokenizer(encodable(text), return_tensors="pt", verbose=False)
        length, limit = encoded["input_ids"].shape[1], self._masked.max_length
        if length > limit:
            raise InputError(f"the text has {length:,} tokens, but the model takes {limit:,} at most: shorten it")
        return encoded.to(environment.device())

    def _word(self, token: int) -> str:
        """The text of a token; a piece that continues a word starts with "##"."""
        piece: str = self._tokenizer.convert_ids_to_tokens(token)
        return piece if piece.startswith("##") else self._tokenizer.decode([token]).strip() or piece
