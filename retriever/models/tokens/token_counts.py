"""Count the tokens of texts by their words. Most words are tokenized once in a process.

Most tokenizers cut texts at white space first, so that the tokens of a text are those of its words. The samples of
`token_boundaries` show if a tokenizer does so. Other tokenizers get whole texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .token_boundaries import SAMPLES

if TYPE_CHECKING:
    from ..encoder import Encoder

_MAX_WORDS, _MAX_LENGTH = 50_000, 40  # words that are kept, and their characters

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

    def __call__(self, text: str) -> int:
        """Return the number of tokens of a text."""
        if self._known is None:
            return _count(self._encoder, [text])[0]
        words = text.split()
        new = [word for word in dict.fromkeys(words) if word not in self._known]
        counts = dict(zip(new, _count(self._encoder, new), strict=True)) if new else {}
        if counts and len(self._known) < _MAX_WORDS:
            self._known.update((word, count) for word, count in counts.items() if len(word) <= _MAX_LENGTH)
        return sum(counts[word] if word in counts else self._known[word] for word in words)


def _adds_up(encoder: Encoder) -> bool:
    """Whether the tokens of texts are those of their words."""
    words = [sum(_count(encoder, text.split())) for text in SAMPLES]
    return words == _count(encoder, SAMPLES)


def _count(encoder: Encoder, texts: tuple[str, ...] | list[str]) -> list[int]:
    return list(map(len, encoder.offsets(texts)))
