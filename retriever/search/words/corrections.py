"""Correct words that an index does not know, from its own vocabulary.

A word is corrected if no passage has it, and if the encoder does not know it either: a word that is one token of the
encoder is spelled right, and only missing in the documents. Identifiers, quoted words, numbers, names with inner
capitals and words of fewer than four letters are never corrected.

The distance counts inserted, deleted and replaced letters, and swapped neighbours (Damerau 1964, in its restricted
form). A correction has one error. It may have two if the word has eight letters or more, the same first letter, and
three tokens of the encoder or more. A word of two tokens is often a word with an ending, such as "potters", so no
letter of it is replaced. Of several corrections, the smallest distance wins, then the same first letter, then the most
frequent word.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ....core.arrays import isin_sorted
from ....core.errors import BinocleError, DamagedError
from ....core.terms import stems_by_word
from ....core.words import UNSPACED
from .text_language import foreign_language

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from ...models.encoder import Encoder
    from ...store.filters.filter import Filter
    from ...store.snapshot import Snapshot
    from .exact import ExactQuery

    Matrix = NDArray[np.uint32]

_LETTERS = range(4, 31)  # of a word that is corrected
_TWO_ERRORS = 8  # letters, at least, of a word that may have two errors
_BROKEN = 3  # tokens of the encoder, at least, in a word that is probably misspelt
_MAX_WORDS = 40  # of a query: an error in a longer text does little harm
_MAX_UNKNOWN = 3  # unknown words of a query: with more, it is on another subject or in another language
_WORD = re.compile(r"[^\W\d_]+(?:[’'][^\W\d_]+)?")
_PLAIN = re.compile(r"[^\W\d_]+")


def corrections_for(
    snapshot: Snapshot, query: ExactQuery, encoder: Callable[[], Encoder], where: Filter | None
) -> dict[str, str]:
    """Map each word of a query that the index and the encoder do not know to its correction, in order.

    :param encoder: is called only for a word that the index does not know.
    :param where: with a filter, only words of passages that pass it are corrections: no other word is revealed.
    """
    lexical = snapshot.lexical
    if lexical is None or foreign_language(query.text):
        return {}

    def known(words: list[str]) -> set[str]:
        stems = stems_by_word(words)
        distinct = list(set(chain(*stems.values())))
        frequency = dict(zip(distinct, lexical.document_frequencies(distinct), strict=True))
        return {word for word, own in stems.items() if not own or any(map(frequency.get, own))}

    def is_visible(word: str) -> bool:
        return where is None or bool(isin_sorted(lexical.whole(word), snapshot.passing(where).chunks).any())

    try:
        return correct(
            query,
            known,
            lambda word: _tokens(word, encoder),
            lambda word, prefix, errors: lexical.words(prefix, like=word, errors=errors),
            is_visible,
        )
    except DamagedError:  # of the inverted index, which is a cache
        return {}


def _tokens(word: str, encoder: Callable[[], Encoder]) -> int:
    """The number of the encoder's tokens in a word; without an encoder, as in a misspelt word."""
    with contextlib.suppress(BinocleError):
        return len(encoder().offsets([word])[0])
    return _BROKEN


def correct(
    query: ExactQuery,
    known: Callable[[list[str]], set[str]],
    tokens: Callable[[str], int],
    vocabulary: Callable[[str, str, int], Mapping[str, int]],
    is_visible: Callable[[str], bool] = lambda _: True,
) -> dict[str, str]:
    """Map each unknown word of a query to its correction, in order.

    :param known: gives the words that the index knows among some words.
    :param tokens: gives the number of the encoder's tokens in a word.
    :param vocabulary: reads the words within a number of errors of a word that have a prefix, in lower case, with the
        number of passages that hold each. Most typing errors keep the first letter, so all words are read only if none
        of these is near.
    :param is_visible: whether a word may be a correction.
    """
    words = candidates(query)
    known_words = known(words)
    counts = {word: tokens(word) for word in words if word not in known_words}
    unknown = [word for word, count in counts.items() if count > 1]
    if len(unknown) > _MAX_UNKNOWN:
        return {}
    corrections = {}
    for word in unknown:
        lower, broken = word.lower(), counts[word] >= _BROKEN
        for prefix, errors in ((lower[0], 2 if broken and len(word) >= _TWO_ERRORS else 1), ("", 1)):
            near = vocabulary(lower, prefix, errors)
            correction = nearest(lower, near, errors, is_visible, replaced=broken)
            if correction is not None:
                corrections[word] = correction
                break
    return corrections


def candidates(query: ExactQuery) -> list[str]:
    """The different words of a query that may be corrected: outside of quotes, and not part of an identifier."""
    identifiers = [literal for literal in (*query.tokens, *query.names) if not _is_ordinary(literal)]
    literals = [*query.required, *identifiers]
    protected = {word.lower() for literal in literals for word in _PLAIN.findall(literal)}
    words = [piece.strip("([{<'`‘*,;)]}>’:.!?\"“”") for piece in query.text.split()]
    if len(words) > _MAX_WORDS:
        return []
    return [
        word
        for word in dict.fromkeys(words)
        if _is_ordinary(word) and len(word) in _LETTERS and not UNSPACED.search(word) and word.lower() not in protected
    ]


def _is_ordinary(word: str) -> bool:
    """Whether a word is of letters alone, with no capitals inside; a query of one word is a name to `exact` too."""
    return _PLAIN.fullmatch(word) is not None and word[1:].islower()


def replace_words(text: str, corrections: Mapping[str, str]) -> str:
    """Put the corrections into a text."""
    return _WORD.sub(lambda match: corrections.get(match[0], match[0]), text)


def nearest(
    word: str,
    vocabulary: Mapping[str, int],
    errors: int,
    is_visible: Callable[[str], bool] = lambda _: True,
    *,
    replaced: bool = True,
) -> str | None:
    """The word of a vocabulary that was probably meant; None if no word is near enough.

    :param vocabulary: word -> frequency.
    :param errors: the greatest distance.
    :param is_visible: whether a word may be returned.
    :param replaced: whether it may differ by a replaced letter alone.
    """
    lengths = range(len(word) - errors, len(word) + errors + 1)
    alike = _sharing_letters(word, [candidate for candidate in vocabulary if len(candidate) in lengths], errors)
    if not alike:
        return None
    distances = edit_distances(word, alike)
    keys = [
        (distance, candidate[0] != word[0], -vocabulary[candidate], candidate)
        for candidate, distance in zip(alike, distances.tolist(), strict=True)
        if distance <= errors and _PLAIN.fullmatch(candidate) and (replaced or not _is_replaced(word, candidate))
    ]
    return next((candidate for *_, candidate in sorted(keys) if is_visible(candidate)), None)


def _is_replaced(word: str, candidate: str) -> bool:
    """Whether two words have the same length and not the same letters."""
    return len(word) == len(candidate) and sorted(word) != sorted(candidate)


def _sharing_letters(word: str, words: list[str], limit: int) -> list[str]:
    """The words that differ from a word in at most `limit` letters, wherever these stand."""
    matrix, lengths = _letters(words)
    shared = np.zeros(len(words), np.int64)
    for letter, count in Counter(word).items():
        shared += np.minimum(np.count_nonzero(matrix == ord(letter), axis=1), count)
    rows = np.flatnonzero(shared >= np.maximum(lengths, len(word)) - limit)
    return [words[row] for row in rows.tolist()]


def edit_distances(word: str, words: Iterable[str]) -> NDArray[np.int16]:
    """The edit distance of a word to each of others, shape (n,); neighbours that change places count once."""
    words = list(words)
    matrix, lengths = _letters(words)
    width = matrix.shape[1]
    before = above = np.tile(np.arange(width + 1, dtype=np.int16), (len(words), 1))
    for row, letter in enumerate(word, 1):
        current = np.empty_like(above)
        current[:, 0] = row
        same = matrix == ord(letter)
        for column in range(1, width + 1):
            best = np.minimum(above[:, column], current[:, column - 1]) + 1
            best = np.minimum(best, above[:, column - 1] + ~same[:, column - 1])
            if row > 1 and column > 1:
                swapped = same[:, column - 2] & (matrix[:, column - 1] == ord(word[row - 2]))
                best = np.where(swapped, np.minimum(best, before[:, column - 2] + 1), best)
            current[:, column] = best
        before, above = above, current
    distances: NDArray[np.int16] = above[np.arange(len(words)), lengths]
    return distances


def _letters(words: list[str]) -> tuple[Matrix, NDArray[np.int64]]:
    """The letters of words as numbers, shape (n, longest), filled up with 0, and the length of each word."""
    array = np.array(words, dtype=np.str_)
    width = array.dtype.itemsize // 4
    return array.view(np.uint32).reshape(len(words), width), np.char.str_len(array).astype(np.int64)
