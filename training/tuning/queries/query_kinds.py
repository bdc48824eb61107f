"""The kinds of queries that can be made from a document: one function each, and the table of all."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ....core.sentences import spans
from ...mining.bm25 import split_terms
from . import definitions, links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from ...data.source_documents import Source, SourcePassage
    from .term_weights import TermWeights

    Pair = tuple[str, str]  # query and positive


class DocumentContext:
    """A document, the weights of its collection, the links to it and a random generator of its own."""

    def __init__(self, source: Source, weights: TermWeights, anchors: list[tuple[str, str]], random: Random) -> None:
        self.source = source
        self.weights = weights
        self.anchors = anchors  # text and fragment of the links to it
        self.random = random  # another for each kind of queries, so that no kind changes the queries of another
        self._sentences: dict[SourcePassage, list[tuple[int, int]]] = {}

    def nearest(self, query: str, passages: Sequence[SourcePassage]) -> SourcePassage:
        """Return the passage that shares most with a query, by the BM25 weights of words; the first among equals."""
        content = self.weights.content(split_terms(query))

        def shared(passage: SourcePassage) -> float:
            terms = self.weights.terms(passage.text)
            return sum(terms.get(word, 0.0) for word in content)

        return max(passages, key=shared)

    def sentences(self, passage: SourcePassage) -> list[tuple[int, int]]:
        """Return the spans of sentences that read like prose: 5 to 60 words, no boilerplate."""
        if passage not in self._sentences:
            sentences = [(passage.text[start:end], (start, end)) for start, end in spans(passage.text)]
            self._sentences[passage] = [span for sentence, span in sentences if self._is_prose(sentence)]
        return self._sentences[passage]

    def _is_prose(self, sentence: str) -> bool:
        return 5 <= len(split_terms(sentence)) <= 60 and not self.weights.is_boilerplate(sentence)


def _title(context: DocumentContext) -> Iterator[Pair]:
    """The title, for the passage that has most of its words; without the title among its headings."""
    source = context.source
    if source.title and source.passages:
        yield source.title, _below(context.nearest(source.title, source.passages), source.title)


def _section(context: DocumentContext) -> Iterator[Pair]:
    """The path of headings below the title, for the passage of the section that has most of its words."""
    title = context.source.title
    sections: dict[tuple[str, ...], list[SourcePassage]] = {}
    for passage in context.source.passages:
        path = tuple(heading for heading in passage.heading if heading != title)
        if path:
            sections.setdefault(path, []).append(passage)
    for path, passages in sections.items():
        yield " ".join(path), context.nearest(path[-1], passages).text
        if len(path) > 1 or title:
            yield path[-1], _below(context.nearest(path[-1], passages), path[-1])


def _below(passage: SourcePassage, heading: str) -> str:
    """Return a passage's context without one of its headings."""
    path = [part for part in passage.heading if part != heading]
    return f"{' > '.join(path)}\n{passage.text}" if path else passage.text


def _cloze(context: DocumentContext) -> Iterator[Pair]:
    """Inverse cloze (Lee et al. 2019, arXiv:1906.00300): a sentence, for the rest of its passage.

    One time in ten the sentence stays, so that the encoder learns equal words too.
    """
    for passage in context.source.passages:
        sentences = context.sentences(passage)
        for start, end in context.random.sample(sentences, min(len(sentences), 1 + len(sentences) // 5)):
            stays = context.random.random() < 0.1
            yield passage.text[start:end], passage.context if stays else _without(passage, start, end)


def _claim(context: DocumentContext) -> Iterator[Pair]:
    """The two most central sentences of a document of one passage, such as an abstract, for the rest of it."""
    if len(context.source.passages) == 1:
        passage = context.source.passages[0]
        if len(context.sentences(passage)) >= 3:
            for start, end in _most_central(context, passage, 2):
                yield passage.text[start:end], _without(passage, start, end)


def _most_central(context: DocumentContext, passage: SourcePassage, count: int) -> list[tuple[int, int]]:
    """Return the most central sentences. One near the end, where conclusions stand, counts up to half more."""
    terms = context.weights.terms(passage.context)

    def score(span: tuple[int, int]) -> float:
        position = span[1] / len(passage.text)
        return context.weights.centrality(passage.text[span[0] : span[1]], terms) * (1 + 0.5 * position)

    return sorted(context.sentences(passage), key=score, reverse=True)[:count]


def _without(passage: SourcePassage, start: int, end: int) -> str:
    """Return a passage's context without a span of its text."""
    before, after = passage.text[:start].rstrip(), passage.text[end:].lstrip()
    rest = f"{before} {after}".strip()
    return f"{' > '.join(passage.heading)}\n{rest}" if passage.heading else rest


def _definition(context: DocumentContext) -> Iterator[Pair]:
    """A term or a question, for the passage that explains it."""
    for passage in context.source.passages:
        sentences = [passage.text[start:end] for start, end in context.sentences(passage)]
        for term in definitions.questions(passage.text, sentences, context.weights):
            yield term, passage.context


def _keywords(context: DocumentContext) -> Iterator[Pair]:
    """Two to six of the best content words of a passage, in the order of the text."""
    for passage in context.source.passages:
        terms = context.weights.terms(passage.context)
        best = sorted((word for word in terms if not word.isdecimal()), key=lambda word: -terms[word])[:12]
        if len(best) >= 2:
            keywords = context.random.sample(best, context.random.randint(2, min(6, len(best))))
            yield " ".join(word for word in terms if word in keywords), passage.context


def _dropped(context: DocumentContext) -> Iterator[Pair]:
    """A sentence with words dropped, common words first, for its passage; the whole sentence stays in it."""
    for passage in context.source.passages:
        sentences = context.sentences(passage)
        if sentences:
            start, end = context.random.choice(sentences)
            yield _with_words_dropped(passage.text[start:end], context), passage.context


def _with_words_dropped(sentence: str, context: DocumentContext) -> str:
    parts = sentence.split()
    content = set(context.weights.content(split_terms(sentence)))
    shares = [0.75 if content.intersection(split_terms(part)) else 0.35 for part in parts]  # of the words that stay
    return " ".join(part for part, share in zip(parts, shares, strict=True) if context.random.random() < share)


# Kinds that `tune` uses only if `TuningConfig.kinds` names them


def _next(context: DocumentContext) -> Iterator[Pair]:
    """The most central sentence of a passage, for the passage after it."""
    for passage, following in pairwise(context.source.passages):
        if best := _most_central(context, passage, 1):
            start, end = best[0]
            yield passage.text[start:end], following.context


def _link(context: DocumentContext) -> Iterator[Pair]:
    """The text of a link from another document, for the linked section, or the passage that has most of its words."""
    for text, fragment in context.anchors:
        passages = context.source.passages
        linked = [passage for passage in passages if fragment and fragment in map(links.slug, passage.heading)]
        yield text, context.nearest(text, linked or passages).context


def _crop(context: DocumentContext) -> Iterator[Pair]:
    """Six to 16 consecutive words of a sentence, for its passage, which keeps them.

    A crop (Izacard et al. 2021, arXiv:2112.09118) has the length of a person's query, and takes half the work.
    """
    for passage in context.source.passages:
        sentences = context.sentences(passage)
        for start, end in context.random.sample(sentences, min(len(sentences), 2)):
            parts = passage.text[start:end].split()
            length = min(len(parts), context.random.randint(6, 16))
            first = context.random.randint(0, len(parts) - length)
            yield " ".join(parts[first : first + length]).strip(" ,;:.()"), passage.context


@dataclass(frozen=True, slots=True)
class Kind:
    """A function that makes pairs, and their weight."""

    pairs: Callable[[DocumentContext], Iterator[Pair]]
    weight: float  # relative frequency of this kind among the queries of `tune`
    content: int = 2  # minimum of content words in a query
    default: bool = True  # `tune` uses it unless told otherwise


KINDS: dict[str, Kind] = {
    "title": Kind(_title, 1.0),
    "section": Kind(_section, 1.0),
    "claim": Kind(_claim, 1.0),
    "cloze": Kind(_cloze, 1.0),
    "next": Kind(_next, 0.5, default=False),
    "definition": Kind(_definition, 0.5, content=1),
    "link": Kind(_link, 1.0),
    "keywords": Kind(_keywords, 0.5),
    "dropped": Kind(_dropped, 0.5),
    "crop": Kind(_crop, 0.5, default=False),
}
DEFAULT_KINDS = tuple(name for name, kind in KINDS.items() if kind.default)
