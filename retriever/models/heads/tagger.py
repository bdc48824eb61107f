"""Mark the names in a text, such as versions or persons: a label for each word, decoded into spans.

Labels are BIO (Ramshaw and Marcus 1995): B-X begins a span of X, I-X continues it, O is outside. A word has the label
of its first token (Devlin et al. 2019, arXiv:1810.04805, section 5.3); a word without one has none. `chain` finds the
best sequence of labels. Names often have capital letters, and many tokenizers drop them. With such a tokenizer, tokens
with a capital letter have token type 1.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.checks import is_real, is_whole, precision_of
from ....core.words import UNSPACED_RANGES, is_mark
from ..encoder import check_texts
from .chain import marginals, valid, viterbi
from .head import load_head
from .head_settings import TAGGER, check_settings, read_settings
from .promised_precision import Precisions, are_precisions, threshold
from .windows import text_windows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ....core.arrays import Floats, Integers
    from .head import EncoderWithHead
    from .windows import Window

_MARK, _FORMAT = "\uffff", "\ufffe"  # no characters: stand for every mark, and for every format character
_LETTER = rf"(?:(?![{UNSPACED_RANGES}])[^\W_]|\d)"  # of a script with spaces between words
_WORD = re.compile(
    rf"{_LETTER}(?:{_FORMAT}*(?:{_LETTER}|{_MARK}))*"
    rf"|[^\W_](?:{_FORMAT}*{_MARK})*"  # a letter of another script is a word; a tagger joins those of one token
    rf"|(?:[^\w\s{_MARK}{_FORMAT}]|_){_MARK}*"
)
_NO_WIDTH = "\u200b"  # a space, though Unicode calls it a format character
_LENGTH = 256  # tokens of a window, of a model that does not say
_PIECE = 256  # texts in memory together
OUTSIDE = "O"


@dataclass(frozen=True, slots=True)
class TaggerSettings:
    """How a tagger reads, and what its scores mean; `binocle.json` of its folder has them."""

    length: int = _LENGTH  # tokens of a window
    slope: float = 1.0  # the probability that a span is right is the logistic function of slope * score + offset
    offset: float = 0.0
    capitals: bool = False  # whether tokens with a capital letter have type 1
    transitions: list[list[list[float]]] | None = None  # log-probabilities of `chain`
    sure: Precisions = ()

    @classmethod
    def read(cls, folder: Path, labels: int) -> TaggerSettings:
        """Read them, or take the defaults.

        :param labels: number of the model's labels.
        :raises InputError: when a value is wrong.
        """
        settings = read_settings(folder, "tagger", cls)
        is_table = settings.transitions is None or _are_transitions(settings.transitions, labels)
        rules = {
            "length": (is_whole(settings.length, 8), "a whole number of tokens from 8"),
            "slope": (is_real(settings.slope), "a number"),
            "offset": (is_real(settings.offset), "a number"),
            "capitals": (isinstance(settings.capitals, bool), "true or false"),
            "transitions": (is_table, f"two tables of {labels + 1} rows with {labels} numbers up to 0"),
            "sure": (are_precisions(settings.sure), "pairs of a probability and a precision"),
        }
        check_settings(folder, "tagger", settings, rules)
        return settings

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for JSON."""
        return asdict(self)


def _are_transitions(table: Any, labels: int) -> bool:
    """Whether a value of JSON is a table of log-probabilities of this many labels."""
    try:
        numbers = np.array(table, np.float64)
    except (ValueError, TypeError):
        return False
    return numbers.shape == (2, labels + 1, labels) and bool((np.isfinite(numbers) & (numbers <= 0)).all())


@dataclass(frozen=True, slots=True)
class Entity:
    """A span of a text with its label: `text` is the characters `start` to `end`."""

    label: str
    text: str
    start: int
    end: int
    probability: float  # that label and both ends are right, calibrated on held-out texts
    score: float = 0.0  # the logit of the least sure word


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the characters of each word: letters and digits, or one sign, with their marks.

    Where a script has no spaces between words, each letter is one, as in the terms of a search.
    Format characters, such as the soft hyphen, belong to a word where they stand between two of its letters.
    """
    if not text.isascii():
        text = text.translate({ord(sign): _stand_in(sign) for sign in set(text)})
    return [match.span() for match in _WORD.finditer(text)]


def _stand_in(sign: str) -> str:
    if is_mark(sign):
        return _MARK
    if sign == _NO_WIDTH:
        return " "
    return _FORMAT if unicodedata.category(sign) == "Cf" else sign


def touching(words: Sequence[tuple[int, int]]) -> Integers:
    """Return 1 for each word that begins where the word before it ends, else 0."""
    return np.array([int(number > 0 and words[number - 1][1] == start) for number, (start, _) in enumerate(words)], int)


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return (label, first word, end) of each span in BIO tags, as conlleval reads them: an I-X after another begins X.

    >>> entities(["B-A", "I-A", "O", "I-B"])
    [('A', 0, 2), ('B', 3, 4)]
    """
    spans: list[tuple[str, int, int]] = []
    for position, tag in enumerate(tags):
        if tag == OUTSIDE:
            continue
        prefix, _, label = tag.partition("-")
        if prefix == "I" and spans and spans[-1][0] == label and spans[-1][2] == position:
            spans[-1] = label, spans[-1][1], position + 1
        else:
            spans.append((label, position, position + 1))
    return spans


class Tagger:
    """A model that marks names; `load_tagger` returns one."""

    def __init__(self, head: EncoderWithHead, settings: TaggerSettings) -> None:
        self.head, self.settings = head, settings
        self.name, self.fingerprint, self.labels = head.name, head.fingerprint, head.settings.labels
        self._valid = valid(self.labels)
        self._transitions = None if settings.transitions is None else np.array(settings.transitions, np.float32)
        self._size = min(settings.length, head.settings.limit)

    def tag(self, texts: Sequence[str], *, precision: float | None = None) -> list[list[Entity]]:
        """Return the spans of each text, in its order.

        :param precision: promised share of right spans: less certain spans are left out.
        :raises InputError: when the precision cannot be promised.
        """
        checked, floor = check_texts(texts), self.floor(precision)
        tagged: list[list[Entity]] = []
        for start in range(0, len(checked), _PIECE):
            tagged += self._tag(checked[start : start + _PIECE])
        return [[entity for entity in entities if entity.probability >= floor] for entities in tagged]

    def floor(self, precision: float | None) -> float:
        """Return the least probability of a span that is given.

        :raises InputError: when the precision cannot be promised.
        """
        precision = precision_of(precision)
        return 0.0 if precision is None else threshold(self.settings.sure, precision, "tagger")

    def _tag(self, texts: list[str]) -> Iterator[list[Entity]]:
        tokenizer, capitals = self.head.tokenizer(), self.settings.capitals
        by_text = [text_windows(tokenizer, text, self._size, capitals=capitals) for text in texts]
        logits = iter(self.head.logits([window for parts in by_text for window in parts]))
        for text, parts in zip(texts, by_text, strict=True):
            words = word_spans(text)
            scores, read = _word_logits(words, parts, [next(logits) for _ in parts], len(self.labels))
            spans = _whole_tokens(words, read.tolist(), parts)
            yield list(self._entities(text, spans, scores[read], touching(words)[read]))

    def _entities(self, text: str, words: list[tuple[int, int]], scores: Floats, touch: Integers) -> Iterator[Entity]:
        path, likely = self._decode(scores, touch)
        for label, first, end in entities([self.labels[number] for number in path]):
            surely = float(np.exp(likely[first:end].min()))
            score = float(np.log(max(surely, 1e-9) / max(1 - surely, 1e-9)))
            logit = self.settings.slope * score + self.settings.offset
            probability = float(1 / (1 + np.exp(-np.clip(logit, -500, 500))))
            start, stop = words[first][0], words[end - 1][1]
            yield Entity(label, text[start:stop], start, stop, probability, score)

    def _decode(self, scores: Floats, touch: Integers) -> tuple[list[int], Floats]:
        """Return the best label of each word, and its log-probability."""
        if self._transitions is None:
            path = viterbi(scores, self._valid[np.zeros_like(touch)])
            return path, scores[np.arange(len(path)), path]
        steps = (self._valid + self._transitions)[touch]
        path = viterbi(scores, steps)
        likely = marginals(scores, steps) if any(self.labels[number] != OUTSIDE for number in path) else scores
        return path, likely[np.arange(len(path)), path]


def _word_logits(
    words: list[tuple[int, int]], parts: list[Window], logits: list[Floats], labels: int
) -> tuple[Floats, Integers]:
    """Return the log-probabilities of each word's first token, from the window with most around it.

    :returns: scores, (words, labels), and the numbers of the words that have a token: the others have no scores.
    """
    scores = np.zeros((len(words), labels), np.float32)
    room = np.full(len(words), -1)
    for part, rows in zip(parts, logits, strict=True):
        likely = rows - rows.max(1, keepdims=True)
        likely = likely - np.log(np.exp(likely).sum(1, keepdims=True))
        numbers, tokens = np.array([*first_tokens(words, part)], np.int64).reshape(-1, 2).T
        around = np.minimum(tokens, len(part.offsets) - 1 - tokens)
        is_better = around > room[numbers]
        numbers, tokens = numbers[is_better], tokens[is_better]
        room[numbers], scores[numbers] = around[is_better], likely[part.first + tokens]
    return scores, np.flatnonzero(room >= 0)


def _whole_tokens(words: list[tuple[int, int]], read: list[int], parts: list[Window]) -> list[tuple[int, int]]:
    """Return the words that were read, each with the next ones that its tokens go on into, as "'s" does in RoBERTa."""
    if len(read) == len(words):
        return words
    tokens = sorted({offset for part in parts for offset in part.offsets})
    spans = []
    for word, after in pairwise([*read, len(words)]):
        last = word
        while last + 1 < after and _is_inside(words[last + 1][0], tokens):
            last += 1
        spans.append((words[word][0], words[last][1]))
    return spans


def _is_inside(character: int, tokens: list[tuple[int, int]]) -> bool:
    """Whether a token begins before a character and goes on there."""
    before = bisect_left(tokens, (character,)) - 1
    return before >= 0 and tokens[before][1] > character


def first_tokens(words: list[tuple[int, int]], window: Window) -> Iterator[tuple[int, int]]:
    """Yield each word with its first token in a window, and the number of that token among the text's."""
    starts: dict[int, int] = {}
    for token, (start, end) in enumerate(window.offsets):
        if end > start:
            starts.setdefault(start, token)
    for word, (start, _) in enumerate(words):
        if start in starts:
            yield word, starts[start]


def load_tagger(name: str | os.PathLike[str]) -> Tagger:
    """Load a tagger by folder or name, without torch if it is of the BERT family.

    :raises ModelNotFoundError: when the weights are neither on this machine nor on the hub.
    :raises InputError: when the model is no tagger, or is damaged.
    """
    head = load_head(name, TAGGER)
    return Tagger(head, TaggerSettings.read(head.folder, len(head.settings.labels)))
