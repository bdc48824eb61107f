"""What a trained text decoder proposes for a vector: whole texts, and changes of a text."""

from __future__ import annotations

import math
from collections import Counter
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from .correction import Change
from .text_decoder import padded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from .correction import Ids


_PASSES = 12  # in which all of a text's places are filled
_CLASSES = 2_048  # tokens that a proposed text is made of, the bag's likeliest: of the others one in thousands is right
_LENGTHS = 3  # tried for each vector
_PER_PLACE = 8  # tokens that could stand at a place
_AT_ONCE = 64  # vectors
_EXPECTED = 1.0  # what the bag counts for a token, beside what the decoder thinks of it at its place
_AGAIN = 4.0  # times the logarithm of how often a token would be there, which it loses
_APART = 6  # places that are asked about at once
_PARTS = range(_APART)
_TOWARDS = 25.0  # times that what a vector lacks counts more than what it has
_LONGER = 0.3  # nats a token that a text may not have for each token that it is longer or shorter than expected
_TOLD = 40  # words of the bag that are tried everywhere
_KEPT = 400  # changes of a text that are worth trying
_TOKEN = -3.0  # nats that one more token may cost: about what a place of a text does


class Rates:
    """How often each token is expected in a text: Poisson's likelihood of a multiset of tokens.

    :param shares: (vocabulary,), of which expected counts are made by the expected number of tokens.
    """

    def __init__(self, shares: Any, count: float) -> None:
        self.count = count
        self.logs = (shares * max(count, 1.0)).clamp(min=1e-6).log()
        self._logs = self.logs.cpu().numpy()

    def __call__(self, ids: Ids) -> float:
        """The mean over the text's tokens, in nats, less what is missing of its length or too much."""
        total = sum(self._logs[token] * times - math.lgamma(times + 1) for token, times in Counter(ids).items())
        return float(total) / max(1, len(ids)) - _LONGER * max(0.0, abs(len(ids) - self.count) - 0.5)

    def more(self, ids: Ids, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """What one more of each of these tokens adds to the sum."""
        times = np.zeros(len(self._logs), np.float32)
        np.add.at(times, list(ids), 1)
        found: NDArray[np.float32] = self._logs[tokens] - np.log(times[tokens] + 1)
        return found

    def fewer(self, ids: Ids, token: int) -> float:
        """What one fewer of a token adds to it."""
        return float(math.log(ids.count(token)) - self._logs[token])


class TokenProposer:
    """A `TextDecoder` with the ids of its special tokens.

    :param start, end: the ids of the special tokens around a text.
    :param never: ids that stand in no text.
    """

    def __init__(
        self, decoder: Any, *, start: int, end: int, mask: int, pad: int, never: Sequence[int], half: bool = False
    ) -> None:
        import torch

        self.decoder = decoder.eval()
        if half:
            self.decoder = _half(decoder)
        self._kind = torch.bfloat16 if half else torch.float32
        self._told: tuple[bytes, Any, Any, Rates] | None = None  # of the last vector that was asked about
        self._start, self._end, self._mask, self._pad = start, end, mask, pad
        self._never = torch.tensor(sorted({*never, start, end, mask, pad}))
        self._device = next(decoder.parameters()).device

    def bag(self, vectors: Floats) -> tuple[Floats, Floats]:
        """How likely each token is the next drawn from a text's bag (rows, vocabulary), and how many tokens (rows,)."""
        import torch

        with torch.no_grad():
            logits, counts = self._expected(self._given(vectors))
            return logits.softmax(-1).cpu().numpy(), counts.cpu().numpy()

    def texts(self, vectors: Floats, lengths: int = _LENGTHS) -> list[list[Ids]]:
        """For each vector proposals of the likeliest lengths, the likeliest length first."""
        found: list[list[Ids]] = []
        for start in range(0, len(vectors), _AT_ONCE):
            found += self._texts(vectors[start : start + _AT_ONCE], lengths)
        return found

    def _texts(self, vectors: Floats, lengths: int) -> list[list[Ids]]:
        import torch

        with torch.no_grad():
            given = self._given(vectors)
            scores = self.decoder.bag.lengths(given).float()
            scores[:, 0] = -math.inf
            likely = scores.topk(min(lengths, scores.shape[1] - 1)).indices
            rows = [row for row in range(len(vectors)) for _ in range(likely.shape[1])]
            made = self._filled(given[rows], self.decoder.bag(given)[rows], likely.flatten().tolist())
        each = likely.shape[1]
        return [made[row * each : (row + 1) * each] for row in range(len(vectors))]

    def _filled(self, given: Any, bags: Any, lengths: Sequence[int]) -> list[Ids]:
        """Texts of these lengths: the surest places first, the others in the light of them.

        A token is the likelier the oftener the bag expects it, and the less likely the oftener it is there already.
        """
        import torch

        ids = padded([[self._start, *[self._mask] * n, self._end] for n in lengths], self._pad).to(self._device)
        there = padded([[1] * (n + 2) for n in lengths], 0).to(self._device) == 1
        before = self.decoder.before(given, bags)
        logs = bags.float().clone()
        logs[:, self._never] = -math.inf
        expected = (logs.softmax(-1) * torch.tensor(lengths, device=self._device)[:, None]).clamp(min=1e-6).log()
        expected[:, self._never] = -math.inf
        classes = logs.topk(min(_CLASSES, logs.shape[1])).indices
        expected, times = expected.gather(1, classes), torch.zeros(classes.shape, device=self._device)
        while bool((open_ := (ids == self._mask) & there).any()):
            targets = self.decoder.targets(before, ids, there)
            for row, length in enumerate(lengths):
                places, of = open_[row].nonzero()[:, 0], classes[row]
                logits = self.decoder.logits(targets[row, places], bags[row, of], of).float()
                likely = logits.log_softmax(-1) + _EXPECTED * expected[row]
                _fill(ids[row], places, likely, of, times[row], math.ceil(length / _PASSES))
        return [tuple(ids[row, 1 : n + 1].tolist()) for row, n in enumerate(lengths)]

    def _likely(self, targets: Any, bag: Any) -> Any:
        """How likely each token is at each place (places, vocabulary), in nats."""
        logits = self.decoder.logits(targets, bag[None]).float()
        logits[:, self._never] = -math.inf
        return logits.log_softmax(-1)

    def changes(self, vector: Floats, ids: Ids, own: Floats) -> list[tuple[float, Change]]:
        """What could stand at each place instead, or between two places, by how much likelier the text is then.

        Every sixth place is asked about at once, so that a text is read twelve times and not once for each place.
        """
        import torch

        n = len(ids)
        rows, asked = _masked(ids, self._mask, self.decoder.settings.longest)
        of, inside, place = zip(*((number, *one) for number, ones in enumerate(asked) for one in ones), strict=True)
        with torch.no_grad():
            bag, (first, added), rates = self._of(vector)
            table = padded([[self._start, *row, self._end] for row in rows], self._pad).to(self._device)
            there = padded([[1] * (len(row) + 2) for row in rows], 0).to(self._device) == 1
            before = first.expand(len(rows), -1, -1), added.expand(len(rows), -1)
            targets = self.decoder.targets(before, table, there)
            where = torch.tensor([of, inside], device=self._device)
            likely = self._likely(targets[where[0], where[1] + 1], bag[0])
            towards = self._towards(vector - own)
            told = (rates.logs + towards).topk(_TOLD).indices.expand(len(likely), -1)
            tokens = torch.cat([likely.topk(_PER_PLACE).indices, told], 1)
            values = likely.gather(1, tokens).cpu().numpy()
            held = torch.tensor([ids[at] for at in place[:n]], device=self._device)
            standing = likely[torch.arange(n), held].cpu().numpy()
        return _ranked(ids, place, tokens.cpu().numpy(), values, standing, rates, towards.cpu().numpy())

    def rates(self, vector: Floats) -> Rates:
        """How often each token is expected in the text of a vector (dim,)."""
        return self._of(vector)[2]

    def _of(self, vector: Floats) -> tuple[Any, Any, Rates]:
        """A vector's bag, what stands before its text, and its rates."""
        import torch

        key = vector.tobytes()
        if self._told is None or self._told[0] != key:
            with torch.no_grad():
                given = self._given(vector[None])
                bag, counts = self._expected(given)
                bags = bag.clamp(min=-1e4).to(self._kind)
                before = self.decoder.before(given, bags)
                self._told = key, bags, before, Rates(bag[0].softmax(-1), float(counts[0]))
        return self._told[1:]

    def _expected(self, given: Any) -> tuple[Any, Any]:
        """The bag's logits (rows, vocabulary), and how many tokens are expected (rows,)."""
        import torch

        bag = self.decoder.bag(given).float()
        bag[:, self._never] = -math.inf
        lengths = self.decoder.bag.lengths(given).float().softmax(-1)
        counts = torch.arange(lengths.shape[1], dtype=torch.float32, device=self._device)
        return bag, (lengths * counts).sum(-1)

    def _towards(self, missing: Floats) -> Any:
        """How much each token would bring, by the bag's linear part: in nats, for what a vector still lacks (dim,)."""
        bag = self.decoder.bag
        return _TOWARDS * (bag.alone @ (bag.turn.weight @ self._given(missing))).float()

    def _given(self, vectors: Floats) -> Any:
        import torch

        return torch.from_numpy(np.ascontiguousarray(vectors, np.float32)).to(self._device, self._kind)


def _fill(ids: Any, places: Any, likely: Any, classes: Any, times: Any, count: int) -> None:
    """Put the likeliest tokens at the surest places.

    :param ids: of a text, changed in place.
    :param likely: (places, classes), in nats; changed in place.
    :param classes: the tokens that there are to choose from.
    :param times: how often each of them is in the text (classes,), changed in place.
    """
    if not len(places):
        return
    likely -= _AGAIN * times.log1p()
    highest, tokens = likely.max(-1)
    for _ in range(min(count, len(places))):
        surest = highest.argmax()
        token = tokens[surest].clone()
        ids[places[surest]] = classes[token]
        times[token] += 1
        likely[surest] = -math.inf
        likely[:, token] -= _AGAIN * (1 + 1 / times[token]).log()
        again = tokens == token
        highest[again], tokens[again] = likely[again].max(-1)


def _masked(ids: Ids, mask: int, longest: int) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    """A text with masks in place of tokens, and, unless that is too long, with masks between its tokens.

    Of each row its masks: their places in the row, and those in the text that they ask about. With every second place
    asked about at once, and not every sixth, the tokens 7 8 9 would give

        _ 8 _          (0, 0), (2, 2)
        7 _ 9          (1, 1)
        _ 7 8 _ 9      (0, 0), (3, 2)
        7 _ 8 9 _      (1, 1), (4, 3)
    """
    n = len(ids)
    rows = [[mask if at % _APART == part else token for at, token in enumerate(ids)] for part in _PARTS]
    asked = [[(at, at) for at in range(part, n, _APART)] for part in _PARTS]
    if n + n // _APART + 1 > longest:
        return rows, asked
    for part in _PARTS:
        row: list[int] = []
        places: list[tuple[int, int]] = []
        for at in range(n + 1):
            if at % _APART == part:
                places.append((len(row), at))
                row.append(mask)
            row += ids[at : at + 1]
        rows.append(row)
        asked.append(places)
    return rows, asked


def _half(decoder: Any) -> Any:
    """A copy in bfloat16, of which no copy in float32 is made on the way."""
    import torch

    weights = {
        id(one): torch.nn.Parameter(one.detach().bfloat16(), requires_grad=False) for one in decoder.parameters()
    }
    return deepcopy(decoder, weights | {id(one): one.bfloat16() for one in decoder.buffers()})


def _ranked(
    ids: Ids,
    place: Sequence[int],
    tokens: NDArray[np.int64],
    values: Floats,
    standing: Floats,
    rates: Rates,
    towards: Floats,
) -> list[tuple[float, Change]]:
    """The changes worth most, by what the decoder, the bag and the missing part of the vector say of them.

    :param place: of each row the place in the text: first those to replace, then those to insert before.
    :param tokens: (rows, candidates), with the decoder's `values`; `standing` is of the tokens that stand there.
    :param towards: (vocabulary,).
    """
    n = len(ids)
    there = [ids[at] for at in place[:n]]
    gains = values + rates.more(ids, tokens) + towards[tokens]
    without = np.array([rates.fewer(ids, token) - towards[token] for token in there]) - standing
    gains[:n] += without[:, None]
    gains[n:] -= _TOKEN
    gains[:n][tokens[:n] == np.array(there)[:, None]] = -np.inf
    found = []
    for row, column in zip(*np.unravel_index(np.argsort(-gains, axis=None)[:_KEPT], gains.shape), strict=True):
        kind = "replace" if row < n else "insert"
        found.append((float(gains[row, column]), Change(place[row], kind, int(tokens[row, column]))))
    if n > 1:
        found += [(float(without[row]) + _TOKEN, Change(place[row], "delete")) for row in range(n)]
    return found
