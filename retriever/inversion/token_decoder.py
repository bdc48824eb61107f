"""Decoders from an encoder's hidden states to its tokens: one distribution over the vocabulary for each position."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from ...core.errors import InputError
from .bert_layer import bert_layer

KINDS = ("linear", "lstm", "transformer")
POSITIONS = 512  # tokens that a Transformer reads
_FAST = 10.0  # times the part of an LSTM or a Transformer counts: to tell a token from all others takes a large target


@dataclass(frozen=True, slots=True)
class TokenDecoderSettings:
    """Which decoder; saved beside its weights."""

    kind: str = "transformer"
    width: int = 384  # of the states
    vocabulary: int = 30_522
    target_width: int = 384  # of the word embeddings that tokens are told by
    layers: int = 1  # of an LSTM or a Transformer
    bidirectional: bool = True  # an LSTM that reads both ways
    heads: int = 0  # of a Transformer's layers; one for each 64 numbers unless given
    inner: int = 0  # width between the two maps of such a layer; four times the states' unless given

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

    layer_class = bert_layer()

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
            self.common = nn.Parameter(torch.zeros(settings.vocabulary))  # logits that tokens have there beside bias
            if settings.kind == "lstm":
                self.lstm = nn.LSTM(
                    width, target, settings.layers, batch_first=True, bidirectional=settings.bidirectional
                )
                self.out = _nothing(nn.Linear(target * (1 + settings.bidirectional), target))
            if settings.kind == "transformer":
                self.places = nn.Parameter(torch.randn(POSITIONS, target) * 0.02)
                self.into, self.masked = nn.Linear(width, target), nn.Parameter(torch.randn(target) * 0.02)
                self.before = nn.LayerNorm(target, eps=1e-12)
                heads = settings.heads or max(1, target // 64)
                self.layers: Any = nn.ModuleList(
                    layer_class(target, heads, settings.inner or 4 * target) for _ in range(settings.layers)
                )
                self.out = _nothing(nn.Linear(target, target))

        def begin_as(self, bert: Any, mask: int) -> None:
            """Copy the weights of a BertModel: its lowest layers where this has fewer.

            :param mask: the id of its token for what is masked.
            """
            embeddings = bert.embeddings
            with torch.no_grad():
                count = min(POSITIONS, embeddings.position_embeddings.num_embeddings)
                self.places[:count] = embeddings.position_embeddings.weight[:count]
                self.places.add_(embeddings.token_type_embeddings.weight[0])
                self.masked.copy_(embeddings.word_embeddings.weight[mask])
            self.before.load_state_dict(embeddings.LayerNorm.state_dict())
            for mine, its in zip(self.layers, bert.encoder.layer, strict=False):
                mine.begin_as(its)

        def targets(self, states: Any, mask: Any, unseen: Any = None) -> Any:
            """:param mask: (texts, tokens), 1 where there is a token.
            :param unseen: (texts, tokens), true where the state is to be told from its neighbours.
            """
            if unseen is not None:
                states = torch.where(unseen[..., None], self.hidden.to(states.dtype), states)
            made = self.linear(states)
            if self.settings.kind == "lstm":
                made = made + _FAST * self.out(self.lstm(states)[0])
            elif self.settings.kind == "transformer":
                read = self.into(states)
                if unseen is not None:
                    read = torch.where(unseen[..., None], self.masked.to(read.dtype), read)
                read = self.before(read + self.places[: states.shape[1]])
                for layer in self.layers:
                    read = layer(read, mask[:, None, None] == 1)
                made = made + _FAST * self.out(read)
            return made

        def logits(self, targets: Any, classes: Any = None, unseen: Any = None) -> Any:
            """:param targets: (places, target width).
            :param classes: tokens to tell apart; all unless given.
            :param unseen: (places,), true where the state was not seen.
            """
            chosen = slice(None) if classes is None else classes
            made = targets @ self.words[chosen].T + self.bias[chosen]
            return made if unseen is None else made + unseen[:, None] * self.common[chosen]

    def _nothing(layer: Any) -> Any:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer

    return TokenDecoder
