"""Analyse text for full-text search: tokens, and their terms in two fields.

A token is a run of letters, digits, marks and underscores. Its *stems* find a passage by ordinary words: the parts
between underscores without case and accents, stemmed (English Snowball), without stop words. Its *whole* form is the
token itself in lower case, for identifiers, codes and numbers.

Chinese, Japanese, Thai and others write no spaces between words. There, every character and every pair of neighbours
is a term, as in Lucene's analysis of CJK. A query has the pairs alone, if it has any.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .words import UNSPACED, UNSPACED_RANGES, folded, split_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VERSION = 1  # grows when the same text gets other terms: an index of another version is built anew

_LONGEST_STEM = 40  # characters of a part: longer ones are data, not words
_LONGEST_WHOLE = 200

# Lance's own stop words for English include all its languages: c, os, dir, care and multi would be lost.
_TEXT_OF_STOP_WORDS = (
    "a about after again against all also am an and are as at be been below between both but by can did do down each "
    "few for from further had has have he her him himself his how i if in into is it itself its just me more most my "
    "myself now of off on or other our ours out over own same she should so some such than that the their them then "
    "there these they this those through to too under until up was we were what when where which while who whom will "
    "with you your yourself"
)
STOP_WORDS = tuple(_TEXT_OF_STOP_WORDS.split())
_IS_STOP_WORD = frozenset(STOP_WORDS).__contains__
_ASCII_TOKEN = re.compile(r"\w+", re.ASCII)
_RUN = re.compile(f"[{UNSPACED_RANGES}]+|[^{UNSPACED_RANGES}]+")
_FIRST_UNSPACED = "\u0e00"  # no character before it belongs to a script without spaces
_LIGATURES = str.maketrans({"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i"})


def tokens(text: str) -> list[str]:
    """Return the tokens of a text, unchanged and in order."""
    return _ASCII_TOKEN.findall(text) if text.isascii() else split_words(text)


def query_stems(text: str) -> list[str]:
    """Return the stems of a query, in order and with repetitions."""
    return [stem for token in tokens(text) for stem in stems(token, query=True)]


def stems_by_word(words: Iterable[str]) -> dict[str, list[str]]:
    """Map each word of a query to its stems."""
    return {word: query_stems(word) for word in words}


def query_whole(text: str) -> list[str]:
    """Return the whole tokens of a query, in order and with repetitions."""
    return [term for token in tokens(text) for term in whole(token, query=True)]


def stems(token: str, *, query: bool = False) -> list[str]:
    """Return the stems of a token."""
    if token.isascii():
        parts: list[str] = token.lower().split("_")
        terms = []
    else:
        terms = [term for run in _unspaced_runs(token) for term in _grams(run, query=query)]
        parts = [part for run in _spaced_runs(token) for part in folded(run).translate(_LIGATURES).split("_")]
    stemmed = (_stem(part) for part in parts if 0 < len(part) <= _LONGEST_STEM)
    return [*terms, *(stem for stem in stemmed if not _IS_STOP_WORD(stem))]


def whole(token: str, *, query: bool = False) -> list[str]:
    """Return the token in lower case, in a list; several terms if it has characters of a script without spaces."""
    if token.isascii():
        return [token.lower()] if len(token) <= _LONGEST_WHOLE else []
    terms = [term for run in _unspaced_runs(token) for term in _grams(run, query=query)]
    return [*terms, *(run.lower() for run in _spaced_runs(token) if len(run) <= _LONGEST_WHOLE)]


def _unspaced_runs(token: str) -> Iterator[str]:
    return (run for run in _runs(token) if _is_unspaced(run))


def _spaced_runs(token: str) -> Iterator[str]:
    return (run for run in _runs(token) if not _is_unspaced(run))


def _runs(token: str) -> list[str]:
    """Cut a token where a script without spaces begins or ends."""
    composed = unicodedata.normalize("NFKC", token)
    return _RUN.findall(composed) if max(composed) >= _FIRST_UNSPACED else [composed]


def _is_unspaced(run: str) -> bool:
    return run[0] >= _FIRST_UNSPACED and UNSPACED.match(run) is not None


def _grams(run: str, *, query: bool) -> list[str]:
    pairs = [run[start : start + 2] for start in range(len(run) - 1)]
    return pairs if query and pairs else [*run, *pairs]


def _stem(word: str) -> str:
    with _LOCK:
        stemmed: str = _stemmer().stemWord(word)
    return stemmed


_LOCK = threading.Lock()  # a stemmer works in a buffer of its own


@lru_cache(1)
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english", 0)  # without its cache: a vocabulary has each word once
