"""One word in several texts: its vectors in a layer, how similar they are, and where they lie in a plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...core.errors import InputError
from ...core.words import composed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats
    from .token_states import TokenStates


class WordContexts(NamedTuple):
    """The occurrences of a word, with its neighbours in the text, and the vector of each, shape (occurrences, dim)."""

    labels: list[str]
    vectors: Floats

    def cosines(self) -> Floats:
        """Return the cosine of each pair of occurrences, shape (occurrences, occurrences)."""
        units = self.vectors / np.maximum(np.linalg.norm(self.vectors, axis=1, keepdims=True), 1e-12)
        cosines: Floats = units @ units.T
        return cosines

    def plane(self) -> Floats:
        """Return the coordinates on the two axes of the greatest variance, shape (occurrences, 2)."""
        centred = self.vectors - self.vectors.mean(0)
        left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
        plane = np.zeros((len(centred), 2), np.float32)
        plane[:, : min(2, len(sizes))] = (left * sizes)[:, :2]
        return plane


def word_contexts(texts: Sequence[TokenStates], word: str, layer: int = -1) -> WordContexts:
    """Return every occurrence of a word; the vector of several pieces is their mean.

    :param layer: 0 for the embeddings, -1 for the last layer.
    :raises InputError: when a text does not have the word.
    """
    layers = len(texts[0].states) - 1
    if not -1 <= layer <= layers:
        raise InputError(f"there is no layer {layer}: the model has {layers}, and 0 for its embeddings")
    labels: list[str] = []
    vectors: list[Floats] = []
    for text_number, text in enumerate(texts, 1):
        words = text.words()
        matches = [number for number, (name, _) in enumerate(words) if _folded(name) == _folded(word)]
        if not matches:
            read = f" among the {len(text.ids):,} tokens that the encoder reads of it" * text.truncated
            raise InputError(f"text {text_number} does not have the word {word!r}{read}: {text.texts[0][:80]!r}")
        for match in matches:
            nearby = [name for name, _ in words[max(0, match - _NEIGHBOURS) : match + _NEIGHBOURS + 1]]
            labels.append(f"{text_number} {' '.join(nearby)}")
            vectors.append(text.states[layer][words[match][1]].mean(0))
    return WordContexts(labels, np.stack(vectors))


def _folded(word: str) -> str:
    return composed(word).casefold()


_NEIGHBOURS = 2  # words on each side, in a label
