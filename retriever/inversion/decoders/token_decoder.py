"""The module that recovers an encoder's tokens from its hidden states: a distribution for each position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .bert_layer import BertLayer

if TYPE_CHECKING:
    from .decoder_settings import TokenDecoderSettings

POSITIONS = 512  # tokens that a Transformer reads
_FAST = 10.0  # factor of the added part: only a large target tells a token from all others


class TokenDecoder(nn.Module):
    """Map states (texts, tokens, width) to targets (texts, tokens, target width), and targets to logits.

    Every kind has a linear map from state to target. An LSTM or a Transformer adds information from the neighbouring
    states; it adds nothing at first. Logits are products of a target with the output's word vectors.

    :param words: initial word vectors of the output (vocabulary, target width), random by default. With the encoder's
        word embeddings, tokens that training never meets are recognised by their neighbours.
    """

    def __init__(self, settings: TokenDecoderSettings, words: Tensor | None = None) -> None:
        super().__init__()
        width, target = settings.width, settings.target_width
        self.settings = settings
        self.linear = nn.Linear(width, target)
        vectors = torch.randn(settings.vocabulary, target) / target**0.5 if words is None else words.clone()
        self.words, self.bias = nn.Parameter(vectors), nn.Parameter(torch.zeros(settings.vocabulary))
        self.hidden = nn.Parameter(torch.zeros(width))  # stands for a hidden state
        self.common = nn.Parameter(torch.zeros(settings.vocabulary))  # added to the logits where the state is hidden
        if settings.kind == "lstm":
            self.lstm = nn.LSTM(width, target, settings.layers, batch_first=True, bidirectional=settings.bidirectional)
            self.out = _zero(nn.Linear(target * (1 + settings.bidirectional), target))
        if settings.kind == "transformer":
            self.places = nn.Parameter(torch.randn(POSITIONS, target) * 0.02)  # prose: the name in saved weights
            self.into, self.masked = nn.Linear(width, target), nn.Parameter(torch.randn(target) * 0.02)
            self.before = nn.LayerNorm(target, eps=1e-12)
            heads = settings.heads or max(1, target // 64)
            inner = settings.inner or 4 * target
            self.layers = nn.ModuleList(BertLayer(target, heads, inner) for _ in range(settings.layers))
            self.out = _zero(nn.Linear(target, target))

    def copy_bert(self, bert: Any, mask: int) -> None:
        """Copy the weights of transformers' BertModel; its lowest layers if it has more than this decoder.

        :param mask: the id of its mask token.
        """
        embeddings = bert.embeddings
        with torch.no_grad():
            count = min(POSITIONS, embeddings.position_embeddings.num_embeddings)
            self.places[:count] = embeddings.position_embeddings.weight[:count]
            self.places.add_(embeddings.token_type_embeddings.weight[0])
            self.masked.copy_(embeddings.word_embeddings.weight[mask])
        self.before.load_state_dict(embeddings.LayerNorm.state_dict())
        for layer, source in zip(self.layers, bert.encoder.layer, strict=False):
            assert isinstance(layer, BertLayer)
            layer.copy_bert(source)

    def targets(self, states: Tensor, mask: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Predict an embedding for each state.

        :param mask: (texts, tokens), 1 where there is a token.
        :param hidden: (texts, tokens), true where the decoder must do without the state.
        """
        if hidden is not None:
            states = torch.where(hidden[..., None], self.hidden.to(states.dtype), states)
        targets: Tensor = self.linear(states)
        if self.settings.kind == "lstm":
            targets = targets + _FAST * self.out(self.lstm(states)[0])
        elif self.settings.kind == "transformer":
            inputs: Tensor = self.into(states)
            if hidden is not None:
                inputs = torch.where(hidden[..., None], self.masked.to(inputs.dtype), inputs)
            inputs = self.before(inputs + self.places[: states.shape[1]])
            for layer in self.layers:
                inputs = layer(inputs, mask[:, None, None] == 1)
            targets = targets + _FAST * self.out(inputs)
        return targets

    def logits(self, targets: Tensor, classes: Tensor | None = None, hidden: Tensor | None = None) -> Tensor:
        """Logits (positions, classes) of predicted embeddings.

        :param targets: (positions, target width).
        :param classes: token ids to compute logits of; all by default.
        :param hidden: (positions,), true where the state was hidden.
        """
        columns: Any = slice(None) if classes is None else classes
        logits = targets @ self.words[columns].T + self.bias[columns]
        return logits if hidden is None else logits + hidden[:, None] * self.common[columns]


def _zero(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
