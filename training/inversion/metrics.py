"""Measure how much of a text was recovered, by comparing it with the true text.

- precision, recall, F1: of the encoder's own tokens as multisets, without special tokens. Precision is the share of
  recovered tokens that the true text has, recall the share of true tokens that were recovered; F1 is their harmonic
  mean. Values are means over texts. Tokens unknown to the encoder never count as recovered. SQuAD's F1 is the same with
  words (Rajpurkar et al. 2016, arXiv:1606.05250); vec2text's compares sets (Morris et al. 2023, arXiv:2310.06816).
- content F1: the F1 of content tokens alone, over texts that have any. Common tokens are left
  out; the caller names them.
- exact: the share of texts with all tokens recovered in order. Information that most encoders drop, such as case,
  is not required.
- BLEU: sacrebleu's corpus BLEU (Papineni et al. 2002; Post 2018, arXiv:1804.08771), case folded, 0 to 100;
  `bleu_signature` has its settings.
- sentence BLEU: the mean of sacrebleu's score for single texts with the effective order, 0 to 100, as vec2text has it.
- ROUGE-L: the F1 of the longest common subsequence of words (Lin 2004, W04-1013, section 3, with beta 1).
- cosine: of the recovered text, encoded again, with the true text's vector before any defence.
- numbers, names: of all distinct numbers, or names, of each text the share that the recovered text has.

A number is digits with `.,:/-` between them. A name is a capitalised word that does not begin a sentence: acronyms
count, the first word of a text never does. Words are compared without case and accents, which most encoders drop.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError, MissingExtraError
from ...core.words import names, numbers, numbers_in, words
from ..evaluation.significance import bootstrap, mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import ArrayLike

    from ...core.arrays import Doubles
    from ..evaluation.significance import Weighted

    Tokenize = Callable[[Sequence[str]], list[list[int]]]
    Span = tuple[int, int]

MEASURES = (
    *("precision", "recall", "f1", "content_f1", "exact", "bleu", "sentence_bleu", "rouge_l", "cosine"),
    *("numbers", "names"),
)
_SAMPLES = 2_000
_BLEU_SAMPLES = 500  # fewer: each computes the formula again


@dataclass(frozen=True, slots=True)
class Value:
    """A measure with its 95 % interval, by the bootstrap over texts; None if there is nothing to measure."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Recovery:
    """The measures of recovered texts."""

    texts: int
    measures: dict[str, Value]
    f1: list[float] = field(default_factory=list, repr=False)  # of each text
    unknown: float = 0.0  # share of the true tokens that are unknown to the encoder

    def __getitem__(self, measure: str) -> float:
        value = self.measures[measure].value
        return math.nan if value is None else value

    @property
    def f1_95th(self) -> float | None:
        """The 95th percentile of F1 over texts: one text in twenty is read at least so well."""
        return round(float(np.quantile(self.f1, 0.95)), 4) if self.f1 else None

    def as_dict(self) -> dict[str, Any]:
        """Return the measures for JSON, with the 95th percentile of F1 over texts."""
        measures = {name: asdict(value) for name, value in self.measures.items()}
        return {"texts": self.texts, "f1_95th": self.f1_95th, **measures}


def require() -> None:
    """:raises MissingExtraError: when sacrebleu is not installed."""
    try:
        import sacrebleu  # noqa: F401
    except ImportError:
        raise MissingExtraError("sacrebleu", "audit", "measuring recovered text") from None


def compare(
    true: Sequence[str],
    recovered: Sequence[str],
    tokenize: Tokenize,
    *,
    cosines: ArrayLike | None = None,
    tokens: Sequence[Sequence[int]] | None = None,
    common: frozenset[int] = frozenset(),
    seed: int = 0,
) -> Recovery:
    """Compare recovered texts with true ones, in the same order, by every measure.

    :param tokenize: returns the encoder's own tokens of each text, without special tokens. Its optional attribute
        `non_text` has the tokens without text, such as the unknown one.
    :param cosines: of each recovered text with the true vector; not measured by default.
    :param tokens: of each recovered text, if an attacker gave tokens; by default the text's.
    :param common: tokens that do not count for the content F1.
    """
    if not true or len(true) != len(recovered):
        raise InputError(f"expected one recovered text for each true one, not {len(recovered)} for {len(true)}")
    require()
    non_text: frozenset[int] = getattr(tokenize, "non_text", frozenset())
    true_tokens = tokenize(true)
    guesses = tokenize(recovered) if tokens is None else tokens
    guesses = [[token for token in row if token not in non_text] for row in guesses]
    unknown = [token in non_text for row in true_tokens for token in row]
    overlaps = np.array([overlap(*rows) for rows in zip(true_tokens, guesses, strict=True)])
    pairs = list(zip(true, recovered, strict=True))
    per_text: dict[str, ArrayLike] = {
        "precision": overlaps[:, 0],
        "recall": overlaps[:, 1],
        "f1": overlaps[:, 2],
        "exact": [expected == row for expected, row in zip(true_tokens, guesses, strict=True)],
        "sentence_bleu": [sentence_bleu(*pair) for pair in pairs],
        "rouge_l": [rouge_l(*pair) for pair in pairs],
    }
    if cosines is not None:
        per_text["cosine"] = cosines
    weighted = {name: mean(np.asarray(values, np.float64)) for name, values in per_text.items()}
    weighted["numbers"] = _share([_counts(numbers(text), numbers_in(numbers(text), guess)) for text, guess in pairs])
    weighted["names"] = _share([_counts(names(text), words(guess)) for text, guess in pairs])
    weighted["content_f1"] = _content_f1(true_tokens, guesses, common)
    measures = {name: _value(weighting, len(true), seed) for name, weighting in weighted.items()}
    measures["bleu"] = _value(_corpus_bleu(pairs), len(true), seed, _BLEU_SAMPLES)
    ordered = {name: measures[name] for name in MEASURES if name in measures}
    return Recovery(len(true), ordered, overlaps[:, 2].tolist(), sum(unknown) / max(1, len(unknown)))


def overlap(true: Iterable[Any], recovered: Iterable[Any]) -> tuple[float, float, float]:
    """Precision, recall and F1 of two multisets; 0 if one of them is empty."""
    expected, counts = Counter(true), Counter(recovered)
    common = (expected & counts).total()
    if not common:
        return 0.0, 0.0, 0.0
    return common / counts.total(), common / expected.total(), 2 * common / (counts.total() + expected.total())


def rouge_l(true: str, recovered: str) -> float:
    """Return the F1 of the longest common subsequence of folded words, 0 to 1; time grows with both lengths."""
    expected, guesses = words(true), words(recovered)
    common = longest_common(expected, guesses)
    return 2 * common / (len(expected) + len(guesses)) if common else 0.0


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence: rows of the table are the bits of an integer (Hyyrö 2004)."""
    positions: dict[str, int] = {}
    for position, word in enumerate(first):
        positions[word] = positions.get(word, 0) | 1 << position
    full = (1 << len(first)) - 1
    row = full
    for word in second:
        matching = row & positions.get(word, 0)
        row = (row + matching | row - matching) & full
    return len(first) - row.bit_count()


def _counts(expected: Sequence[str], recovered: Sequence[str]) -> tuple[int, int]:
    """The number of recovered items, and of expected ones."""
    return len(set(expected) & set(recovered)), len(expected)


def _share(counts: Sequence[tuple[float, int]]) -> Weighted:
    """The share of recovered items over all texts; NaN if there are no items."""
    table = np.array(counts, np.float64)

    def share(weights: Doubles) -> Doubles:
        recovered, total = (weights @ table).T
        return np.where(total > 0, recovered / np.maximum(total, 1), np.nan)

    return share


def _content_f1(true: Sequence[Sequence[int]], guesses: Sequence[Sequence[int]], common: frozenset[int]) -> Weighted:
    """The mean F1 of tokens that are not common, over texts that have any."""
    pairs = [
        [[token for token in row if token not in common] for row in rows] for rows in zip(true, guesses, strict=True)
    ]
    return _share([(overlap(expected, guess)[2], 1) if expected else (0, 0) for expected, guess in pairs])


def sentence_bleu(true: str, recovered: str) -> float:
    """Return sacrebleu's score of one text with the effective order, 0 to 100."""
    return float(_bleu(effective_order=True).sentence_score(recovered, [true]).score)


def _corpus_bleu(pairs: Sequence[tuple[str, str]]) -> Weighted:
    """Corpus BLEU from the counts of single texts, weighted by how often a sample has each."""
    bleu = _bleu(effective_order=True)  # does not change the counts
    table = np.empty((len(pairs), 10), np.float64)
    for row, (true, recovered) in zip(table, pairs, strict=True):
        score = bleu.sentence_score(recovered, [true])
        row[:] = [*score.counts, *score.totals, score.sys_len, score.ref_len]

    def of(weights: Doubles) -> Doubles:
        sums = (weights @ table).round().astype(int).tolist()
        scores = [bleu.compute_bleu(row[:4], row[4:8], row[8], row[9], smooth_method="exp").score for row in sums]
        return np.array(scores)

    return of


def bleu_signature() -> str:
    """The settings of BLEU in sacrebleu's notation."""
    bleu = _bleu(effective_order=False)
    bleu.corpus_score(["a"], [["a"]])
    return str(bleu.get_signature())


def _bleu(*, effective_order: bool) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(lowercase=True, effective_order=effective_order)


def mean_value(values: Sequence[float], seed: int) -> Value:
    """The mean of one number for each text; None if there is no text."""
    if not values:
        return Value(None, None, None)
    return _value(mean(values), len(values), seed)


def share_above(f1: Sequence[float], floor: Sequence[float], seed: int) -> Value:
    """Where the mean F1 lies between the mean of `floor` (0) and the whole text (1); at least 0.

    :param floor: F1 of the same texts. Each sample of the bootstrap draws both.
    """
    table = np.column_stack([f1, floor])

    def share(weights: Doubles) -> Doubles:
        recovered, baseline = (weights @ table / weights.sum(1, keepdims=True)).T
        shares: Doubles = np.maximum(0, (recovered - baseline) / np.maximum(1e-9, 1 - baseline))
        return shares

    return _value(share, len(table), seed)


def _value(weighted: Weighted, texts: int, seed: int, samples: int = _SAMPLES) -> Value:
    value = float(weighted(np.ones((1, texts)))[0])
    drawn = bootstrap(weighted, texts, samples=samples, seed=seed)
    drawn = drawn[np.isfinite(drawn)]
    if not math.isfinite(value) or not len(drawn):
        return Value(None, None, None)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Value(round(value, 4), round(float(low), 4), round(float(high), 4))
