"""The module that recovers a text from its vector.

A small network predicts a bag of tokens from the vector: how likely each token is anywhere in the text. The likeliest
tokens of the bag, and a few states computed from the vector, go before the text in a bidirectional Transformer. It
names masked tokens from these and from the tokens that are known (masked diffusion; Sahoo et al. 2024,
arXiv:2406.07524). So one module proposes whole texts, and also replacements for a single token of a text, which
`correction` asks for. It starts as a copy of the encoder's lower layers if that is a BERT: they know word order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .bert_layer import BertLayer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .decoder_settings import TextDecoderSettings

PREFIX = 4  # states before the text, computed from the vector
WORDS = 32  # tokens of the bag before the text
_ALONE = 6.0  # initial logit of a token if its own vector has a cosine of 1 with the text's


class TokenBag(nn.Module):
    """Predict the tokens of a text from its vector, without their order.

    The logits are the sum of two maps. A network maps the vector to learned word embeddings. A linear map compares it
    with the vector that the encoder gives each token alone; it finds tokens that training never met.
    """

    alone: Tensor

    def __init__(self, settings: TextDecoderSettings) -> None:
        super().__init__()
        dim, width, wide, vocabulary = settings.dim, settings.width, settings.wide, settings.vocabulary
        self.root = dim**0.5
        self.read = nn.Sequential(
            nn.Linear(dim, wide), nn.GELU(), nn.LayerNorm(wide),
            nn.Linear(wide, wide), nn.GELU(), nn.LayerNorm(wide),
            nn.Linear(wide, width),
        )  # fmt: skip
        self.words = nn.Parameter(torch.randn(vocabulary, width) * 0.006)
        self.turn = nn.Linear(dim, dim)
        with torch.no_grad():
            self.turn.weight.copy_(_ALONE * torch.eye(dim))
        self.register_buffer("alone", torch.zeros(vocabulary, dim))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.length = nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.Linear(width, settings.longest + 1))

    def forward(self, vectors: Tensor, classes: Tensor | None = None) -> Tensor:
        """Logits (rows, vocabulary) of vectors (rows, dim).

        :param classes: token ids to compute logits of; all by default.
        """
        near = self.read(vectors * self.root)
        turned = self.turn(vectors)
        columns: Any = slice(None) if classes is None else classes
        logits: Tensor = near @ self.words[columns].T + turned @ self.alone[columns].T.to(turned.dtype)
        return logits + self.bias[columns]

    def lengths(self, vectors: Tensor) -> Tensor:
        """Logits of the number of tokens in the text (rows, longest + 1)."""
        logits: Tensor = self.length(vectors * self.root)
        return logits


class TextDecoder(nn.Module):
    """A bag of tokens, and a Transformer that orders them into a text.

    Shapes: vectors (rows, dim), bags (rows, vocabulary), ids (rows, tokens), targets (rows, tokens, width).
    """

    def __init__(self, settings: TextDecoderSettings) -> None:
        super().__init__()
        self.settings = settings
        width, vocabulary = settings.width, settings.vocabulary
        self.bag = TokenBag(settings)
        self.words = nn.Parameter(torch.randn(vocabulary, width) * 0.02)
        self.places = nn.Parameter(torch.randn(settings.longest + 2, width) * 0.02)  # prose: the name in saved weights
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(width, settings.heads, settings.inner) for _ in range(settings.layers))
        self.root = settings.dim**0.5
        self.prefix = nn.Sequential(nn.Linear(settings.dim, 1_024), nn.GELU(), nn.Linear(1_024, PREFIX * width))
        self.added = nn.Linear(settings.dim, width)
        nn.init.zeros_(self.added.weight)
        nn.init.zeros_(self.added.bias)
        self.ranks = nn.Parameter(torch.randn(min(WORDS, vocabulary), width) * 0.02)
        self.sure = nn.Linear(1, width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.share = nn.Parameter(torch.tensor(0.3))  # weight of the bag's logits at each position

    def copy_bert(self, bert: Any) -> None:
        """Copy the weights of transformers' BertModel; its lowest layers if it has more than this decoder."""
        with torch.no_grad():
            words = bert.embeddings.word_embeddings.weight
            self.words[: len(words)] = words
            self.bag.words[: len(words)] = 0.3 * words
            positions = bert.embeddings.position_embeddings.weight[: len(self.places)]
            self.places.copy_(positions + bert.embeddings.token_type_embeddings.weight[0])
        self.norm.load_state_dict(bert.embeddings.LayerNorm.state_dict())
        for layer, source in zip(self.layers, bert.encoder.layer, strict=False):
            assert isinstance(layer, BertLayer)
            layer.copy_bert(source)

    def condition(self, vectors: Tensor, bag: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the states that condition the text on a vector.

        :param bag: the bag's logits (rows, vocabulary).
        :return: states to put before the text (rows, PREFIX + WORDS, width), and a state to add at each position
            (rows, width).
        """
        scaled = vectors * self.root
        likely, tokens = bag.log_softmax(-1).topk(len(self.ranks))
        words = self.words[tokens] + self.ranks + self.sure(likely[..., None])
        prefix = self.prefix(scaled).view(len(vectors), PREFIX, -1)
        return self.norm(torch.cat([prefix, words], 1)), self.added(scaled)

    def targets(self, condition: tuple[Tensor, Tensor], ids: Tensor, mask: Tensor) -> Tensor:
        """Predict an embedding for each token of a text.

        :param condition: the result of `condition`.
        :param mask: true where there is a token.
        """
        first, added = condition
        text = self.norm(self.words[ids] + self.places[: ids.shape[1]] + added[:, None])
        states = torch.cat([first, text], 1)
        visible = torch.cat([mask.new_ones(len(ids), first.shape[1]), mask], 1)[:, None, None]
        for layer in self.layers:
            states = layer(states, visible)
        targets: Tensor = self.head(states[:, first.shape[1] :])
        return targets

    def logits(self, targets: Tensor, bag: Tensor, classes: Tensor | None = None) -> Tensor:
        """Logits (positions, classes) of predicted embeddings.

        :param targets: (positions, width).
        :param bag: the bag's logits of the same rows (positions, classes).
        :param classes: token ids to compute logits of; all by default.
        """
        columns: Any = slice(None) if classes is None else classes
        return targets @ self.words[columns].T + self.bias[columns] + self.share * bag


def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    """Rows of ids as a tensor (rows, tokens), padded with `fill` on the right."""
    table = torch.full((len(rows), max(map(len, rows), default=0)), fill, dtype=torch.long)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = torch.tensor(list(row), dtype=torch.long)
    return table
