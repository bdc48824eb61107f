"""Recover the tokens of a text from its hidden states, one vector a token."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from ...core.errors import InputError
from ...core.files import expand_home
from ...core.runtime.device import device
from ..models.load import load_encoder
from .decoders.decoder_settings import TokenDecoderSettings
from .decoders.decoder_weights import load_decoder
from .decoders.token_decoder import TokenDecoder
from .hidden_states import HiddenStates
from .inverter_info import FILE, InverterInfo
from .token_guess import TokenGuess

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class StateReading:
    """The tokens of a text, and for each the token recovered from its hidden state."""

    tokens: tuple[str, ...]
    named: tuple[TokenGuess, ...]

    @property
    def accuracy(self) -> float:
        """The share of tokens that were recovered, from 0 to 1; 0 without tokens."""
        right = sum(token == guess.token for token, guess in zip(self.tokens, self.named, strict=True))
        return right / max(1, len(self.tokens))

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and the accuracy for JSON, each token guess as a dictionary."""
        return asdict(self) | {"accuracy": self.accuracy}


class StateInverter:
    """Recover tokens from the hidden states of texts; load it with `inverter.load`."""

    def __init__(self, info: InverterInfo, decoder: TokenDecoder, states: HiddenStates) -> None:
        self.info, self._decoder, self._states = info, decoder, states

    @classmethod
    def load(cls, folder: str | Path) -> StateInverter:
        """:raises EncoderMismatchError: when the encoder has changed since the inverter was trained."""
        folder = expand_home(folder)
        info = InverterInfo.read(folder)
        if info.kind != "hidden":
            raise InputError(f"{folder} inverts embeddings: expected an inverter of hidden states")
        info.check_encoder(load_encoder(info.encoder), folder)
        sizes = info.decoder_settings(TokenDecoderSettings, folder)
        decoder = load_decoder(folder, lambda: TokenDecoder(sizes))
        states = HiddenStates.load(info.encoder, device=device())
        try:
            states.check_layer(info.layer)
        except InputError as error:
            raise InputError(f"{folder / FILE} is damaged ({error}): copy the inverter's folder again") from None
        return cls(info, decoder.to(device()), states)

    def read(self, text: str, *, masked: float = 0.0, seed: int = 0) -> StateReading:
        """Compute the hidden states of a text and recover its tokens from them.

        :param masked: share of the states to hide from the decoder. Only their tokens are then returned.
        """
        states = self._states
        ids = states.ids([text])[0][: states.room]
        if not ids:
            return StateReading((), ())
        framed, mask = states.frame([ids])
        with torch.no_grad():
            judged, hidden = states.inside(framed, mask), None
            if masked:
                drawn = torch.rand(framed.shape, generator=torch.Generator().manual_seed(seed))
                judged = hidden = judged & (drawn < masked).to(judged.device)
            targets = self._decoder.targets(states.at(framed, mask, self.info.layer), mask, hidden)[0][judged[0]]
            if not len(targets):
                return StateReading((), ())
            hidden_row = None if hidden is None else hidden[0][judged[0]]
            logits = self._decoder.logits(targets, hidden=hidden_row)
            temperature = self.info.masked_temperature if masked else self.info.temperature
            named, likely = logits.argmax(-1), (logits / temperature).softmax(-1).amax(-1)
        names = states.tokenizer.convert_ids_to_tokens
        guesses = zip(names(named.tolist()), likely.tolist(), strict=True)
        return StateReading(
            tuple(names(framed[0][judged[0]].tolist())),
            tuple(TokenGuess(token, round(probability, 4)) for token, probability in guesses),
        )
