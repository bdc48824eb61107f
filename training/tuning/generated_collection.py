"""A test collection from the documents of an index, without labels: parts of a document stand in for queries.

A query is a title, a heading or a sentence. It is taken out of its document, since its own words would find it. Such
queries compare encoders and modes of search on a user's own documents. How well people's questions are answered they
do not tell.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from ...core.errors import InputError
from ...core.sentences import plain, spans
from ...retriever.documents.document import context_of
from ..data import source_documents as corpus
from .queries import query_generation
from .queries.term_weights import normalised

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from ...retriever.store.snapshot import Snapshot
    from ..data.source_documents import Source, SourcePassage
    from .queries.query_generation import SyntheticPair

_KINDS = ("title", "section", "claim", "cloze")
_QUERIES = 400
_OF_DOCUMENT = 2  # queries at most: each takes a part out of it
_PASSAGES = 5_000  # to search, about: another encoder is then measured in a minute
_SEED = 0


def write(snapshot: Snapshot, folder: Path, *, split: str = "test") -> None:
    """Write a collection in BEIR's layout, the same one for the same documents. A document has its path as id.

    :param split: the name of the judgements.
    :raises InputError: if the documents give no query.
    """
    sample = corpus.sample(corpus.from_index(snapshot), _PASSAGES, _SEED)
    sources = [source for source in sample if source.id.isprintable()]  # a tab would divide a row of judgements
    pairs = query_generation.sample(_chosen(sources), _QUERIES, _SEED)
    if not pairs:
        raise InputError(
            f"no query could be made from the documents of {snapshot.store.path}: expected some with a title, a "
            "heading or sentences of five words and more; or give queries and qrels of your own"
        )
    queries: dict[str, set[str]] = {}
    for pair in pairs:
        queries.setdefault(pair.document, set()).add(normalised(pair.query))
    (folder / "qrels").mkdir(parents=True)
    _write_rows(folder / "corpus.jsonl", (_without(source, queries.get(source.id, ())) for source in sources))
    _write_rows(folder / "queries.jsonl", ({"_id": f"{n}", "text": pair.query} for n, pair in enumerate(pairs)))
    judgements = (f"{number}\t{pair.document}\t1\n" for number, pair in enumerate(pairs))
    (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judgements), "utf-8")


def _chosen(sources: Sequence[Source]) -> Iterator[SyntheticPair]:
    """Choose queries of each document, the kinds in balance. No other document has the same sentence or heading."""
    counts = Counter(part for source in sources for part in set(_parts(source)))
    kinds: Counter[str] = Counter()
    pairs = query_generation.make(sources, seed=_SEED, kinds=_KINDS)
    for _, of_document in groupby(pairs, key=lambda pair: pair.document):
        candidates = [pair for pair in of_document if counts[normalised(pair.query)] == 1]
        for _ in range(min(_OF_DOCUMENT, len(candidates))):
            pair = min(candidates, key=lambda candidate: kinds[candidate.kind])
            candidates.remove(pair)
            kinds[pair.kind] += 1
            yield pair


def _parts(source: Source) -> Iterator[str]:
    """Yield the title, the headings and the sentences of a document, normalised."""
    yield _key(source.title)
    for passage in source.passages:
        yield from map(_key, passage.heading)
        yield from (_key(passage.text[start:end]) for start, end in spans(passage.text))


def _key(part: str) -> str:
    return normalised(plain(part))


def _without(source: Source, queries: Collection[str]) -> dict[str, str]:
    """Return a document of the collection without its queries, each passage below its headings."""
    title = "" if _key(source.title) in queries else source.title
    texts = [_text_without(passage, source.title, queries) for passage in source.passages]
    return {"_id": source.id, "title": title, "text": "\n\n".join(texts)}


def _text_without(passage: SourcePassage, title: str, queries: Collection[str]) -> str:
    text = passage.text
    for start, end in reversed(list(spans(text))):
        if _key(text[start:end]) in queries:
            text = f"{text[:start].rstrip()} {text[end:].lstrip()}".strip()
    return context_of([part for part in passage.heading if part != title and _key(part) not in queries], text)


def _write_rows(file: Path, rows: Iterator[dict[str, str]]) -> None:
    with file.open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
