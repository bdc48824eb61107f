"""Training pairs from documents alone: a part of a document's own structure stands in for a query.

The query is a title, a heading, a sentence, a term or a few words; its positive is the passage that it belongs to, as
the encoder sees it, without the query itself where possible. `query_kinds` has one function for each kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, zip_longest
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import InputError
from ....core.sentences import plain
from ....core.words import is_mark
from ...mining.bm25 import split_terms
from . import links
from .query_kinds import KINDS, DocumentContext
from .term_weights import CountSketch, TermWeights, normalised

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...data.source_documents import Source


@dataclass(frozen=True, slots=True)
class SyntheticPair:
    """A query made from a document, and the passage that answers it."""

    query: str
    positive: str  # a passage's context
    kind: str
    document: str
    weight: float


class HeadingCounts:
    """How many documents have each title, heading or text of a link to them.

    :param documents: all that a query is asked of; read twice.
    """

    def __init__(self, documents: Iterable[Source]) -> None:
        self._documents = CountSketch()
        anchors = links.collect(documents)
        for source in documents:
            texts = {source.title, *(text for text, _ in anchors.get(links.page(source.id), []))}
            for passage in source.passages:
                path = [heading for heading in passage.heading if heading != source.title]
                texts |= {*path, " ".join(path)}
            self._documents.add({normalised(plain(text)) for text in texts})

    def is_shared(self, query: str) -> bool:
        """Check whether several documents have a query as a heading, so that it asks for no one of them."""
        return bool(self._documents.of([normalised(query)])[0] > 1)


def make(
    documents: Iterable[Source],
    *,
    seed: int = 0,
    kinds: Sequence[str] | None = None,
) -> Iterator[SyntheticPair]:
    """Make pairs, document by document, in bounded memory.

    :param documents: read twice, since the words of the collection are counted first.
    :param kinds: names in `KINDS`; all by default.
    """
    names = list(KINDS if kinds is None else kinds)
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise InputError(f"there is no kind of pairs {unknown[0]!r}: expected some of {', '.join(KINDS)}")
    if iter(documents) is documents:
        raise InputError("the documents are read more than once: give a list, or an object that starts anew each time")
    return _pairs(documents, seed, names)


def sample(pairs: Iterable[SyntheticPair], maximum: int, seed: int) -> list[SyntheticPair]:
    """Draw at most `maximum` pairs, each with the same probability, in one pass (Vitter 1985, algorithm R)."""
    generator = np.random.default_rng(seed)
    stream = iter(pairs)
    drawn = list(islice(stream, maximum))
    for number, pair in enumerate(stream, maximum + 1):
        position = int(generator.integers(number))
        if position < maximum:
            drawn[position] = pair
    return drawn


def _pairs(documents: Iterable[Source], seed: int, kinds: list[str]) -> Iterator[SyntheticPair]:
    """Yield the pairs with new queries."""
    weights = TermWeights.of(documents)
    links_to = links.collect(documents) if "link" in kinds else {}
    earlier = CountSketch()
    for source in documents:
        for pair in _document_pairs(source, weights, links_to.get(links.page(source.id), []), seed, kinds):
            key = normalised(pair.query)
            if not earlier.of([key])[0]:
                earlier.add([key])
                yield pair


def _document_pairs(
    source: Source, weights: TermWeights, anchors: list[tuple[str, str]], seed: int, kinds: list[str]
) -> Iterator[SyntheticPair]:
    """Yield the good pairs of a document, one of each kind in turn."""
    by_kind = []
    context = DocumentContext(source, weights, anchors, Random(0))  # noqa: S311
    for name in kinds:
        context.random = Random(f"{seed}\0{source.id}\0{name}")  # noqa: S311
        kind = KINDS[name]
        pairs = []
        for text, positive in kind.pairs(context):
            query = plain(text)
            if _is_good(query, positive, weights, kind.content):
                pairs.append(SyntheticPair(query, positive.strip(), name, source.id, kind.weight))
        context.random.shuffle(pairs)
        by_kind.append(pairs)
    for turn in zip_longest(*by_kind):
        yield from (pair for pair in turn if pair is not None)


def _is_good(query: str, positive: str, weights: TermWeights, content: int) -> bool:
    """Check length, letters and content words of a query, and that it is no boilerplate.

    :param content: minimum of content words.
    """
    if not 3 <= len(query) <= 400 or len(positive) < 40:
        return False
    letters = sum(character.isalpha() or character.isspace() or is_mark(character) for character in query)
    if letters < 0.7 * len(query) or len(weights.content(split_terms(query))) < content:
        return False
    return not weights.is_boilerplate(query) and normalised(query) != normalised(positive)
