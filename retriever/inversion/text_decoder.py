"""From one vector of a text to its words, and to the text: the module that inversion of embeddings learns.

A small network makes a bag of tokens of the vector: how likely each is anywhere in the text. The likeliest of them, and
a few states made of the vector, stand before the text in a bidirectional Transformer, which names masked tokens from
these and from the tokens that are there already (masked diffusion; Sahoo et al. 2024, arXiv:2406.07524). So one module
proposes whole texts and also what could stand at one place of a given text, which a corrector asks. It begins as a copy
of the encoder's lower layers where that is a BERT, since they know how words follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from .bert_layer import bert_layer

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX = 4  # states that stand for the vector before the text
WORDS = 32  # of the bag that stand there too
LAYERS = 4
_ALONE = 6.0  # what a cosine of 1 with the vector of a token alone counts at first


@dataclass(frozen=True, slots=True)
class TextDecoderSettings:
    """The sizes of a decoder; saved beside its weights."""

    dim: int  # of the vectors
    vocabulary: int
    longest: int  # tokens of a text, special ones left out
    width: int = 384
    layers: int = LAYERS
    heads: int = 12
    inner: int = 1_536  # width between the two maps of a layer
    wide: int = 2_048  # of the network that makes the bag


def text_decoder(settings: TextDecoderSettings, bert: Any = None) -> Any:
    """A `TextDecoder` module.

    :param bert: transformers' BertModel of the same sizes to begin as. Random weights unless given.
    """
    made = _class()(settings)
    if bert is not None:
        made.begin_as(bert)
    return made


def settings_of(bert_config: Any, dim: int, longest: int) -> TextDecoderSettings:
    """The sizes of a decoder that can begin as a BERT of that configuration."""
    return TextDecoderSettings(
        dim=dim,
        vocabulary=bert_config.vocab_size,
        longest=min(longest, bert_config.max_position_embeddings - 2),
        width=bert_config.hidden_size,
        layers=min(LAYERS, bert_config.num_hidden_layers),
        heads=bert_config.num_attention_heads,
        inner=bert_config.intermediate_size,
    )


@cache
def _class() -> type[Any]:
    """`TextDecoder`, made when torch is first needed."""
    import torch
    from torch import nn

    layer_class = bert_layer()

    class Bag(nn.Module):
        """A vector to how likely each token is in its text: logits (rows, vocabulary) from vectors (rows, dim).

        Two maps are added: a network towards word embeddings that are learned, and a linear one towards the vectors
        that the encoder gives each token alone, by which tokens are found that training never met.
        """

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
            self.alone: Any
            self.register_buffer("alone", torch.zeros(vocabulary, dim))
            self.bias = nn.Parameter(torch.zeros(vocabulary))
            self.length = nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.Linear(width, settings.longest + 1))

        def forward(self, vectors: Any, classes: Any = None) -> Any:
            """:param classes: tokens to tell apart; all unless given."""
            near = self.read(vectors * self.root)
            turned = self.turn(vectors)
            chosen = slice(None) if classes is None else classes
            return near @ self.words[chosen].T + turned @ self.alone[chosen].T.to(turned.dtype) + self.bias[chosen]

        def lengths(self, vectors: Any) -> Any:
            """Logits of how many tokens the text has (rows, longest + 1)."""
            return self.length(vectors * self.root)

    class TextDecoder(nn.Module):
        """Shapes: vectors (rows, dim), bags (rows, vocabulary), ids (rows, tokens), targets (rows, tokens, width)."""

        def __init__(self, settings: TextDecoderSettings) -> None:
            super().__init__()
            self.settings = settings
            width, vocabulary = settings.width, settings.vocabulary
            self.bag: Any = Bag(settings)
            self.words = nn.Parameter(torch.randn(vocabulary, width) * 0.02)
            self.places = nn.Parameter(torch.randn(settings.longest + 2, width) * 0.02)
            self.norm = nn.LayerNorm(width, eps=1e-12)
            self.layers: Any = nn.ModuleList(
                layer_class(width, settings.heads, settings.inner) for _ in range(settings.layers)
            )
            self.root = settings.dim**0.5
            self.prefix = nn.Sequential(nn.Linear(settings.dim, 1_024), nn.GELU(), nn.Linear(1_024, PREFIX * width))
            self.added = nn.Linear(settings.dim, width)
            nn.init.zeros_(self.added.weight)
            nn.init.zeros_(self.added.bias)
            self.ranks = nn.Parameter(torch.randn(min(WORDS, vocabulary), width) * 0.02)
            self.sure = nn.Linear(1, width)
            self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
            self.bias = nn.Parameter(torch.zeros(vocabulary))
            self.share = nn.Parameter(torch.tensor(0.3))  # of the bag in the logits of a place

        def begin_as(self, bert: Any) -> None:
            """Copy the weights of a BertModel: its lowest layers where this has fewer."""
            with torch.no_grad():
                given = bert.embeddings.word_embeddings.weight
                self.words[: len(given)] = given
                self.bag.words[: len(given)] = 0.3 * given
                positions = bert.embeddings.position_embeddings.weight[: len(self.places)]
                self.places.copy_(positions + bert.embeddings.token_type_embeddings.weight[0])
            self.norm.load_state_dict(bert.embeddings.LayerNorm.state_dict())
            for mine, its in zip(self.layers, bert.encoder.layer, strict=False):
                mine.begin_as(its)

        def before(self, vectors: Any, bag: Any) -> tuple[Any, Any]:
            """What stands before the text (rows, PREFIX + WORDS, width), and what is added at each place."""
            scaled = vectors * self.root
            likely, words = bag.log_softmax(-1).topk(len(self.ranks))
            told = self.words[words] + self.ranks + self.sure(likely[..., None])
            read = self.prefix(scaled).view(len(vectors), PREFIX, -1)
            return self.norm(torch.cat([read, told], 1)), self.added(scaled)

        def targets(self, before: tuple[Any, Any], ids: Any, mask: Any) -> Any:
            """:param before: what `before` gave.
            :param mask: true where there is a token.
            """
            first, added = before
            text = self.norm(self.words[ids] + self.places[: ids.shape[1]] + added[:, None])
            states = torch.cat([first, text], 1)
            seen = torch.cat([mask.new_ones(len(ids), first.shape[1]), mask], 1)[:, None, None]
            for layer in self.layers:
                states = layer(states, seen)
            return self.head(states[:, first.shape[1] :])

        def logits(self, targets: Any, bag: Any, classes: Any = None) -> Any:
            """:param targets: (places, width).
            :param bag: the bag's logits of the same rows (places, classes), of which a place's have a share.
            :param classes: tokens to tell apart; all unless given.
            """
            chosen = slice(None) if classes is None else classes
            return targets @ self.words[chosen].T + self.bias[chosen] + self.share * bag

    return TextDecoder


def padded(rows: Sequence[Sequence[int]], fill: int) -> Any:
    """Rows of ids as a tensor (rows, tokens), filled up on the right."""
    import torch

    table = torch.full((len(rows), max(map(len, rows), default=0)), fill, dtype=torch.long)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = torch.tensor(list(row), dtype=torch.long)
    return table
