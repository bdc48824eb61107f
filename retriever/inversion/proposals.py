"""Propose texts for a vector, and changes of a text, with a trained text decoder."""

from __future__ import annotations

import math
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .correction import Change
from .decoders.text_decoder import padded
from .token_guess import expected_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ..models.tokens.token_ids import EncoderTokens
    from .correction import Embed, Ids
    from .decoders.text_decoder import TextDecoder


_PASSES = 12  # that fill all positions of a text
_CLASSES = 2_048  # tokens that a text is proposed from, the bag's likeliest; of the rest one in thousands is right
_LENGTHS = 3  # to try for each vector
_PER_POSITION = 8  # tokens to try at a position
_BATCH = 64  # vectors
_NEVER = -1e4  # logit of a token that no text has
_EXPECTED = 1.0  # weight of the bag's logits, relative to the decoder's at the position
_AGAIN = 4.0  # nats that a token loses, times the logarithm of its number of occurrences
_PERIOD = 6  # every sixth position is masked at once
_PARTS = range(_PERIOD)
_TOWARDS = 25.0  # weight of the missing part of the vector, for a change of a text
_MISSING = 0.5  # the same, for a token of the bag
_CHECKS = 2  # times that a bag is encoded and predicted again; a third time gains nothing
_LENGTH = 0.3  # nats per token that a text loses for each token more or fewer than expected
_EVERYWHERE = 40  # tokens of the bag to try at every position
_CHANGES = 400  # of a text to return
_TOKEN = -3.0  # nats that one more token may cost: about the cost of a position


class TokenRates:
    """The expected count of each token in a text: the Poisson likelihood of a multiset of tokens.

    :param shares: (vocabulary,); times `count` they are the expected counts.
    :param count: the expected number of tokens.
    """

    def __init__(self, shares: Tensor, count: float) -> None:
        self.count = count
        self.logs = (shares * max(count, 1.0)).clamp(min=1e-6).log()
        self._logs: Floats = self.logs.cpu().numpy()

    def __call__(self, ids: Ids) -> float:
        """The mean log-likelihood of a text's tokens in nats, minus a penalty for an unexpected length."""
        total = sum(self._logs[token] * times - math.lgamma(times + 1) for token, times in Counter(ids).items())
        return float(total) / max(1, len(ids)) - _LENGTH * max(0.0, abs(len(ids) - self.count) - 0.5)

    def gain(self, ids: Ids, tokens: NDArray[np.int64]) -> Floats:
        """The gain in log-likelihood from one more of each of these tokens."""
        times = np.zeros(len(self._logs), np.float32)
        np.add.at(times, list(ids), 1)
        gains: Floats = self._logs[tokens] - np.log(times[tokens] + 1)
        return gains

    def gain_without(self, ids: Ids, token: int) -> float:
        """The gain in log-likelihood from one token fewer."""
        return float(math.log(ids.count(token)) - self._logs[token])


class TokenProposer:
    """A `TextDecoder` with the ids of its special tokens.

    :param start, end: the ids of the special tokens around a text.
    :param never: ids that no text has.
    :param half: compute in bfloat16.
    """

    def __init__(
        self,
        decoder: TextDecoder,
        *,
        start: int,
        end: int,
        mask: int,
        pad: int,
        never: Sequence[int],
        half: bool = False,
    ) -> None:
        decoder.eval()
        self.decoder = _half(decoder) if half else decoder
        self._dtype = torch.bfloat16 if half else torch.float32
        self._start, self._end, self._mask, self._pad = start, end, mask, pad
        self._never = torch.tensor(sorted({*never, start, end, mask, pad}))
        self._device = next(decoder.parameters()).device

    @classmethod
    def of(cls, decoder: TextDecoder, tokens: EncoderTokens, *, half: bool = False) -> TokenProposer:
        """With the special tokens of the decoder's encoder."""
        start, end, mask, pad = tokens.special
        return cls(decoder, start=start, end=end, mask=mask, pad=pad, never=sorted(tokens.non_text), half=half)

    @torch.no_grad()
    def bags(self, vectors: Floats, embed: Embed) -> Bags:
        """Predict the tokens of texts from their vectors.

        The encoder reads the tokens of the bag as a text. The tokens that bring what its vector lacks become likelier.

        :param vectors: (rows, dim) of length 1.
        :param embed: encodes texts given as token ids, as the vectors were encoded; vectors of length 1.
        """
        inputs = self._tensor(vectors)
        logits = self.decoder.bag(inputs).float()
        logits[:, self._never] = -math.inf
        likely = self.decoder.bag.lengths(inputs).float().softmax(-1)
        counts = (likely * torch.arange(likely.shape[1], dtype=torch.float32, device=self._device)).sum(-1)
        bags, missing = Bags(logits, counts.cpu().numpy()), np.zeros_like(vectors)
        for _ in range(_CHECKS):
            missing += vectors - embed(bags.tokens)
            bags = Bags(logits + _MISSING * self._brought(missing), bags.counts)
        return bags

    def texts(self, vectors: Floats, bags: Bags, lengths: int = _LENGTHS) -> list[list[Ids]]:
        """Propose texts of the likeliest lengths for each vector, the likeliest length first.

        :param bags: of the vectors.
        """
        texts: list[list[Ids]] = []
        for start in range(0, len(vectors), _BATCH):
            rows = slice(start, start + _BATCH)
            texts += self._texts(vectors[rows], bags.logits[rows], lengths)
        return texts

    @torch.no_grad()
    def _texts(self, vectors: Floats, logits: Tensor, lengths: int) -> list[list[Ids]]:
        inputs = self._tensor(vectors)
        scores = self.decoder.bag.lengths(inputs).float()
        scores[:, 0] = -math.inf
        likely = scores.topk(min(lengths, scores.shape[1] - 1)).indices
        each = likely.shape[1]
        rows = [row for row in range(len(vectors)) for _ in range(each)]
        texts = self._fill(inputs[rows], logits[rows], likely.flatten().tolist())
        return [texts[row * each : (row + 1) * each] for row in range(len(vectors))]

    def _fill(self, vectors: Tensor, logits: Tensor, lengths: Sequence[int]) -> list[Ids]:
        """Fill texts of these lengths, the surest positions first; each further position sees the filled ones.

        A token is likelier the more often the bag expects it, and less likely the more often the text has it.
        """
        ids = self._framed([[self._mask] * length for length in lengths])
        present = _present(lengths).to(self._device)
        bags = self._finite(logits)
        condition = self.decoder.condition(vectors, bags)
        expected = (logits.softmax(-1) * torch.tensor(lengths, device=self._device)[:, None]).clamp(min=1e-6).log()
        expected[:, self._never] = -math.inf
        classes = logits.topk(min(_CLASSES, logits.shape[1])).indices
        expected, times = expected.gather(1, classes), torch.zeros(classes.shape, device=self._device)
        while bool((masked := (ids == self._mask) & present).any()):
            targets = self.decoder.targets(condition, ids, present)
            for row, length in enumerate(lengths):
                positions, row_classes = masked[row].nonzero()[:, 0], classes[row]
                values = self.decoder.logits(targets[row, positions], bags[row, row_classes], row_classes).float()
                likely = values.log_softmax(-1) + _EXPECTED * expected[row]
                _fill_surest(ids[row], positions, likely, row_classes, times[row], math.ceil(length / _PASSES))
        return [tuple(ids[row, 1 : length + 1].tolist()) for row, length in enumerate(lengths)]

    def _framed(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Rows of ids with special tokens around them (rows, tokens)."""
        return padded([[self._start, *row, self._end] for row in rows], self._pad).to(self._device)

    def _likely(self, targets: Tensor, bag: Tensor) -> Tensor:
        """The log-probability of each token at each position (positions, vocabulary), in nats."""
        logits = self.decoder.logits(targets, bag[None]).float()
        logits[:, self._never] = -math.inf
        return logits.log_softmax(-1)

    @torch.no_grad()
    def for_vector(self, vector: Floats, bag: Bags) -> VectorProposer:
        """Return the proposer of changes for a vector (dim,).

        :param bag: of the vector, one row.
        """
        logits = self._finite(bag.logits)
        condition = self.decoder.condition(self._tensor(vector[None]), logits)
        rates = TokenRates(bag.logits[0].softmax(-1), float(bag.counts[0]))
        return VectorProposer(self, vector, condition, logits[0], rates)

    @torch.no_grad()
    def changes(self, target: VectorProposer, ids: Ids, own: Floats) -> list[tuple[float, Change]]:
        """Tokens to replace or to insert at each position, by how much likelier they make the text.

        Every sixth position is masked at once, so that a text is read twelve times instead of once per position.

        :param target: the vector that the text should have.
        :param own: the vector that it has.
        """
        n = len(ids)
        rows, masks = _masked(ids, self._mask, self.decoder.settings.longest)
        (first, added), rates = target.condition, target.rates
        present = _present([len(row) for row in rows]).to(self._device)
        condition = first.expand(len(rows), -1, -1), added.expand(len(rows), -1)
        targets = self.decoder.targets(condition, self._framed(rows), present)
        numbers, columns, positions = zip(
            *((number, column, position) for number, row in enumerate(masks) for column, position in row), strict=True
        )
        likely = self._likely(targets[torch.tensor(numbers), torch.tensor(columns) + 1], target.bag)
        towards = _TOWARDS * self._brought((target.vector - own)[None])[0]
        everywhere = (rates.logs + towards).topk(_EVERYWHERE).indices.expand(len(likely), -1)
        tokens = torch.cat([likely.topk(_PER_POSITION).indices, everywhere], 1)
        values = likely.gather(1, tokens).cpu().numpy()
        present_tokens = torch.tensor([ids[position] for position in positions[:n]], device=self._device)
        current = likely[torch.arange(n), present_tokens].cpu().numpy()
        return _ranked(ids, positions, tokens.cpu().numpy(), values, current, rates, towards.cpu().numpy())

    def _brought(self, missing: Floats) -> Tensor:
        """How much of the missing parts of vectors (rows, dim) each token would bring (rows, vocabulary), in nats.

        The bag's linear map says so.
        """
        bag = self.decoder.bag
        return (self._tensor(missing) @ bag.turn.weight.T @ bag.alone.T).float()

    def _finite(self, logits: Tensor) -> Tensor:
        """The logits of a bag as the decoder takes them."""
        return logits.clamp(min=_NEVER).to(self._dtype)

    def _tensor(self, vectors: Floats) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(vectors, np.float32)).to(self._device, self._dtype)


@dataclass(frozen=True, slots=True)
class Bags:
    """The tokens that the texts of some vectors have, in no order."""

    logits: Tensor  # (rows, vocabulary), float32; -inf for ids that no text has
    counts: Floats  # (rows,), the expected numbers of tokens

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> Bags:
        return Bags(self.logits[rows], self.counts[rows])

    @property
    def shares(self) -> Floats:
        """Each token's share of a text's tokens (rows, vocabulary)."""
        return self.logits.softmax(-1).cpu().numpy()

    @property
    def tokens(self) -> list[Ids]:
        """The expected tokens of each text, likeliest first."""
        return [tuple(token for token, _ in row) for row in self.expected]

    @property
    def expected(self) -> list[list[tuple[int, float]]]:
        """The expected tokens of each text with their probabilities, likeliest first."""
        return [expected_tokens(*row) for row in zip(self.shares, self.counts.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class VectorProposer:
    """A `correction.Proposer` for one vector."""

    proposer: TokenProposer
    vector: Floats  # (dim,) of length 1
    condition: tuple[Tensor, Tensor]  # of the decoder
    bag: Tensor  # logits (vocabulary,)
    rates: TokenRates

    def changes(self, ids: Ids, own: Floats) -> list[tuple[float, Change]]:
        """As `TokenProposer.changes`."""
        return self.proposer.changes(self, ids, own)

    def likelihood(self, ids: Ids) -> float:
        """The mean log-likelihood of a text's tokens in nats, in any order."""
        return self.rates(ids)


def _present(lengths: Sequence[int]) -> Tensor:
    """(rows, tokens): true for the tokens of texts of these lengths, special tokens included."""
    return padded([list(repeat(1, length + 2)) for length in lengths], 0) == 1


def _fill_surest(ids: Tensor, positions: Tensor, likely: Tensor, classes: Tensor, times: Tensor, count: int) -> None:
    """Put the likeliest tokens at the surest positions.

    :param ids: of a text, changed in place.
    :param likely: (positions, classes) in nats, changed in place.
    :param classes: the tokens to choose from.
    :param times: the number of occurrences of each in the text (classes,), changed in place.
    """
    if not len(positions):
        return
    likely -= _AGAIN * times.log1p()
    highest, tokens = likely.max(-1)
    for _ in range(min(count, len(positions))):
        surest = highest.argmax()
        token = tokens[surest].clone()
        ids[positions[surest]] = classes[token]
        times[token] += 1
        likely[surest] = -math.inf
        likely[:, token] -= _AGAIN * (1 + 1 / times[token]).log()
        repeated = tokens == token
        highest[repeated], tokens[repeated] = likely[repeated].max(-1)


def _masked(ids: Ids, mask: int, longest: int) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    """Mask tokens of a text, and positions between its tokens unless the text is too long for that.

    Returns rows of ids, and the masks of each row: its column in the row, and the position in the text that it is for.
    With every second position masked at once instead of every sixth, the tokens 7 8 9 would give

        _ 8 _          (0, 0), (2, 2)
        7 _ 9          (1, 1)
        _ 7 8 _ 9      (0, 0), (3, 2)
        7 _ 8 9 _      (1, 1), (4, 3)
    """
    n = len(ids)
    rows = [[mask if number % _PERIOD == part else token for number, token in enumerate(ids)] for part in _PARTS]
    masks = [[(position, position) for position in range(part, n, _PERIOD)] for part in _PARTS]
    if n + n // _PERIOD + 1 > longest:
        return rows, masks
    for part in _PARTS:
        row: list[int] = []
        row_masks: list[tuple[int, int]] = []
        for position in range(n + 1):
            if position % _PERIOD == part:
                row_masks.append((len(row), position))
                row.append(mask)
            row += ids[position : position + 1]
        rows.append(row)
        masks.append(row_masks)
    return rows, masks


def _half(decoder: TextDecoder) -> TextDecoder:
    """Copy a decoder in bfloat16 without a second copy in float32."""
    weights = {
        id(weight): torch.nn.Parameter(weight.detach().bfloat16(), requires_grad=False)
        for weight in decoder.parameters()
    }
    return deepcopy(decoder, weights | {id(buffer): buffer.bfloat16() for buffer in decoder.buffers()})


def _ranked(
    ids: Ids,
    positions: Sequence[int],
    tokens: NDArray[np.int64],
    values: Floats,
    current: Floats,
    rates: TokenRates,
    towards: Floats,
) -> list[tuple[float, Change]]:
    """Rank changes by the decoder, the bag and the missing part of the vector.

    :param positions: of each row in the text: first the positions to replace, then the positions to insert before.
    :param tokens: (rows, candidates), with the decoder's `values`; `current` has the values of the present tokens.
    :param towards: (vocabulary,).
    """
    n = len(ids)
    present = [ids[position] for position in positions[:n]]
    gains = values + rates.gain(ids, tokens) + towards[tokens]
    deletions = np.array([rates.gain_without(ids, token) - towards[token] for token in present]) - current
    gains[:n] += deletions[:, None]
    gains[n:] -= _TOKEN
    gains[:n][tokens[:n] == np.array(present)[:, None]] = -np.inf
    changes = []
    for row, column in zip(*np.unravel_index(np.argsort(-gains, axis=None)[:_CHANGES], gains.shape), strict=True):
        kind = "replace" if row < n else "insert"
        changes.append((float(gains[row, column]), Change(positions[row], kind, int(tokens[row, column]))))
    if n > 1:
        changes += [(float(deletions[row]) + _TOKEN, Change(positions[row], "delete")) for row in range(n)]
    return changes
