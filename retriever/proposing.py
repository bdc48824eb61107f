"""What a trained text decoder proposes for a vector: whole texts, and changes of a text."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from .correction import Change
from .text_decoder import padded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .correction import Ids

    Floats = NDArray[np.float32]

_PASSES = 12  # in which all of a text's places are filled
_LENGTHS = 3  # tried for each vector
_PER_PLACE = 8  # tokens that could stand at a place
_AT_ONCE = 64  # vectors
_TOKEN = -3.0  # nats that one more token may cost: about what a place of a text does


class Proposing:
    """A `TextDecoder` with the ids of its special tokens.

    :param start, end: the ids of the special tokens around a text.
    :param never: ids that stand in no text.
    """

    def __init__(
        self, decoder: Any, *, start: int, end: int, mask: int, pad: int, never: Sequence[int], half: bool = False
    ) -> None:
        import torch

        self.decoder, self._half = decoder.eval(), half
        self._start, self._end, self._mask, self._pad = start, end, mask, pad
        self._never = torch.tensor(sorted({*never, start, end, mask, pad}))
        self._device = next(decoder.parameters()).device

    def _computing(self) -> Any:
        import torch

        return torch.autocast(self._device.type, torch.bfloat16) if self._half else nullcontext()

    def bag(self, vectors: Floats) -> tuple[Floats, Floats]:
        """How likely each token is the next drawn from a text's bag (rows, vocabulary), and how many tokens (rows,)."""
        import torch

        with torch.no_grad(), self._computing():
            given = self._given(vectors)
            logits = self.decoder.bag(given).float()
            logits[:, self._never] = -math.inf
            lengths = self.decoder.bag.lengths(given).float().softmax(-1)
            counts = torch.arange(lengths.shape[1], dtype=torch.float32, device=self._device)
            return logits.softmax(-1).cpu().numpy(), (lengths * counts).sum(-1).cpu().numpy()

    def texts(self, vectors: Floats, lengths: int = _LENGTHS) -> list[list[Ids]]:
        """For each vector proposals of the likeliest lengths, the likeliest length first."""
        found: list[list[Ids]] = []
        for start in range(0, len(vectors), _AT_ONCE):
            found += self._texts(vectors[start : start + _AT_ONCE], lengths)
        return found

    def _texts(self, vectors: Floats, lengths: int) -> list[list[Ids]]:
        import torch

        with torch.no_grad(), self._computing():
            given = self._given(vectors)
            scores = self.decoder.bag.lengths(given).float()
            scores[:, 0] = -math.inf
            likely = scores.topk(min(lengths, scores.shape[1] - 1)).indices
            rows = [row for row in range(len(vectors)) for _ in range(likely.shape[1])]
            made = self._filled(given[rows], self.decoder.bag(given)[rows], likely.flatten().tolist())
        each = likely.shape[1]
        return [made[row * each : (row + 1) * each] for row in range(len(vectors))]

    def _filled(self, given: Any, bags: Any, lengths: Sequence[int]) -> list[Ids]:
        """Texts of these lengths: the surest places first, the others in the light of them."""
        import torch

        ids = padded([[self._start, *[self._mask] * n, self._end] for n in lengths], self._pad).to(self._device)
        there = padded([[1] * (n + 2) for n in lengths], 0).to(self._device) == 1
        before = self.decoder.before(given, bags)
        each = torch.tensor([math.ceil(n / _PASSES) for n in lengths], device=self._device)
        while bool((open_ := (ids == self._mask) & there).any()):
            targets = self.decoder.targets(before, ids, there)
            rows, places = open_.nonzero(as_tuple=True)
            logits = self.decoder.logits(targets[rows, places], bags[rows]).float()
            logits[:, self._never] = -math.inf
            sure, tokens = logits.log_softmax(-1).max(-1)
            order = torch.full(ids.shape, -math.inf, device=self._device)
            order[rows, places] = sure
            rank = order.argsort(1, descending=True).argsort(1)
            chosen = rank[rows, places] < each[rows]
            ids[rows[chosen], places[chosen]] = tokens[chosen]
        return [tuple(ids[row, 1 : n + 1].tolist()) for row, n in enumerate(lengths)]

    def changes(self, vector: Floats, ids: Ids) -> list[tuple[float, Change]]:
        """What could stand at each place instead, or between two places, by how much likelier the text is then."""
        import torch

        n = len(ids)
        replaced = [[*ids[:place], self._mask, *ids[place + 1 :]] for place in range(n)]
        inserted = [[*ids[:place], self._mask, *ids[place:]] for place in range(n + 1)]
        if n >= self.decoder.settings.longest:
            inserted = []
        rows = [[self._start, *row, self._end] for row in replaced + inserted]
        at = [*range(n), *range(len(inserted))]
        with torch.no_grad(), self._computing():
            given = self._given(vector[None])
            bag = self.decoder.bag(given)
            first, added = self.decoder.before(given, bag)
            table = padded(rows, self._pad).to(self._device)
            there = padded([[1] * len(row) for row in rows], 0).to(self._device) == 1
            before = first.expand(len(rows), -1, -1), added.expand(len(rows), -1)
            targets = self.decoder.targets(before, table, there)
            places = torch.tensor(at, device=self._device) + 1
            logits = self.decoder.logits(targets[torch.arange(len(rows)), places], bag).float()
            logits[:, self._never] = -math.inf
            likely = logits.log_softmax(-1)
            values, tokens = likely.topk(_PER_PLACE + 1)
        own = likely[torch.arange(n), torch.tensor(ids)].tolist()
        found: list[tuple[float, Change]] = []
        for row, (scores, names) in enumerate(zip(values.tolist(), tokens.tolist(), strict=True)):
            for score, name in zip(scores, names, strict=True):
                if row >= n:
                    found.append((score - _TOKEN, Change(row - n, "insert", name)))
                elif name != ids[row]:
                    found.append((score - own[row], Change(row, "replace", name)))
        if n > 1:
            found += [(-own[place] + _TOKEN, Change(place, "delete")) for place in range(n)]
        return found

    def _given(self, vectors: Floats) -> Any:
        import torch

        return torch.from_numpy(np.ascontiguousarray(vectors, np.float32)).to(self._device)
