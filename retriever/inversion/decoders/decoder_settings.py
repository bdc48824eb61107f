"""The sizes of the two decoders, saved beside their weights. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....core.checks import is_whole
from ....core.errors import InputError

KINDS = ("linear", "lstm", "transformer")  # of a decoder of hidden states
LAYERS = 4  # of a text decoder
_MAX_LAYERS = 1_000


@dataclass(frozen=True, slots=True)
class TokenDecoderSettings:
    """The kind and the sizes of a decoder of hidden states."""

    kind: str = "transformer"
    width: int = 384  # of the states
    vocabulary: int = 30_522
    target_width: int = 384  # of the word embeddings that the output compares with
    layers: int = 1  # of an LSTM or a Transformer
    bidirectional: bool = True  # an LSTM that reads both ways
    heads: int = 0  # of a Transformer's layers; 0 means one for each 64 numbers
    inner: int = 0  # width between the two maps of a Transformer's layer; 0 means four times the target width

    @property
    def inputs(self) -> int:
        """The numbers of a state that the decoder reads."""
        return self.width

    def check(self) -> None:
        """:raises InputError: for an unknown kind, or an impossible size."""
        if self.kind not in KINDS:
            raise InputError(f"there is no decoder {self.kind!r}: expected one of {', '.join(KINDS)}")
        if not is_whole(self.layers, 1) or self.layers > _MAX_LAYERS:
            raise InputError(f"a decoder has 1 to {_MAX_LAYERS} layers, not {self.layers!r}")
        _check_sizes(self, "width", "vocabulary", "target_width")
        _check_sizes(self, "heads", "inner", minimum=0)
        if not isinstance(self.bidirectional, bool):
            raise InputError(f"bidirectional is true or false, not {self.bidirectional!r}")
        _check_heads(self.target_width, self.heads)


@dataclass(frozen=True, slots=True)
class TextDecoderSettings:
    """The sizes of a decoder of vectors."""

    dim: int  # of the vectors
    vocabulary: int
    longest: int  # tokens of a text, without special tokens
    width: int = 384
    layers: int = LAYERS
    heads: int = 12
    inner: int = 1_536  # width between the two maps of a layer
    wide: int = 2_048  # of the network that predicts the bag

    @property
    def inputs(self) -> int:
        """The numbers of a vector that the decoder reads."""
        return self.dim

    def check(self) -> None:
        """:raises InputError: for an impossible size."""
        _check_sizes(self, "dim", "vocabulary", "longest", "width", "layers", "heads", "inner", "wide")
        if self.layers > _MAX_LAYERS:
            raise InputError(f"a decoder has 1 to {_MAX_LAYERS} layers, not {self.layers!r}")
        _check_heads(self.width, self.heads)

    @classmethod
    def for_bert(cls, config: Any, dim: int, longest: int) -> TextDecoderSettings:
        """The sizes of a decoder that can copy the layers of a BERT.

        :param config: transformers' BertConfig.
        """
        return cls(
            dim=dim,
            vocabulary=config.vocab_size,
            longest=min(longest, config.max_position_embeddings - 2),
            width=config.hidden_size,
            layers=min(LAYERS, config.num_hidden_layers),
            heads=config.num_attention_heads,
            inner=config.intermediate_size,
        )


def _check_sizes(settings: object, *names: str, minimum: int = 1) -> None:
    for name in names:
        if not is_whole(value := getattr(settings, name), minimum):
            raise InputError(f"{name} of a decoder is a whole number from {minimum}, not {value!r}")


def _check_heads(width: int, heads: int) -> None:
    if heads and width % heads:
        raise InputError(f"{heads} heads do not divide a width of {width}")
