"""Read the tokens of texts from vectors by ridge regression: an attack in closed form.

The model of a token's probability in a text is linear in the vector. The fit takes seconds and needs a thousand texts,
so no time limit weakens this attack, and it averages out the noise of a defence.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...inversion.metrics import overlap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ....core.arrays import Doubles, Floats, Integers

    Occurrence = tuple[int, int]  # a token, and its number among equal tokens of a text, from 1

_STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e3)  # relative to the mean square of a dimension
_HELD_OUT = 300  # texts that choose the strength, at most a fifth of all
_OFTEN = 2  # texts that have an occurrence
_BLOCK = 500  # texts


@dataclass(frozen=True, slots=True)
class RidgeBag:
    """A linear map from vectors to the chances of occurrences: the second "the" of a text counts apart."""

    occurrences: list[Occurrence]
    centre: Floats  # (dim,)
    weights: Floats  # (dim, occurrences)
    frequencies: Floats  # (occurrences,): the share of texts that have each
    length: int  # of a text, in tokens

    @classmethod
    def fit(cls, vectors: Floats, texts: Sequence[Sequence[int]], length: int, *, seed: int = 0) -> RidgeBag:
        """Fit to vectors (n, dim) and the tokens of their texts; held-out texts choose the strength."""
        occurrences, rows = _occurrences(texts)
        order = np.random.default_rng(seed).permutation(len(texts))
        held_out, rest = np.split(order, [min(_HELD_OUT, len(order) // 5)])
        centre = vectors.mean(0)
        learned = _Sums.of(vectors - centre, rows, rest, len(occurrences))
        expected = [texts[row] for row in held_out]

        def f1(strength: float) -> float:
            bag = cls(occurrences, centre, *learned.solved(strength), length)
            guesses = bag.tokens(vectors[held_out])
            return sum(overlap(*pair)[2] for pair in zip(expected, guesses, strict=True))

        strength = max(_STRENGTHS, key=f1)
        every = learned + _Sums.of(vectors - centre, rows, held_out, len(occurrences))
        return cls(occurrences, centre, *every.solved(strength), length)

    def tokens(self, vectors: Floats) -> list[list[int]]:
        """Return the tokens with the highest expected F1 for each vector, likeliest first."""
        chances = (self.frequencies + (vectors - self.centre) @ self.weights).clip(0, 1)
        return [self._best(row) for row in chances]

    def _best(self, chances: Floats) -> list[int]:
        order = np.argsort(-chances, kind="stable")[: 2 * self.length]
        f1s = 2 * np.cumsum(chances[order]) / (self.length + np.arange(1, len(order) + 1))
        return [self.occurrences[position][0] for position in order[: int(f1s.argmax()) + 1]]


def _occurrences(texts: Iterable[Sequence[int]]) -> tuple[list[Occurrence], list[Integers]]:
    """Return the frequent occurrences, and for each text the positions of its own occurrences in this list."""
    by_text: list[list[Occurrence]] = []
    for text in texts:
        times: Counter[int] = Counter()
        by_text.append([])
        for token in text:
            times[token] += 1
            by_text[-1].append((token, times[token]))
    counts = Counter(occurrence for text in by_text for occurrence in text)
    frequent = [occurrence for occurrence, count in counts.items() if count >= _OFTEN] or list(counts)
    positions = {occurrence: position for position, occurrence in enumerate(frequent)}
    return frequent, [
        np.array([positions[occurrence] for occurrence in text if occurrence in positions], np.int64)
        for text in by_text
    ]


@dataclass(frozen=True, slots=True)
class _Sums:
    """The sums over texts that a regression needs."""

    squares: Doubles  # (dim, dim)
    products: Floats  # (dim, occurrences)
    counts: Floats  # (occurrences,)
    texts: int

    @classmethod
    def of(cls, centred: Floats, rows: Sequence[Integers], sample: Integers, width: int) -> _Sums:
        squares = np.zeros((centred.shape[1], centred.shape[1]))
        products, counts = np.zeros((centred.shape[1], width), np.float32), np.zeros(width, np.float32)
        for start in range(0, len(sample), _BLOCK):
            block = sample[start : start + _BLOCK]
            table = np.zeros((len(block), width), np.float32)
            for number, row in enumerate(block):
                table[number, rows[row]] = 1
            part = centred[block]
            squares += part.T @ part
            products += part.T @ table
            counts += table.sum(0)
        return cls(squares, products, counts, len(sample))

    def __add__(self, sums: _Sums) -> _Sums:
        return _Sums(
            self.squares + sums.squares,
            self.products + sums.products,
            self.counts + sums.counts,
            self.texts + sums.texts,
        )

    def solved(self, strength: float) -> tuple[Floats, Floats]:
        """Return the weights of a strength, and the frequencies."""
        frequencies = (self.counts / max(1, self.texts)).astype(np.float32)
        added = strength * max(np.trace(self.squares), 1e-9) / len(self.squares) * np.eye(len(self.squares))
        weights = np.linalg.solve((self.squares + added).astype(np.float32), self.products)
        return weights.astype(np.float32), frequencies
