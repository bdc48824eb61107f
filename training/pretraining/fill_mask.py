"""What a masked language model would put in the places left open in a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.checks import is_whole
from ...core.errors import InputError, MissingExtraError
from ...core.words import encodable
from ...retriever.models import files as model_folder
from ..runs import environment
from . import model as masked_model

if TYPE_CHECKING:
    from .model import MaskedModel

MASK = "[MASK]"  # in any text, whatever the model's own is


@dataclass(frozen=True, slots=True)
class Prediction:
    """A token in place of a mask. Probabilities of all tokens in one place add up to 1."""

    token: str
    probability: float


def _require() -> None:
    """Less than training does, and so sooner."""
    try:
        import torch  # noqa: F401
        from transformers.utils import logging
    except ImportError:
        raise MissingExtraError("torch", "train", "filling in masked words") from None
    chatter: Any = logging
    chatter.set_verbosity_error()
    chatter.disable_progress_bar()


class Filler:
    """A model that names masked words.

    >>> Filler.load("bert-rust").fill("The [MASK] of a value drops it.", k=2)  # doctest: +SKIP
    """

    def __init__(self, masked: MaskedModel) -> None:
        self._model, self._tokenizer = masked.model.eval().to(environment.device()), masked.tokenizer
        self._most = masked.max_length

    @classmethod
    def load(cls, name: str) -> Filler:
        """:raises InputError: when the model has no head for masked words."""
        model_folder.find(name, model_folder.MASKED)  # torch takes seconds to say that it is not there
        _require()
        masked = masked_model.load(name)
        if masked.new_head:
            raise InputError(
                f"{name} has no head that names masked words: give a model made by 'binocle pretrain', or one of the "
                "hub's fill-mask models"
            )
        return cls(masked)

    def fill(self, text: str, k: int = 5) -> list[list[Prediction]]:
        """For each mask in the text, in order, the k likeliest tokens, likeliest first.

        Several masks are each filled as if the others stayed open.
        """
        import torch

        if not is_whole(k, 1):
            raise InputError(f"k is how many words to give, a whole number from 1, not {k!r}")
        encoded = self._encoded(text)
        with torch.no_grad():
            logits = self._model(**encoded).logits[0]
        places = (encoded["input_ids"][0] == self._tokenizer.mask_token_id).nonzero()[:, 0]
        likely = logits[places, : len(self._tokenizer)].float().softmax(1).topk(min(k, len(self._tokenizer)))
        return [
            [Prediction(self._word(token), share) for token, share in zip(tokens, shares, strict=True)]
            for tokens, shares in zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
        ]

    def _encoded(self, text: str) -> Any:
        own = self._tokenizer.mask_token
        text = re.sub(re.escape(MASK), lambda _: own, text, flags=re.IGNORECASE)
        if own not in text:
            raise InputError(f"there is no {MASK} in {text[:60]!r}: put it where a word is to be filled in")
        encoded = self._tokenizer(encodable(text), return_tensors="pt", verbose=False)
        length = encoded["input_ids"].shape[1]
        if length > self._most:
            raise InputError(f"the text has {length:,} tokens, but the model takes {self._most:,} at most: shorten it")
        return encoded.to(environment.device())

    def _word(self, token: int) -> str:
        """A piece that goes on from the word before keeps its "##"."""
        piece: str = self._tokenizer.convert_ids_to_tokens(token)
        return piece if piece.startswith("##") else self._tokenizer.decode([token]).strip() or piece
