"""Settings of the training of an inverter. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from ...core import checks
from ...core.errors import InputError
from ...retriever.inversion.decoders.decoder_settings import TokenDecoderSettings
from ...retriever.inversion.inverter_info import INVERTER_KINDS
from ..runs.trainers import trackers
from .rows import SHORTEST

_LENGTHS = {"embedding": 32, "hidden": 126}  # default maximum number of tokens in a text


@dataclass(frozen=True, slots=True)
class InverterConfig:
    """Settings of a run."""

    kind: str = "embedding"  # what to invert: "embedding" or "hidden"
    decoder: str = "transformer"  # of hidden states: linear, lstm or transformer
    layers: int | None = None  # of an LSTM (1) or a Transformer (4) that reads hidden states
    bidirectional: bool = True
    layer: int | None = None  # that hidden states are read from; None: the last
    masked: float = 0.0  # share of the states to hide from the decoder
    max_length: int | None = None  # tokens of a text: 32 for embeddings, 126 for hidden states
    texts: int = 200_000  # maximum number of texts to learn from, cut from the documents
    minutes: float = 30.0  # of training
    steps: int | None = None  # instead of minutes
    batch_size: int | None = None  # texts: 128 for embeddings, 32 for hidden states
    learning_rate: float | None = None  # 5e-4 for embeddings and a Transformer, 1e-3 for other decoders
    bf16: bool | None = None  # None: if the hardware supports it
    held_out: float = 0.02  # share of the documents
    evaluations: int = 4
    seed: int = 0
    report_to: str | None = None  # a tracker of `trackers.TRACKERS`

    def check(self) -> None:
        """:raises InputError: for the first invalid setting."""
        if self.kind not in INVERTER_KINDS:
            raise InputError(f"there is no kind {self.kind!r}: expected one of {', '.join(INVERTER_KINDS)}")
        TokenDecoderSettings(kind=self.decoder, layers=self.depth).check()
        checks.above_0(self, "minutes", "steps", "batch_size", "learning_rate", "evaluations", "texts", "held_out")
        checks.share(self, "held_out", "masked")
        checks.seed(self)
        trackers.check(self.report_to)
        if self.max_length is not None and not checks.is_whole(self.max_length, SHORTEST):
            raise InputError(f"max length is in tokens, at least {SHORTEST}, not {self.max_length!r:.60}")
        self._check_unused()

    def _check_unused(self) -> None:
        if self.kind == "embedding":
            states = ("decoder", "layers", "layer", "bidirectional", "masked")
            checks.left_out(self, states, "of hidden states: leave it out, or give --from hidden")
            return
        checks.left_out(self, ("texts",), "of embeddings: leave it out, or give --from embedding")
        if self.decoder == "linear":
            checks.left_out(self, ("layers",), "of an LSTM or a Transformer: leave it out, or take such a decoder")
        if self.decoder != "lstm":
            checks.left_out(self, ("bidirectional",), "of an LSTM: leave it out, or take that decoder")

    @property
    def depth(self) -> int:
        """Layers of an LSTM or a Transformer."""
        return (4 if self.decoder == "transformer" else 1) if self.layers is None else self.layers

    @property
    def length(self) -> int:
        """Maximum number of tokens in a text."""
        return self.max_length or _LENGTHS[self.kind]
