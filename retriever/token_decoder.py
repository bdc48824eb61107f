"""Decoders from an encoder's hidden states to its tokens: one distribution over the vocabulary for each position."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from ..indexes.errors import InputError

KINDS = ("linear", "lstm", "transformer")
_POSITIONS = 512


@dataclass(frozen=True, slots=True)
class TokenDecoderSettings:
    """Which decoder; saved beside its weights."""

    kind: str = "transformer"
    width: int = 384  # of the states
    vocabulary: int = 30_522
    target_width: int = 384  # of the word embeddings that tokens are told by
    layers: int = 2  # of an LSTM or a Transformer
    bidirectional: bool = True  # an LSTM that reads both ways

    def check(self) -> None:
        """:raises InputError: for a decoder that there is not."""
        if self.kind not in KINDS:
            raise InputError(f"there is no decoder {self.kind!r}: expected one of {', '.join(KINDS)}")
        if self.layers < 1:
            raise InputError(f"a decoder has 1 layer at least, not {self.layers}")


def token_decoder(settings: TokenDecoderSettings, words: Any = None) -> Any:
    """A `TokenDecoder` module.

    :param words: word embeddings (vocabulary, target width) that the output begins as: tokens that training never
        meets are then told from their neighbours. Random unless given.
    """
    settings.check()
    return _class()(settings, words)


@cache
def _class() -> type[Any]:
    """`TokenDecoder`, made when torch is first needed."""
    import torch
    from torch import nn

    class TokenDecoder(nn.Module):
        """States (texts, tokens, width) to targets (texts, tokens, target width), and targets to logits.

        Every kind is a linear map from state to target, to which an LSTM or a Transformer adds what the neighbouring
        states say; the addition begins at nothing. Logits are products of a target with the output's word vectors.
        """

        def __init__(self, settings: TokenDecoderSettings, words: Any) -> None:
            super().__init__()
            width, target = settings.width, settings.target_width
            self.settings = settings
            self.linear = nn.Linear(width, target)
            given = torch.randn(settings.vocabulary, target) / target**0.5 if words is None else words.clone()
            self.words, self.bias = nn.Parameter(given), nn.Parameter(torch.zeros(settings.vocabulary))
            self.hidden = nn.Parameter(torch.zeros(width))  # stands for a state that is not seen
            if settings.kind == "lstm":
                self.lstm = nn.LSTM(
                    width, target, settings.layers, batch_first=True, bidirectional=settings.bidirectional
                )
                self.out = _nothing(nn.Linear(target * (1 + settings.bidirectional), target))
            if settings.kind == "transformer":
                self.places: Any
                self.register_buffer("places", _places(_POSITIONS, width), persistent=False)
                self.into = nn.Linear(width, width)
                layer = nn.TransformerEncoderLayer(
                    width, max(1, width // 64), 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
                )
                self.transformer = nn.TransformerEncoder(layer, settings.layers, enable_nested_tensor=False)
                self.norm, self.out = nn.LayerNorm(width), _nothing(nn.Linear(width, target))

        def targets(self, states: Any, mask: Any, unseen: Any = None) -> Any:
            """:param mask: (texts, tokens), 1 where there is a token.
            :param unseen: (texts, tokens), true where the state is to be told from its neighbours.
            """
            if unseen is not None:
                states = torch.where(unseen[..., None], self.hidden.to(states.dtype), states)
            made = self.linear(states)
            if self.settings.kind == "lstm":
                made = made + self.out(self.lstm(states)[0])
            elif self.settings.kind == "transformer":
                placed = self.into(states) + self.places[: states.shape[1]].to(states.dtype)
                made = made + self.out(self.norm(self.transformer(placed, src_key_padding_mask=mask == 0)))
            return made

        def logits(self, targets: Any, classes: Any = None) -> Any:
            """:param classes: tokens to tell apart; all unless given."""
            if classes is None:
                return targets @ self.words.T + self.bias
            return targets @ self.words[classes].T + self.bias[classes]

    def _nothing(layer: Any) -> Any:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer

    def _places(count: int, width: int) -> Any:
        """Vaswani et al. 2017 (arXiv:1706.03762), section 3.5, at a tenth of its size."""
        angles = torch.arange(count)[:, None] * torch.exp(
            torch.arange(0, width, 2) * (-torch.log(torch.tensor(1e4)) / width)
        )
        places = torch.stack([angles.sin(), angles.cos()], 2).flatten(1)
        return 0.1 * places[:, :width]

    return TokenDecoder
