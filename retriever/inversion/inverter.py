"""Inverter: what an encoder's output gives away, as tokens and as text.

Two kinds, told apart by the folder they were saved to: one reads the hidden states of a text, a vector a token; the
other reads the vector of a whole text. Both belong to the encoder that they were trained on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.device import device, has_bf16
from ...core.errors import EncoderMismatchError, InputError, MissingExtraError, first_line
from ...core.files import expand_home
from ...indexes.metric import normalized
from ..models.load import load_encoder
from ..models.token_ids import EncoderTokens
from .correction import Corrected, correct
from .hidden_states import HiddenStates
from .proposals import TokenProposer
from .text_decoder import TextDecoderSettings, text_decoder
from .token_decoder import TokenDecoderSettings, token_decoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ...core.arrays import Floats
    from ..models.encoder import Encoder
    from .correction import Ids


FILE, WEIGHTS = "inverter.json", "inverter.safetensors"
FORMAT = 1
SECONDS = 10.0  # of correction for a text
_AT_ONCE = 64  # vectors whose bags, as wide as the vocabulary, are in memory together
_IN_BAG = 0.15  # how likely a token of the bag must be, to be one of a text's


@dataclass(frozen=True, slots=True)
class TokenGuess:
    """A token, and how likely it is to be right."""

    token: str
    probability: float


@dataclass(frozen=True, slots=True)
class Inverted:
    """What one vector gave away."""

    text: str  # empty where nothing was recovered
    tokens: tuple[TokenGuess, ...]  # the bag: likeliest first
    cosine: float  # of the vector of `text` with the one that was given
    recovered: bool  # whether the text came nearer than texts come to vectors that are of no text

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StateReading:
    """What the hidden states of one text gave away: for each of its tokens the one named and its probability."""

    tokens: tuple[str, ...]
    named: tuple[TokenGuess, ...]

    @property
    def accuracy(self) -> float:
        right = sum(token == guess.token for token, guess in zip(self.tokens, self.named, strict=True))
        return right / max(1, len(self.tokens))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"accuracy": self.accuracy}


@dataclass(frozen=True, slots=True)
class InverterInfo:
    """What a saved inverter says of itself."""

    kind: str  # "embedding" or "hidden"
    encoder: str  # a name or a folder
    fingerprint: str  # of the encoder
    dim: int
    decoder: dict[str, Any]  # the decoder's settings
    layer: int | None = None  # whose states are read
    threshold: float = 0.0  # a cosine below which nothing was recovered
    control: dict[str, float] | None = None  # what the threshold was taken from
    format: int = FORMAT

    @classmethod
    def read(cls, folder: Path) -> InverterInfo:
        """:raises InputError: when that is no inverter."""
        file = folder / FILE
        if not file.is_file():
            raise InputError(f"{folder} is no inverter: expected a folder that 'binocle train inverter' made")
        try:
            facts = json.loads(file.read_text("utf-8"))
            made = cls(**facts)
            whole = made.kind in ("embedding", "hidden") and isinstance(made.dim, int)
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(f"{file} is not as it was written ({error}): copy the inverter's folder again") from None
        if not whole:
            raise InputError(f"{file} is of no kind of inverter: copy the inverter's folder again")
        if made.format != FORMAT:
            raise InputError(f"{file} has format {made.format}, this version reads {FORMAT}")
        return made

    def write(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")


def _loaded(folder: Path, module: Any) -> Any:
    """The module with the folder's weights."""
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    file = folder / WEIGHTS
    try:
        load_model(module, str(file))
    except (OSError, RuntimeError, SafetensorError, ValueError, KeyError) as error:
        reason = first_line(error)
        raise InputError(f"{file} does not hold the weights of this inverter ({reason}): copy it again") from error
    return module.eval()


def _require() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError("torch", "train", "inverting") from None


class EmbeddingInverter:
    """Vectors of texts to texts.

    >>> inverter = EmbeddingInverter.load("inverter")  # doctest: +SKIP
    >>> inverter.invert(encoder.encode(["the cat sat"]))[0].text  # doctest: +SKIP
    """

    def __init__(self, about: InverterInfo, proposing: TokenProposer, encoder: Encoder, tokens: EncoderTokens) -> None:
        self.about, self.encoder, self.proposing = about, encoder, proposing
        self.tokens = tokens

    @classmethod
    def load(cls, folder: str | Path, *, encoder: Encoder | None = None) -> EmbeddingInverter:
        """:param encoder: the one it was trained on, where that is loaded already.

        :raises EncoderMismatchError: when the encoder is not the one that it was trained on.
        """
        _require()
        folder = expand_home(folder)
        about = InverterInfo.read(folder)
        if about.kind != "embedding":
            raise InputError(f"{folder} inverts hidden states: expected an inverter of embeddings")
        encoder = _same(about, encoder or load_encoder(about.encoder), folder)
        try:
            module = text_decoder(TextDecoderSettings(**about.decoder))
        except (TypeError, ValueError) as error:
            raise InputError(f"{folder / FILE} is not as it was written ({error}): copy the folder again") from None
        tokens = EncoderTokens(encoder)
        decoder = _loaded(folder, module).to(device())
        return cls(about, proposing_with(decoder, tokens, half=has_bf16()), encoder, tokens)

    def check(self, vectors: Floats, fingerprint: str | None = None) -> Floats:
        """Vectors of length 1, as float32 of shape (rows, dim).

        :param fingerprint: of the encoder that made them, where that is known.
        :raises EncoderMismatchError: for another encoder's vectors.
        """
        given = np.asarray(vectors)
        if given.ndim == 1:
            given = given[None]
        if given.ndim != 2 or given.dtype.kind not in "fiu" or given.shape[1] != self.about.dim:
            raise InputError(
                f"expected vectors of {self.about.dim} numbers each, but an array of {given.dtype} and shape "
                f"{given.shape} came"
            )
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
            given = given.astype(np.float32)
        if not np.isfinite(given).all():
            raise InputError("expected finite numbers in every vector, but there are others: is the file damaged?")
        if fingerprint is not None and fingerprint != self.about.fingerprint:
            raise EncoderMismatchError(
                f"the vectors were made by the encoder {fingerprint[:8]}, but the inverter is of "
                f"{self.about.fingerprint[:8]} ({self.about.encoder}): train one for that encoder"
            )
        return normalized(given)

    def invert(
        self,
        vectors: Floats,
        *,
        seconds: float = SECONDS,
        words: int = 32,
        fingerprint: str | None = None,
        seed: int = 0,
    ) -> list[Inverted]:
        """For each vector the nearest text that is found.

        :param vectors: (rows, dim).
        :param seconds: of correction for each; 0 takes the nearest proposal.
        :param words: of the bag that is told, at most.
        """
        given = self.check(vectors, fingerprint)
        blocks = (given[start : start + _AT_ONCE] for start in range(0, len(given), _AT_ONCE))
        return [made for block in blocks for made in self._inverted(block, seconds, words, seed)]

    def _inverted(self, given: Floats, seconds: float, words: int, seed: int) -> Iterator[Inverted]:
        shares, counts = self.proposing.bag(given)
        for row, proposals in enumerate(self._proposals(given, shares, counts)):
            made = self.corrected(given[row], seconds, proposals, seed=seed)
            recovered = made.cosine >= self.about.threshold
            bag = bag_of(shares[row], float(counts[row]), 0.1)[:words] if recovered else []
            yield Inverted(
                text=self.tokens.text(made.ids) if recovered else "",
                tokens=tuple(TokenGuess(self.tokens.name(token), round(likely, 4)) for token, likely in bag),
                cosine=made.cosine,
                recovered=recovered,
            )

    def corrected(
        self, vector: Floats, seconds: float, proposals: Sequence[Ids] | None = None, *, seed: int = 0
    ) -> Corrected:
        """The nearest text that correction finds in so many seconds, recovered or not.

        :param vector: (dim,) of length 1.
        """
        return correct(
            vector,
            self.proposals(vector[None])[0] if proposals is None else proposals,
            self.proposing,
            self.embed,
            seconds=seconds,
            seed=seed,
            longest=self.proposing.decoder.settings.longest,
        )

    def proposals(self, vectors: Floats) -> list[list[Ids]]:
        """For each vector what correction begins with: the decoder's texts, and the bag's words by themselves."""
        return self._proposals(vectors, *self.proposing.bag(vectors))

    def _proposals(self, vectors: Floats, shares: Floats, counts: Floats) -> list[list[Ids]]:
        bags = []
        for share, count in zip(shares, counts.tolist(), strict=True):
            likely = bag_of(share, count, _IN_BAG)[: max(1, round(count))]
            bags.append(tuple(token for token, _ in likely))
        return [[*texts, bag] for texts, bag in zip(self.proposing.texts(vectors), bags, strict=True)]

    def nearest(self, vector: Floats, proposals: Sequence[Ids]) -> Corrected:
        """Of some texts the nearest, as it is."""
        return self.corrected(vector, 0.0, proposals)

    def embed(self, texts: Sequence[tuple[int, ...]]) -> Floats:
        """Token ids to vectors of length 1, by way of the text that they are read as."""
        return normalized(self.encoder.encode([self.tokens.text(ids) for ids in texts]))


class StateInverter:
    """Hidden states of texts to their tokens."""

    def __init__(self, about: InverterInfo, decoder: Any, states: HiddenStates) -> None:
        self.about, self._decoder, self._states = about, decoder, states

    @classmethod
    def load(cls, folder: str | Path) -> StateInverter:
        """:raises EncoderMismatchError: when the encoder is not the one that it was trained on."""
        _require()
        folder = expand_home(folder)
        about = InverterInfo.read(folder)
        if about.kind != "hidden":
            raise InputError(f"{folder} inverts embeddings: expected an inverter of hidden states")
        _same(about, load_encoder(about.encoder), folder)
        try:
            module = token_decoder(TokenDecoderSettings(**about.decoder))
        except TypeError as error:
            raise InputError(f"{folder / FILE} is not as it was written ({error}): copy the folder again") from None
        return cls(about, _loaded(folder, module).to(device()), HiddenStates(about.encoder, device=device()))

    def read(self, text: str, *, masked: float = 0.0, seed: int = 0) -> StateReading:
        """A round trip: the text's own tokens, and those that its states are read as.

        :param masked: share of the states that are hidden from the decoder; the tokens are then those behind them.
        """
        import torch

        states = self._states
        ids = states.ids([text])[0][: states.room]
        if not ids:
            return StateReading((), ())
        framed, mask = states.frame([ids])
        with torch.no_grad():
            asked, unseen = states.own(framed, mask), None
            if masked:
                drawn = torch.rand(framed.shape, generator=torch.Generator().manual_seed(seed))
                asked = unseen = asked & (drawn < masked).to(asked.device)
            made = states.at(framed, mask, self.about.layer)
            targets = self._decoder.targets(made, mask, unseen)[0][asked[0]]
            if not len(targets):
                return StateReading((), ())
            behind = None if unseen is None else unseen[0][asked[0]]
            likely, named = self._decoder.logits(targets, unseen=behind).softmax(-1).max(-1)
        own = framed[0][asked[0]].tolist()
        names = states.tokenizer.convert_ids_to_tokens
        guesses = zip(names(named.tolist()), likely.tolist(), strict=True)
        return StateReading(tuple(names(own)), tuple(TokenGuess(token, round(share, 4)) for token, share in guesses))


def load(folder: str | Path) -> EmbeddingInverter | StateInverter:
    """The inverter in a folder, of either kind."""
    about = InverterInfo.read(expand_home(folder))
    return EmbeddingInverter.load(folder) if about.kind == "embedding" else StateInverter.load(folder)


def proposing_with(decoder: Any, tokens: EncoderTokens, *, half: bool = False) -> TokenProposer:
    start, end, mask, pad = tokens.special
    return TokenProposer(decoder, start=start, end=end, mask=mask, pad=pad, never=sorted(tokens.non_text), half=half)


def _same(about: InverterInfo, encoder: Encoder, folder: Path) -> Encoder:
    if encoder.fingerprint != about.fingerprint:
        raise EncoderMismatchError(
            f"{folder} inverts the encoder {about.fingerprint[:8]} ({about.encoder}), but {encoder.name} is "
            f"{encoder.fingerprint[:8]}: train an inverter for that one"
        )
    return encoder


def bag_of(shares: Floats, count: float, threshold: float = 0.3, most: int = 256) -> list[tuple[int, float]]:
    """Tokens that a bag says are in a text, each as often as that is likelier than `threshold`, the surest first.

    Counts are taken as Poisson's, with `count` times the token's share as their mean.

    :param shares: (vocabulary,), which add up to 1.
    """
    import math

    found: list[tuple[int, float]] = []
    likely = np.argpartition(-shares, min(most, len(shares) - 1))[:most]
    for token in likely[np.argsort(-shares[likely], kind="stable")].tolist():
        mean = float(shares[token]) * count
        term = math.exp(-mean)
        more, times = 1 - term, 0
        while more > threshold and times < count:
            found.append((token, more))
            times += 1
            term *= mean / times
            more -= term
    return sorted(found, key=lambda one: -one[1])
