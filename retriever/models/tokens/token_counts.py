"""Count the tokens of texts by their words. Most words are tokenized once in a process.

Most tokenizers cut texts at white space first, so that the tokens of a text are those of its words. The samples of
`token_boundaries` show if a tokenizer does so. Other tokenizers get whole texts. BERT's own is known to do so: its
counts are exact for nearly all characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from .token_boundaries import SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..encoder import Encoder

_MAX_WORDS, _MAX_LENGTH = 50_000, 40  # words that are kept, and their characters

_REMOVED = re.compile("[\x0b\x0c\x1c-\x1f\x85]")  # white space for Python; BERT's tokenizer joins the words around it

_WORDS: dict[
    str, dict[str, int] | None
] = {}  # fingerprint of an encoder -> word -> tokens; None if words do not add up


class TokenCounter:
    """Counts the tokens of texts as an encoder does. Texts with unusual characters may differ by a few."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        if encoder.fingerprint not in _WORDS:
            _WORDS[encoder.fingerprint] = {} if _adds_up(encoder) else None
        self._known = _WORDS[encoder.fingerprint]
        self._is_exact = self._known is not None and getattr(encoder, "splits_at_white_space", False)

    def learn(self, texts: Iterable[str]) -> None:
        """Tokenize the words of texts that will be counted, at once."""
        if self._known is not None:
            self._tokenize(self._known, " ".join(texts).split())

    def __call__(self, text: str) -> int:
        """Return the number of tokens of a text."""
        if self._known is None:
            return _count(self._encoder, [text])[0]
        words = text.split()
        try:
            return sum(map(self._known.__getitem__, words))
        except KeyError:
            counts = self._tokenize(self._known, words)
            return sum(counts[word] if word in counts else self._known[word] for word in words)

    def exact(self, text: str) -> int:
        """Return the number of tokens of a text with any characters."""
        if self._is_exact and not _REMOVED.search(text):
            return self(text)
        return _count(self._encoder, [text])[0]

    def _tokenize(self, known: dict[str, int], words: Iterable[str]) -> dict[str, int]:
        """Count the tokens of the words that are not known, and keep most of them."""
        new = [word for word in dict.fromkeys(words) if word not in known]
        counts = dict(zip(new, _count_words(self._encoder, new), strict=True)) if new else {}
        if len(known) < _MAX_WORDS:
            known.update((word, count) for word, count in counts.items() if len(word) <= _MAX_LENGTH)
        return counts


def _adds_up(encoder: Encoder) -> bool:
    """Whether the tokens of texts are those of their words."""
    words = [sum(_count(encoder, text.split())) for text in SAMPLES]
    return words == _count(encoder, SAMPLES) == [sum(_count_words(encoder, text.split())) for text in SAMPLES]


def _count_words(encoder: Encoder, words: Sequence[str]) -> list[int]:
    """Count the tokens of each word. They are tokenized as one text, which is several times as fast."""
    limits = np.cumsum([len(word) + 1 for word in words])  # each word has a space after it
    ends = [end for _, end in encoder.offsets([" ".join(words)])[0]]
    counts: list[int] = np.bincount(np.searchsorted(limits, ends), minlength=len(words)).tolist()
    return counts


def _count(encoder: Encoder, texts: tuple[str, ...] | list[str]) -> list[int]:
    return list(map(len, encoder.offsets(texts)))
