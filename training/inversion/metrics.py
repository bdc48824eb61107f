"""How much of a text was recovered: measures of a recovered text against the true one.

- precision, recall, F1: of the encoder's own tokens as multisets, special ones left out: what the texts have in common,
  as often as both have it, over what was recovered, over what was there, and their harmonic mean. The F1 of SQuAD
  (Rajpurkar et al. 2016, arXiv:1606.05250), of tokens instead of words; vec2text (Morris et al. 2023, arXiv:2310.06816)
  takes sets. A mean over texts. Tokens that the encoder does not know are in no way recovered.
- exact: the share of texts whose tokens are all there, in order. What the encoder does not see, case in most, cannot be
  recovered and is not asked for.
- BLEU: sacrebleu's corpus BLEU (Papineni et al. 2002; Post 2018, arXiv:1804.08771), case folded, 0 to 100;
  `bleu_signature` has its settings.
- sentence BLEU: the mean of sacrebleu's for single texts, with the effective order, 0 to 100: vec2text's figures are
  such means.
- ROUGE-L: the F1 of the longest common subsequence of words (Lin 2004, W04-1013, section 3, with beta 1).
- cosine: of the recovered text, encoded again, and the true text's vector as it was before any defence.
- numbers, names: of all the different numbers, or names, of each text the share that stands in the recovered one.

A number is digits with `.,:/-` between them. A name is a word that begins with a capital letter and does not begin a
sentence: acronyms count, the first word of a text never does. Words are compared without case and accents, which most
encoders drop.
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

MEASURES = ("precision", "recall", "f1", "exact", "bleu", "sentence_bleu", "rouge_l", "cosine", "numbers", "names")
_SAMPLES = 2_000
_BLEU_SAMPLES = 500  # each takes the formula anew


@dataclass(frozen=True, slots=True)
class Value:
    """A measure with its 95 % interval, by the bootstrap over texts; None where there is nothing to measure."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was recovered of some texts."""

    texts: int
    measures: dict[str, Value]
    f1: list[float] = field(default_factory=list, repr=False)  # of each text
    unknown: float = 0.0  # the share of the true texts' tokens that the encoder does not know

    def __getitem__(self, measure: str) -> float:
        value = self.measures[measure].value
        return math.nan if value is None else value

    def as_dict(self) -> dict[str, Any]:
        return {"texts": self.texts, **{name: asdict(value) for name, value in self.measures.items()}}


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
    seed: int = 0,
) -> Recovery:
    """Every measure of texts recovered for true ones, in the same order.

    :param tokenize: gives the encoder's own tokens of each text, special ones left out; its `never`, if it has that,
        are those that stand for no text, such as the unknown one.
    :param cosines: of each recovered text with the true vector; left out unless given.
    """
    if not true or len(true) != len(recovered):
        raise InputError(f"expected one recovered text for each true one, not {len(recovered)} for {len(true)}")
    require()
    never: frozenset[int] = getattr(tokenize, "never", frozenset())
    wanted = tokenize(true)
    found = [[token for token in tokens if token not in never] for tokens in tokenize(recovered)]
    unknown = [token in never for tokens in wanted for token in tokens]
    overlaps = np.array([overlap(one, other) for one, other in zip(wanted, found, strict=True)])
    both = list(zip(true, recovered, strict=True))
    per_text: dict[str, ArrayLike] = {
        "precision": overlaps[:, 0],
        "recall": overlaps[:, 1],
        "f1": overlaps[:, 2],
        "exact": [one == other for one, other in zip(wanted, found, strict=True)],
        "sentence_bleu": [sentence_bleu(*pair) for pair in both],
        "rouge_l": [rouge_l(*pair) for pair in both],
    }
    if cosines is not None:
        per_text["cosine"] = cosines
    weighted = {name: mean(np.asarray(values, np.float64)) for name, values in per_text.items()}
    weighted["numbers"] = _share([_counts(numbers(one), numbers_in(numbers(one), other)) for one, other in both])
    weighted["names"] = _share([_counts(names(one), words(other)) for one, other in both])
    measures = {name: _value(weighting, len(true), seed) for name, weighting in weighted.items()}
    measures["bleu"] = _value(_corpus_bleu(both), len(true), seed, _BLEU_SAMPLES)
    ordered = {name: measures[name] for name in MEASURES if name in measures}
    return Recovery(len(true), ordered, overlaps[:, 2].tolist(), sum(unknown) / max(1, len(unknown)))


def overlap(true: Iterable[Any], found: Iterable[Any]) -> tuple[float, float, float]:
    """Precision, recall and F1 of two multisets; 0 where one of them is empty."""
    wanted, given = Counter(true), Counter(found)
    both = (wanted & given).total()
    if not both:
        return 0.0, 0.0, 0.0
    return both / given.total(), both / wanted.total(), 2 * both / (given.total() + wanted.total())


def rouge_l(true: str, found: str) -> float:
    wanted, given = words(true), words(found)
    common = longest_common(wanted, given)
    return 2 * common / (len(wanted) + len(given)) if common else 0.0


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common subsequence, a row of the table at a time as bits of an integer (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << place
    full = (1 << len(one)) - 1
    row = full
    for word in other:
        matching = row & places.get(word, 0)
        row = (row + matching | row - matching) & full
    return len(one) - row.bit_count()


def _counts(wanted: Sequence[str], given: Sequence[str]) -> tuple[int, int]:
    """How many of these are there, and how many they are."""
    return len(set(wanted) & set(given)), len(wanted)


def _share(counts: Sequence[tuple[int, int]]) -> Weighted:
    """Found of all, over texts; NaN where there are none."""
    table = np.array(counts, np.float64)

    def share(weights: Doubles) -> Doubles:
        found, total = (weights @ table).T
        return np.where(total > 0, found / np.maximum(total, 1), np.nan)

    return share


def sentence_bleu(true: str, found: str) -> float:
    return float(_bleu(effective_order=True).sentence_score(found, [true]).score)


def _corpus_bleu(both: Sequence[tuple[str, str]]) -> Weighted:
    """Corpus BLEU from the counts of single texts, as often as each is in a sample."""
    bleu = _bleu(effective_order=True)  # which the counts do not depend on
    table = np.empty((len(both), 10), np.float64)
    for row, (true, found) in zip(table, both, strict=True):
        score = bleu.sentence_score(found, [true])
        row[:] = [*score.counts, *score.totals, score.sys_len, score.ref_len]

    def of(weights: Doubles) -> Doubles:
        sums = (weights @ table).round().astype(int).tolist()
        scores = [bleu.compute_bleu(row[:4], row[4:8], row[8], row[9], smooth_method="exp").score for row in sums]
        return np.array(scores)

    return of


def bleu_signature() -> str:
    """The settings of BLEU as sacrebleu writes them down."""
    bleu = _bleu(effective_order=False)
    bleu.corpus_score(["a"], [["a"]])
    return str(bleu.get_signature())


def _bleu(*, effective_order: bool) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(lowercase=True, effective_order=effective_order)


def _value(weighted: Weighted, texts: int, seed: int, samples: int = _SAMPLES) -> Value:
    value = float(weighted(np.ones((1, texts)))[0])
    drawn = bootstrap(weighted, texts, samples=samples, seed=seed)
    drawn = drawn[np.isfinite(drawn)]
    if not math.isfinite(value) or not len(drawn):
        return Value(None, None, None)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Value(round(value, 4), round(float(low), 4), round(float(high), 4))
