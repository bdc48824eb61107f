"""Test which differences are real: intervals by the bootstrap, p-values by Fisher's randomisation test.

A measure is known from a sample of queries or pairs, and another sample would have given another value. Two questions
follow.

How far off may the value be? Rows are drawn anew with replacement, and each drawn sample is measured again (Efron 1979,
Annals of Statistics 7:1; Efron and Tibshirani 1993, chapter 13: the percentile interval).

Could the difference of two systems be chance? If the systems were equal, their results could be exchanged row by row.
p is the share of exchanges with a difference at least as large as the observed one (Fisher 1935). Smucker, Allan and
Carterette 2007 (CIKM, 10.1145/1321440.1321528) compare such tests for retrieval. The randomisation and the bootstrap
agree with the t-test; the sign test and the Wilcoxon test do not.

A measure that is a mean over rows needs only its values. Any other measure (a correlation, the area under a curve) is a
function of weights: the number of times that each row is in the sample. One function then serves both questions and
sorts once. It takes a block of samples at a time, so that memory is bounded for any number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.arrays import Doubles
from ...core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike


Weighted = Callable[[Doubles], Doubles]  # weights of the rows, shape (samples, rows), to one value a sample

LEVEL = 0.95
NO_INTERVAL = "one gives no interval"  # for people, in place of the bounds
SAMPLES = 10_000  # the smallest p that this many exchanges can give is 1e-4
_EXACT = 16  # with at most this number of differing rows every exchange is tried: 2**16
_CELLS = 50_000  # weights in memory at a time: 400 kB fit into the cache, which takes a quarter of the time
_KEPT_CELLS = 1_000_000  # weights of one number of rows that are kept for the next measure: 8 MB
_SAME = 1e-12  # differences closer than this are equal: the order of a sum must not decide


@dataclass(frozen=True, slots=True)
class Difference:
    """The first of two systems minus the second, on the same rows."""

    value: float
    low: float  # the interval of the difference, by the bootstrap over rows
    high: float
    p: float  # two-sided, by randomisation

    @property
    def verdict(self) -> str:
        """Whether the first is "better" or "worse"; "same" if the difference may be chance."""
        if self.p >= 1 - LEVEL:
            return "same"
        return "better" if self.value > 0 else "worse"

    def sentence(self, name: str) -> str:
        """Say the difference of a measure and its verdict; "than" and the other system follow."""
        says = {"better": "better", "worse": "worse", "same": "no better and no worse"}[self.verdict]
        reach = NO_INTERVAL if math.isnan(self.low) else f"95 % {self.low:+.4f} to {self.high:+.4f}"
        return f"{name} {self.value:+.4f} ({reach}, p {self.p:.2g}): {says}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and the verdict for JSON, rounded to 4 digits."""
        numbers = {name: round(number, 4) if math.isfinite(number) else None for name, number in asdict(self).items()}
        return {**numbers, "verdict": self.verdict}


def bounds(value: float, low: float, high: float, *, digits: int = 4) -> str:
    """Return the ends of an interval for people, or that one query or row gives none."""
    return NO_INTERVAL if math.isnan(low) and math.isfinite(value) else f"{low:.{digits}f}, {high:.{digits}f}"


def reach(low: float, high: float, rows: int) -> str:
    """Return an interval for people; one row gives none."""
    return NO_INTERVAL if rows < 2 or math.isnan(low) else f"95 % {low:.4f} to {high:.4f}"


def interval(values: ArrayLike, *, level: float = LEVEL, samples: int = SAMPLES, seed: int = 0) -> tuple[float, float]:
    """Bootstrap interval of the mean of values, one a query or row; NaN if there is only one."""
    return _percentiles(bootstrap(mean(values), np.size(values), samples=samples, seed=seed), level, np.size(values))


def paired_interval(a: ArrayLike, b: ArrayLike, *, samples: int = SAMPLES, seed: int = 0) -> tuple[float, float]:
    """Bootstrap interval of mean(a) - mean(b) over the same rows in the same order."""
    return interval(_paired(a, b), samples=samples, seed=seed)


def randomisation(a: ArrayLike, b: ArrayLike, *, samples: int = SAMPLES, seed: int = 0) -> float:
    """Two-sided p of Fisher's randomisation test for mean(a) = mean(b) over the same rows.

    If at most 16 rows differ, p is exact: every pattern of signs is tried. Otherwise patterns are drawn, and the
    observed one is counted among them (Phipson and Smyth 2010), so that p is never 0.
    """
    differences = _paired(a, b)
    differences = differences[differences != 0]  # 0 has no sign to exchange
    size = float(np.abs(differences).sum())
    if not size:
        return 1.0
    differences = differences / size
    observed = abs(differences.sum())
    count = total = 0
    for pattern in _patterns(len(differences), samples, np.random.default_rng(seed)):
        sums = np.abs((2 * pattern - 1) @ differences)
        count += int((sums >= observed - _SAME).sum())
        total += len(sums)
    return _share(count, total, len(differences))


def difference(a: ArrayLike, b: ArrayLike, *, samples: int = SAMPLES, seed: int = 0) -> Difference:
    """Compute the difference of two means over the same rows, with interval and p."""
    low, high = paired_interval(a, b, samples=samples, seed=seed)
    return Difference(float(_paired(a, b).mean()), low, high, randomisation(a, b, samples=samples, seed=seed))


def align(a: Mapping[str, float], b: Mapping[str, float]) -> tuple[Doubles, Doubles]:
    """Put the values of two systems for the same queries into one order.

    :raises InputError: naming a query that only one system has.
    """
    alone = a.keys() ^ b.keys()
    if alone:
        raise InputError(f"only one of the two was measured on query {min(alone)!r}: compare them on the same queries")
    return _floats([a[query] for query in a]), _floats([b[query] for query in a])


# Measures that are not means


@dataclass(frozen=True, slots=True)
class Statistic:
    """A measure of scores against the right answer of each row."""

    of: Callable[[Doubles, Doubles], Weighted]  # scores and right answers -> value as a function of weights
    alike: Callable[[Doubles], Doubles]  # puts the scores of different systems on one scale; the measure stays the same

    def value(self, scores: ArrayLike, gold: ArrayLike) -> float:
        """Compute the measure with each row once.

        :param scores: (rows,), higher is better; or (rows, values), whatever `of` takes.
        :param gold: (rows,), the right answers.
        """
        scores, gold = _rows(scores), _floats(gold)
        return float(self.of(scores, gold)(np.ones((1, len(scores))))[0])

    def interval(
        self, scores: ArrayLike, gold: ArrayLike, *, level: float = LEVEL, samples: int = SAMPLES, seed: int = 0
    ) -> tuple[float, float]:
        """Bootstrap interval of the measure over rows."""
        scores, gold = _rows(scores), _floats(gold)
        return _percentiles(
            bootstrap(self.of(scores, gold), len(scores), samples=samples, seed=seed), level, len(scores)
        )

    def difference(
        self, a: ArrayLike, b: ArrayLike, gold: ArrayLike, *, samples: int = SAMPLES, seed: int = 0
    ) -> Difference:
        """Subtract the measure of scores `b` from the measure of scores `a`, both of the same rows.

        The randomisation exchanges the scores of single rows, after both systems are put on one scale (Noreen 1989,
        Computer-Intensive Methods for Testing Hypotheses; Yeh 2000, COLING, for measures that are not means).
        """
        a, b, gold = _rows(a), _rows(b), _floats(gold)
        _paired(*(scores.reshape(len(scores), -1)[:, 0] for scores in (a, b)))
        ours, theirs = self.of(a, gold), self.of(b, gold)
        drawn = bootstrap(lambda weights: ours(weights) - theirs(weights), len(a), samples=samples, seed=seed)
        low, high = _percentiles(drawn, LEVEL, len(a))
        return Difference(self.value(a, gold) - self.value(b, gold), low, high, self._p(a, b, gold, samples, seed))

    def _p(self, a: Doubles, b: Doubles, gold: Doubles, samples: int, seed: int) -> float:
        a, b = self.alike(a), self.alike(b)
        differing = np.flatnonzero((a != b).reshape(len(a), -1).any(1))
        if not len(differing):
            return 1.0
        both = self.of(np.concatenate([a, b]), np.concatenate([gold, gold]))
        observed = abs(self.value(a, gold) - self.value(b, gold))
        count = total = 0
        for pattern in _patterns(len(differing), samples, np.random.default_rng(seed), width=2 * len(a)):
            first = np.ones((len(pattern), len(a)))
            first[:, differing] = pattern
            differences = both(np.hstack([first, 1 - first])) - both(np.hstack([1 - first, first]))
            count += int((np.abs(differences) >= observed - _SAME).sum())
            total += len(differences)
        return _share(count, total, len(differing))


def mean(values: ArrayLike) -> Weighted:
    """Return the mean of values as a function of weights."""
    values = _floats(values)
    return lambda weights: weights @ values / weights.sum(1)


def bootstrap(weighted: Weighted, rows: int, *, samples: int = SAMPLES, seed: int = 0) -> Doubles:
    """Measure `samples` samples of `rows` rows, drawn with replacement; NaN if the measure is not defined."""
    _check_samples(samples)
    is_kept = samples * rows <= _KEPT_CELLS
    drawn = rows, samples, seed
    blocks: Iterable[Doubles] = _kept_weights(*drawn) if is_kept else _weights(*drawn)
    return np.concatenate([weighted(weights) for weights in blocks])


def _weights(rows: int, samples: int, seed: int) -> Iterator[Doubles]:
    """Draw samples with replacement; yield blocks of how often each row is in each sample."""
    random = np.random.default_rng(seed)
    for start, stop in _blocks(samples, rows):
        numbers = random.integers(0, rows, (stop - start, rows)) + rows * np.arange(stop - start)[:, None]
        weights = np.bincount(numbers.ravel(), minlength=(stop - start) * rows).reshape(stop - start, rows)
        yield weights.astype(np.float64)


@lru_cache(maxsize=4)
def _kept_weights(rows: int, samples: int, seed: int) -> tuple[Doubles, ...]:
    """Draw samples once for all measures of as many rows: to draw takes several times as long as to measure."""
    blocks = tuple(_weights(rows, samples, seed))
    for weights in blocks:
        weights.flags.writeable = False
    return blocks


# Several comparisons


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct several p-values, in the same order (Holm 1979, Scandinavian Journal of Statistics 6:65).

    The chance of rejecting any true null hypothesis stays below the level, however the tests depend on each other.
    """
    order = np.argsort(p_values, kind="stable")
    corrected, highest = np.empty(len(order)), 0.0
    for rank, number in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[number]))
        corrected[number] = highest
    return [float(p) for p in corrected]


# Parts


def _patterns(rows: int, samples: int, random: np.random.Generator, *, width: int = 0) -> Iterator[Doubles]:
    """Yield blocks of patterns of 0 and 1, shape (patterns, rows): all of them for at most 16 rows, else drawn."""
    _check_samples(samples)
    width = max(rows, width)
    if rows <= _EXACT:
        for start, stop in _blocks(2**rows, width):
            yield (~np.arange(start, stop)[:, None] >> np.arange(rows) & 1).astype(np.float64)
        return
    for start, stop in _blocks(samples, width):
        cells = (stop - start) * rows
        bits = np.unpackbits(np.frombuffer(random.bytes(-(-cells // 8)), np.uint8))[:cells]
        yield bits.reshape(stop - start, rows).astype(np.float64)


def _blocks(total: int, width: int) -> Iterator[tuple[int, int]]:
    size = max(1, _CELLS // max(1, width))
    yield from pairwise([*range(0, total, size), total])


def _share(count: int, total: int, rows: int) -> float:
    return count / total if rows <= _EXACT else (count + 1) / (total + 1)


def _percentiles(drawn: Doubles, level: float, rows: int) -> tuple[float, float]:
    """Return the ends of an interval; NaN for one row: all its samples are the same, and a width of 0 looks certain."""
    if not 0 < level < 1:
        raise InputError(f"the level of an interval is a number between 0 and 1, not {level!r}")
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn) or rows == 1:
        return float("nan"), float("nan")
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _floats(values: ArrayLike) -> Doubles:
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not len(values):
        raise InputError(f"expected one value a row, at least one, not an array of shape {values.shape}")
    return values


def _rows(values: ArrayLike) -> Doubles:
    values = np.asarray(values, np.float64)
    return values if values.ndim == 2 and values.size else _floats(values)


def _paired(a: ArrayLike, b: ArrayLike) -> Doubles:
    a, b = _floats(a), _floats(b)
    if len(a) != len(b):
        raise InputError(f"paired values belong to the same rows, but there are {len(a)} and {len(b)}")
    return a - b


def _check_samples(samples: int) -> None:
    if samples < 1:
        raise InputError(f"samples is how many are drawn, a whole number from 1, not {samples!r}")
