"""Training pairs from nothing but documents: what in a document's own structure is like a query for a part of it.

Each kind is one function of a document. A query is a title, a heading, a sentence, a term or a few words; its positive
is the passage that it belongs to, as the encoder sees it, where possible without the query itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, pairwise, zip_longest
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import InputError
from ...core.sentences import plain, spans
from ...core.words import is_mark
from . import definitions, links
from .term_weights import Counts, Salience, normalised, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..data.documents import Passage, Source

    Found = tuple[str, str]  # query and positive


@dataclass(frozen=True, slots=True)
class SyntheticPair:
    query: str
    positive: str  # a passage's context
    kind: str
    document: str
    weight: float


def make(
    documents: Iterable[Source],
    *,
    seed: int = 0,
    kinds: Sequence[str] | None = None,
) -> Iterator[SyntheticPair]:
    """Pairs of every kind, document by document, in bounded memory.

    :param documents: what can be iterated over more than once, as the collection is counted before pairs are made.
    :param kinds: names of `KINDS`; all unless given.
    """
    chosen = list(KINDS if kinds is None else kinds)
    unknown = [kind for kind in chosen if kind not in KINDS]
    if unknown:
        raise InputError(f"there is no kind of pairs {unknown[0]!r}: expected some of {', '.join(KINDS)}")
    if iter(documents) is documents:
        raise InputError("the documents are read more than once: give a list, or an object that starts anew each time")
    return _made(documents, seed, chosen)


def sample(made: Iterable[SyntheticPair], most: int, seed: int) -> list[SyntheticPair]:
    """As many as wanted, each with the same chance, in one pass (Vitter 1985, algorithm R)."""
    generator = np.random.default_rng(seed)
    stream = iter(made)
    kept = list(islice(stream, most))
    for number, pair in enumerate(stream, most + 1):
        place = int(generator.integers(number))
        if place < most:
            kept[place] = pair
    return kept


def _made(documents: Iterable[Source], seed: int, kinds: list[str]) -> Iterator[SyntheticPair]:
    salience = Salience(documents)
    links_to = links.collect(documents) if "link" in kinds else {}
    seen = Counts()
    for source in documents:
        for pair in _of(source, salience, links_to.get(links.place(source.id), []), seed, kinds):
            key = normalised(pair.query)
            if not seen.of([key])[0]:
                seen.add([key])
                yield pair


def _of(
    source: Source, salience: Salience, anchors: list[tuple[str, str]], seed: int, kinds: list[str]
) -> Iterator[SyntheticPair]:
    """The good pairs of a document, its kinds in turn."""
    found = []
    for name in kinds:
        reading = Reading(source, salience, anchors, Random(f"{seed}\0{source.id}\0{name}"))  # noqa: S311
        kind = KINDS[name]
        of_kind = []
        for text, positive in kind.pairs(reading):
            query = plain(text)
            if _is_good(query, positive, salience, kind.content):
                of_kind.append(SyntheticPair(query, positive.strip(), name, source.id, kind.weight))
        reading.random.shuffle(of_kind)
        found.append(of_kind)
    for turn in zip_longest(*found):
        yield from (pair for pair in turn if pair is not None)


def _is_good(query: str, positive: str, salience: Salience, content: int) -> bool:
    if not 3 <= len(query) <= 400 or len(positive) < 40:
        return False
    letters = sum(character.isalpha() or character.isspace() or is_mark(character) for character in query)
    if letters < 0.7 * len(query) or len(salience.content(words(query))) < content:
        return False
    return not salience.is_boilerplate(query) and normalised(query) != normalised(positive)


class Reading:
    """A document while pairs are made of it."""

    def __init__(self, source: Source, salience: Salience, anchors: list[tuple[str, str]], random: Random) -> None:
        self.source = source
        self.salience = salience
        self.anchors = anchors  # text and fragment of links to it
        self.random = random

    def nearest(self, query: str, passages: Sequence[Passage]) -> Passage:
        """The passage that shares most with a query, by the words' BM25 weights; of equal ones the first."""
        asked = self.salience.content(words(query))

        def shared(passage: Passage) -> float:
            terms = self.salience.terms(passage.text)
            return sum(terms.get(word, 0.0) for word in asked)

        return max(passages, key=shared)

    def sentences(self, passage: Passage) -> list[tuple[int, int]]:
        """Spans of a passage's sentences that read like prose: 5 to 60 words, no boilerplate."""
        kept = []
        for start, end in spans(passage.text):
            sentence = passage.text[start:end]
            if 5 <= len(words(sentence)) <= 60 and not self.salience.is_boilerplate(sentence):
                kept.append((start, end))
        return kept


def _title(reading: Reading) -> Iterator[Found]:
    """The title finds the passage that has most of it; the positive goes without it."""
    source = reading.source
    if source.title and source.passages:
        yield source.title, _below(reading.nearest(source.title, source.passages), source.title)


def _section(reading: Reading) -> Iterator[Found]:
    """The path of headings below the title finds the passage of its section that has most of it."""
    title = reading.source.title
    sections: dict[tuple[str, ...], list[Passage]] = {}
    for passage in reading.source.passages:
        path = tuple(heading for heading in passage.heading if heading != title)
        if path:
            sections.setdefault(path, []).append(passage)
    for path, passages in sections.items():
        yield " ".join(path), reading.nearest(path[-1], passages).text
        if len(path) > 1 or title:
            yield path[-1], _below(reading.nearest(path[-1], passages), path[-1])


def _below(passage: Passage, heading: str) -> str:
    """A passage's context without one of its headings."""
    path = [other for other in passage.heading if other != heading]
    return f"{' > '.join(path)}\n{passage.text}" if path else passage.text


def _next(reading: Reading) -> Iterator[Found]:
    """A passage's most telling sentence finds the passage after it."""
    for passage, following in pairwise(reading.source.passages):
        if best := _most_telling(reading, passage, 1):
            start, end = best[0]
            yield passage.text[start:end], following.context


def _cloze(reading: Reading) -> Iterator[Found]:
    """Inverse cloze (Lee et al. 2019, arXiv:1906.00300): a sentence finds the passage that it was taken out of.

    Once in ten times it stays in, so that words that are the same count too.
    """
    for passage in reading.source.passages:
        sentences = reading.sentences(passage)
        for start, end in reading.random.sample(sentences, min(len(sentences), 1 + len(sentences) // 5)):
            kept = reading.random.random() < 0.1
            yield passage.text[start:end], passage.context if kept else _without(passage, start, end)


def _claim(reading: Reading) -> Iterator[Found]:
    """The two most telling sentences of a document of one passage, as an abstract is, find the rest of it."""
    if len(reading.source.passages) == 1:
        passage = reading.source.passages[0]
        if len(reading.sentences(passage)) >= 3:
            for start, end in _most_telling(reading, passage, 2):
                yield passage.text[start:end], _without(passage, start, end)


def _most_telling(reading: Reading, passage: Passage, count: int) -> list[tuple[int, int]]:
    """Sentences that say most of a passage; one near its end, where conclusions stand, counts up to half more."""
    terms = reading.salience.terms(passage.context)

    def told(span: tuple[int, int]) -> float:
        last = span[1] / len(passage.text)
        return reading.salience.centrality(passage.text[span[0] : span[1]], terms) * (1 + 0.5 * last)

    return sorted(reading.sentences(passage), key=told, reverse=True)[:count]


def _without(passage: Passage, start: int, end: int) -> str:
    """A passage's context without a stretch of its text."""
    before, after = passage.text[:start].rstrip(), passage.text[end:].lstrip()
    rest = f"{before} {after}".strip()
    return f"{' > '.join(passage.heading)}\n{rest}" if passage.heading else rest


def _definition(reading: Reading) -> Iterator[Found]:
    """What is explained finds its explanation."""
    for passage in reading.source.passages:
        sentences = [passage.text[start:end] for start, end in reading.sentences(passage)]
        for term in definitions.asked(passage.text, sentences, reading.salience):
            yield term, passage.context


def _link(reading: Reading) -> Iterator[Found]:
    """What other documents call this one finds the section that they link to, or its passage that has most of it."""
    for text, fragment in reading.anchors:
        passages = reading.source.passages
        linked = [passage for passage in passages if fragment and fragment in map(links.slug, passage.heading)]
        yield text, reading.nearest(text, linked or passages).context


def _keywords(reading: Reading) -> Iterator[Found]:
    """Two to six of a passage's telling words, in the order of the text, find it."""
    for passage in reading.source.passages:
        terms = reading.salience.terms(passage.context)
        best = sorted((word for word in terms if not word.isdecimal()), key=lambda word: -terms[word])[:12]
        if len(best) >= 2:
            chosen = reading.random.sample(best, reading.random.randint(2, min(6, len(best))))
            yield " ".join(word for word in terms if word in chosen), passage.context


def _dropped(reading: Reading) -> Iterator[Found]:
    """A sentence with words left out, those that say least first, finds its passage, in which the sentence stays."""
    for passage in reading.source.passages:
        sentences = reading.sentences(passage)
        if sentences:
            start, end = reading.random.choice(sentences)
            yield _with_words_dropped(passage.text[start:end], reading), passage.context


def _with_words_dropped(sentence: str, reading: Reading) -> str:
    written = sentence.split()
    content = set(reading.salience.content(words(sentence)))
    kept = [word for word in written if reading.random.random() < (0.75 if content.intersection(words(word)) else 0.35)]
    return " ".join(kept)


def _crop(reading: Reading) -> Iterator[Found]:
    """A stretch of 6 to 16 words of a sentence finds its passage, in which it stays (Izacard et al. 2021,
    arXiv:2112.09118): as long as a person's query is, and half the work of a whole sentence.
    """
    for passage in reading.source.passages:
        sentences = reading.sentences(passage)
        for start, end in reading.random.sample(sentences, min(len(sentences), 2)):
            written = passage.text[start:end].split()
            length = min(len(written), reading.random.randint(6, 16))
            first = reading.random.randint(0, len(written) - length)
            yield " ".join(written[first : first + length]).strip(" ,;:.()"), passage.context


@dataclass(frozen=True, slots=True)
class Kind:
    pairs: Callable[[Reading], Iterator[Found]]
    weight: float
    content: int = 2  # words of a query that say something, at least


KINDS: dict[str, Kind] = {
    "title": Kind(_title, 1.0),
    "section": Kind(_section, 1.0),
    "claim": Kind(_claim, 1.0),
    "cloze": Kind(_cloze, 1.0),
    "next": Kind(_next, 0.5),
    "definition": Kind(_definition, 0.5, content=1),
    "link": Kind(_link, 1.0),
    "keywords": Kind(_keywords, 0.5),
    "dropped": Kind(_dropped, 0.5),
    "crop": Kind(_crop, 0.5),
}
