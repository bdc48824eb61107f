"""Recover text from an encoder's output: the way into this room.

`load` opens an inverter of either kind. An `EmbeddingInverter` recovers a text from its vector. A `StateInverter`
recovers tokens from hidden states, one vector a token. Both belong to the encoder that they were trained on. torch is
imported when an inverter is loaded.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import EncoderMismatchError, InputError, MissingExtraError
from ...core.files import expand_home
from ...core.runtime.device import device, has_bf16
from ...indexes.metric import normalized
from ..models.load import load_encoder
from ..models.tokens.token_ids import EncoderTokens
from .correction import Correction, correct
from .decoders.decoder_settings import TextDecoderSettings
from .inverter_info import InverterInfo
from .text_shape import TextShape
from .token_guess import TokenGuess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ...core.arrays import Floats
    from ..models.encoder import Encoder
    from .correction import Ids
    from .proposals import Bags, TokenProposer
    from .state_inverter import StateInverter


SECONDS = 10.0  # of correction for a text
_BATCH = 64  # vectors: their bags, as wide as the vocabulary, are in memory together


@dataclass(frozen=True, slots=True)
class Draft:
    """What correction of one vector starts from."""

    texts: tuple[Ids, ...]  # the decoder's, the likeliest length first, and then the bag's tokens
    bag: Bags  # one row


@dataclass(frozen=True, slots=True)
class InvertedVector:
    """The text recovered from one vector."""

    text: str  # empty if nothing was recovered
    tokens: tuple[TokenGuess, ...]  # the bag, likeliest first; also without a text, if the vector has a text's shape
    cosine: float  # of the vector of `text` with the inverted vector
    recovered: bool  # whether the cosine reaches the threshold for these rounds, and for this vector's shape
    usual: bool = True  # whether the cosine reaches the value that 95 % of texts of the learned lengths reach

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON, each token guess as a dictionary."""
        return asdict(self)


class EmbeddingInverter:
    """Recover texts from their vectors.

    >>> inverter = EmbeddingInverter.load("inverter")  # doctest: +SKIP
    >>> inverter.invert(encoder.encode(["the cat sat"]))[0].text  # doctest: +SKIP
    """

    def __init__(
        self,
        info: InverterInfo,
        proposer: TokenProposer,
        encoder: Encoder,
        tokens: EncoderTokens,
        shape: TextShape | None = None,
    ) -> None:
        """:param shape: of the vectors of texts; without it every vector must reach the higher threshold."""
        self.info, self.encoder, self.proposer, self.tokens, self.shape = info, encoder, proposer, tokens, shape

    @classmethod
    def load(cls, folder: str | Path, *, encoder: Encoder | None = None) -> EmbeddingInverter:
        """Load a saved inverter, and its encoder unless that is passed.

        :raises EncoderMismatchError: when the inverter was trained on another encoder.
        """
        try:
            from .decoders.decoder_weights import load_decoder
            from .decoders.text_decoder import TextDecoder
            from .proposals import TokenProposer
        except ImportError:
            raise MissingExtraError("torch", "train", "inverting") from None
        folder = expand_home(folder)
        info = InverterInfo.read(folder)
        if info.kind != "embedding":
            raise InputError(f"{folder} inverts hidden states: expected an inverter of embeddings")
        encoder = info.check_encoder(encoder or load_encoder(info.encoder), folder)
        sizes = info.decoder_settings(TextDecoderSettings, folder)
        tokens = EncoderTokens.of(encoder)
        decoder = load_decoder(folder, lambda: TextDecoder(sizes)).to(device())
        shape = TextShape.read(folder, info.dim)
        return cls(info, TokenProposer.of(decoder, tokens, half=has_bf16()), encoder, tokens, shape)

    def check(self, vectors: Floats, fingerprint: str | None = None) -> Floats:
        """Return vectors as float32 of shape (rows, dim), each of length 1.

        :param fingerprint: of the encoder that computed them, if known.
        :raises EncoderMismatchError: for another encoder's vectors.
        """
        if fingerprint is not None and fingerprint != self.info.fingerprint:
            raise EncoderMismatchError(
                f"the vectors were made by the encoder {fingerprint[:8]}, but the inverter is of "
                f"{self.info.fingerprint[:8]} ({self.info.encoder}): train one for that encoder"
            )
        array = np.atleast_2d(np.asarray(vectors))
        if array.ndim != 2 or array.dtype.kind not in "fiu" or array.shape[1] != self.info.dim:
            raise InputError(
                f"expected vectors of {self.info.dim} numbers each, but an array of {array.dtype} and shape "
                f"{array.shape} came"
            )
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite
            array = array.astype(np.float32)
        unusable = np.flatnonzero(~np.isfinite(array).all(1))
        if len(unusable):
            raise InputError(
                f"expected finite numbers in every vector, but vector {unusable[0] + 1} of {len(array)} has others: is "
                "the file damaged?"
            )
        return normalized(array)

    def invert(
        self,
        vectors: Floats,
        *,
        seconds: float = SECONDS,
        words: int = 32,
        fingerprint: str | None = None,
        seed: int = 0,
    ) -> list[InvertedVector]:
        """Find a text near each vector.

        :param vectors: (rows, dim).
        :param seconds: of correction for each vector; 0 takes the nearest proposal.
        :param words: maximum number of tokens of the bag to return.
        """
        checked = self.check(vectors, fingerprint)
        batches = (checked[start : start + _BATCH] for start in range(0, len(checked), _BATCH))
        return [result for batch in batches for result in self._invert_batch(batch, seconds, words, seed)]

    def _invert_batch(self, vectors: Floats, seconds: float, words: int, seed: int) -> Iterator[InvertedVector]:
        of_texts = self.shape.are_of_texts(vectors) if self.shape else np.zeros(len(vectors), bool)
        for row, draft in enumerate(self.drafts(vectors)):
            nearest = self.correct(vectors[row], seconds, draft, seed=seed)
            of_text = bool(of_texts[row])
            recovered = nearest.cosine >= self.info.minimum_cosine(nearest.rounds, of_text=of_text)
            expected = draft.bag.expected[0][:words] if recovered or of_text else []
            yield InvertedVector(
                text=self.tokens.text(nearest.ids) if recovered else "",
                tokens=tuple(TokenGuess(self.tokens.name(token), round(likely, 4)) for token, likely in expected),
                cosine=nearest.cosine,
                recovered=recovered,
                usual=nearest.cosine >= self.info.usual_cosine(nearest.rounds),
            )

    def correct(
        self,
        vector: Floats,
        seconds: float,
        draft: Draft | None = None,
        *,
        seed: int = 0,
        rounds: int | None = None,
        starts: int | None = None,
    ) -> Correction:
        """Return the nearest text that correction finds in time, even if its cosine is low.

        :param vector: (dim,) of length 1.
        :param draft: of the vector; by default, it is made here.
        :param rounds: a limit that does not depend on the machine's speed.
        :param starts: maximum number of new starts, one each time the cosine stops rising; by default, no maximum.
        """
        draft = draft or self.drafts(vector[None])[0]
        return correct(
            vector,
            draft.texts,
            self.proposer.for_vector(vector, draft.bag),
            self.embed,
            seconds=seconds,
            seed=seed,
            longest=self.proposer.decoder.settings.longest,
            rounds=rounds,
            starts=starts,
        )

    def bags(self, vectors: Floats) -> Bags:
        """Predict the tokens of texts from vectors (rows, dim) of length 1."""
        return self.proposer.bags(vectors, self.embed)

    def drafts(self, vectors: Floats) -> list[Draft]:
        """What correction starts from, for each of some vectors (rows, dim) of length 1."""
        bags = self.bags(vectors)
        texts = zip(self.proposer.texts(vectors, bags), bags.tokens, strict=True)
        return [Draft((*own, bag), bags[row : row + 1]) for row, (own, bag) in enumerate(texts)]

    def nearest(self, vector: Floats, draft: Draft) -> Correction:
        """Return the nearest text of a draft, without correction."""
        return self.correct(vector, 0.0, draft)

    def embed(self, texts: Sequence[Ids]) -> Floats:
        """Encode token ids as the text that they spell; vectors of length 1."""
        return normalized(self.encoder.encode([self.tokens.text(ids) for ids in texts]))


def load(folder: str | Path) -> EmbeddingInverter | StateInverter:
    """Load an inverter of either kind.

    :raises MissingExtraError: when torch is not installed.
    """
    if InverterInfo.read(expand_home(folder)).kind == "embedding":
        return EmbeddingInverter.load(folder)
    try:
        from .state_inverter import StateInverter
    except ImportError:
        raise MissingExtraError("torch", "train", "inverting hidden states") from None
    return StateInverter.load(folder)
