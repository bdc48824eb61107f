"""The words of a text as a row of numbers, for a probe: an encoder's vector does not keep every word.

A word weighs 1 + log(its count), times the logarithm of its rarity (Spärck Jones 1972). Each row has length 1.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import InputError
from ....core.files import open_regular
from ....core.words import encodable, words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ....core.arrays import Floats

_MAX_WORDS = 8_000
_MAX_BYTES = 64_000_000  # of the file of words
_MIN_ROWS = 2  # rows that a word is in


@dataclass(frozen=True, slots=True)
class BagOfWords:
    """A vocabulary with the rarity of each word."""

    columns: dict[str, int]  # of the words
    rarity: Floats  # (words,)

    @classmethod
    def of(cls, texts: Sequence[str]) -> BagOfWords:
        """Take the 8,000 words that are in the most texts, each in two at least."""
        counts = Counter(word for text in texts for word in set(words(text)))
        common = [(word, count) for word, count in counts.items() if count >= _MIN_ROWS]
        vocabulary = sorted(common, key=lambda pair: (-pair[1], pair[0]))[:_MAX_WORDS]
        rarity = [np.log((1 + len(texts)) / (1 + count)) + 1 for _, count in vocabulary]
        return cls({word: column for column, (word, _) in enumerate(vocabulary)}, np.array(rarity, np.float32))

    @classmethod
    def read(cls, file: Path, rarity: Floats) -> BagOfWords:
        """Read the words of a file.

        :raises InputError: when they do not fit, or there is no such file.
        """
        try:
            with open_regular(file) as stream:
                names = json.loads(stream.read(_MAX_BYTES).decode("utf-8"))
        except (OSError, ValueError, RecursionError):
            names = None
        is_whole = isinstance(names, list) and all(isinstance(name, str) and encodable(name) == name for name in names)
        if not is_whole or rarity.shape != (len(names),) or not len(set(names)) == len(names) <= _MAX_WORDS:
            raise InputError(f"{file} has other words than the probe: copy the folder again")
        return cls({word: column for column, word in enumerate(names)}, rarity)

    def write(self, file: Path) -> None:
        """Write the words in the order of their columns."""
        file.write_text(json.dumps([*self.columns], ensure_ascii=False), "utf-8")

    def rows(self, texts: Sequence[str]) -> Floats:
        """Return shape (texts, words); a text without known words has a row of zeros."""
        rows = np.zeros((len(texts), len(self.columns)), np.float32)
        for row, text in zip(rows, texts, strict=True):
            counts = Counter(self.columns[word] for word in words(text) if word in self.columns)
            if counts:
                row[list(counts)] = 1 + np.log(list(counts.values()))
        rows *= self.rarity
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
        return rows
