"""Searches of an index: hits, answers, similar passages, contexts, and whether a passage is still current."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from numpy.typing import ArrayLike

from .models.reranker import Reranker
from .search import arguments
from .search.deadline import Deadline
from .search.events import SearchEvent
from .search.mode import Mode
from .search.ranking.relevance import is_small
from .search.request import SearchRequest, hits_of_many
from .search.results.currency import Currency, check_cited, check_passage
from .search.results.hit import Hit
from .search.results.hits import Hits
from .search.results.passage import Passage
from .search.search_options import HitOptions, SearchOptions
from .store.filters.where import Where, among, parse

if TYPE_CHECKING:
    from .models.heads.reader import Reader
    from .open_index import OpenIndex
    from .search.answers import Answer
    from .search.context import Context, Order
    from .store.snapshot import Snapshot

Rerank = str | os.PathLike[str] | Reranker | None


class Searches:
    """The calls that find passages in an index."""

    _index: OpenIndex
    on_search: Callable[[SearchEvent], None] | None = None  # called after each search that succeeds

    def search(
        self,
        query: str | None = None,
        k: int = 10,
        *,
        vector: ArrayLike | None = None,
        mode: Mode = "hybrid",
        where: Where = None,
        ids: Iterable[str | os.PathLike[str]] | None = None,
        offset: int = 0,
        rerank: Rerank = None,
        rerank_depth: int = 50,
        rerank_seconds: float | None = None,
        per_document: int | None = None,
        collapse: bool = True,
        join: bool = False,
        min_relevance: float | None = None,
        with_vectors: bool = False,
        group_by: arguments.GroupBy = "passage",
        mmr: float | None = None,
        deadline: float | None = None,
    ) -> Hits:
        """Return the k best passages, best first.

        `answerable` of the list says whether the index answers the query; a hit that does not answer it is `weak`. The
        nearest passages are in the list even if all are weak: leave out hits with `weak=True`, or pass `min_relevance`.

        Copies of a passage, even with a word or two changed, give one hit: the best, with the others in its `copies`.

        A reranker reads the `rerank_depth` best passages, or as many of them as it has time for. They come first, and
        the other passages follow in their old order. The reranker alone orders the passages that it read, unless its
        folder has a `binocle.json` with a weight, such as {"first_stage_weight": 0.3}. Then their score is the mean,
        with this weight, of the standard scores of both stages.

        Passages with an identifier of the query come first, definitions before uses. Words in double quotes and +word
        are in every hit, -word at the end of the query is in none: see `search.words.exact`.

        :param query: the text; None with a `vector`, which then searches by meaning alone.
        :param k: the number of passages. With 0 the list is empty, and its `total` still counts the searched passages.
        :param vector: the vector of the query, shape (dim,), by the index's encoder. The words are those of `query`.
        :param mode: "hybrid" (words and meaning), "semantic" or "lexical". An index without an encoder searches a text
            without a vector by words.
        :param where: a filter such as `F.author == "Ada"`, `"type=pdf and modified>=2026-01-01"` or
            `{"author": "Ada"}`: see `retriever.store.filters`.
        :param ids: only passages of these documents.
        :param offset: the number of best hits to leave out, for the next page. Ranks go on where the page before ended.
            It also counts hits that `min_relevance` leaves out: add k for the next page, even if fewer were returned.
        :param rerank: a cross-encoder: a `Reranker`, or a folder or name to load one from and keep in memory.
        :param rerank_seconds: rerank for about this long, the best passages first. Loading and compiling the model,
            once in a process, do not count.
        :param per_document: the number of passages of a document at most; 0 for no limit. By default, the passages of a
            document from the fourth on give way to slightly worse passages of other documents.
        :param collapse: False gives every passage, for measurements: copies too, and any number of a document.
        :param join: join neighbouring passages among the k best into one hit, with the scores of its best passage and
            all of them in `parts`. There may then be fewer hits than k. The ranks of parts count passages.
        :param min_relevance: leave out passages of less `relevance`, from 0 to 1. Below 0.5, or the line that
            the index measured, a hit is `weak`.
        :param with_vectors: give each hit the stored `vector` of its passage.
        :param group_by: "document" gives the best passage of each of the k best documents.
        :param mmr: choose hits that differ: the weight of relevance against novelty, from 0 to 1. The first hit is
            the best one, and the others are no longer in the order of their scores. See `search.results.diversity`.
        :param deadline: the seconds from now for the search, loading models included. The reranker reads as many
            passages as time allows. A stage that has begun is not interrupted, so the answer may come a little later.
        :raises NoIndexError: when there is no index yet.
        :raises EncoderMismatchError: when the index was built with another encoder.
        :raises DeadlineError: when the time is over before words and meaning were searched.
        """
        request = arguments.search_request(
            self._index.models,
            query,
            k,
            vector=vector,
            mode=mode,
            where=where,
            ids=ids,
            offset=offset,
            rerank=rerank,
            rerank_depth=rerank_depth,
            rerank_seconds=rerank_seconds,
            per_document=per_document,
            collapse=collapse,
            join=join,
            min_relevance=min_relevance,
            with_vectors=with_vectors,
            group_by=group_by,
            mmr=mmr,
            deadline=Deadline.after(deadline),
        )
        start = time.perf_counter()
        hits = self._index.read(lambda snapshot: request.hits(snapshot, self._index.models.encoder_of))
        page = hits.after(int(offset))
        self._report(request, page, time.perf_counter() - start)
        return page

    def search_many(
        self,
        texts: Iterable[str] | None = None,
        k: int = 10,
        *,
        vectors: ArrayLike | None = None,
        where: Where = None,
        ids: Iterable[str | os.PathLike[str]] | None = None,
        deadline: float | None = None,
        **options: Unpack[HitOptions],
    ) -> list[Hits]:
        """Return the hits of each query, as `search` does. All queries are encoded together, and rows read together.

        :param vectors: the vector of each query, shape (queries, dim), with the texts or instead of them.
        :param deadline: the seconds from now for all searches together.
        :param options: as in `search`.
        """
        conditions, end = among(where, ids), Deadline.after(deadline)
        requests = [
            arguments.search_request(
                self._index.models, text, k, where=conditions, vector=vector, deadline=end, **options
            )
            for text, vector in arguments.check_queries(texts, vectors)
        ]

        def answer(snapshot: Snapshot) -> list[Hits]:
            return hits_of_many(requests, snapshot, self._index.models.encoder_of)

        start, offset = time.perf_counter(), int(options.get("offset", 0))
        answers = self._index.read(answer)
        seconds = (time.perf_counter() - start) / max(len(answers), 1)
        pages = [hits.after(offset) for hits in answers]
        for request, page in zip(requests, pages, strict=True):
            self._report(request, page, seconds)
        return pages

    def answer(
        self,
        question: str,
        *,
        reader: str | os.PathLike[str] | Reader,
        k: int = 10,
        hits: Sequence[Hit] | None = None,
        where: Where = None,
        **options: Unpack[SearchOptions],
    ) -> list[Answer]:
        """Return the spans of the k best passages that answer a question, the surest first; [] if none answers it.

        Each answer cites its own characters and lines, and has the `hit` that it stands in.

        :param reader: a `Reader`, or a folder or name to load one from and keep in memory.
        :param hits: read these instead of searching.
        :param options: of `search`.
        :raises InputError: when the model is no reader, or the question is empty.
        """
        from .search.answers import answers

        model = self._index.models.reader_of(reader)
        return answers(question, self.search(question, k, where=where, **options) if hits is None else hits, model)

    def check(self, passage: Hit | Passage) -> Currency:
        """Tell whether a hit, or a passage of a context, is still the text of its document.

        "exact": the same characters at the same place. "moved": the document has them elsewhere. "stale": the document
        changed, and lacks them. "gone": the document or its file is missing, or the file is unreadable. The check
        reads the file on the disk now, and follows no symbolic link.
        """
        check_cited(passage)
        return self._index.read(lambda snapshot: check_passage(snapshot, self._index.folder, passage))

    def warm_up(self) -> None:
        """Load everything that a search needs, so that the first search is as fast as later ones.

        An encoder of the BERT family is also compiled for queries, and encodes them in a fraction of the time. It
        computes in bf16 if the processor can: cosines then differ by some thousandths from those of other processes.

        :raises NoIndexError: when there is no index yet.
        """

        def warm(snapshot: Snapshot) -> None:
            identity = snapshot.head.encoder
            self._index.models.warm_up(identity)
            snapshot.keep_documents()
            if not identity.is_none and is_small(snapshot.passage_count):  # a search may encode sentences too
                self._index.models.encoder_of(identity).encode(["warm up"])

        self._index.read(warm)
        self.search("warm up", k=1)

    def similar(self, path: str | os.PathLike[str], line: int, k: int = 10, *, where: Where = None) -> Hits:
        """Return the k passages most similar to the passage at a line of a document, without itself."""
        from .search.similar import check, similar

        check(path, line, k)
        conditions = parse(where)
        return self._index.read(lambda snapshot: similar(snapshot, path, line, k, where=conditions))

    def context(
        self,
        query: str,
        *,
        max_tokens: int = 2_000,
        tokenizer: Callable[[str], Any] | None = None,
        siblings: int = 1,
        order: Order = "best_first",
        k: int = 24,
        mode: Mode = "hybrid",
        where: Where = None,
        rerank: Rerank = None,
        rerank_depth: int = 50,
        rerank_seconds: float | None = None,
        min_relevance: float | None = None,
        deadline: float | None = None,
    ) -> Context:
        """Pack the best passages for a prompt into at most `max_tokens`.

        Near-copies and passages far below the best are left out, neighbours are joined, and a numbered citation
        precedes each passage. No document can forge a citation (`search.results.passage`). The context is empty if no
        passage answers the query; `min_relevance=0` packs the nearest ones even then. The other parameters are as in
        `search`.

        :param tokenizer: gives the tokens of a text, or their number, as the model of the prompt counts them; by
            default the encoder's.
        :param siblings: how many passages of the same section may extend a hit on either side, if there is room.
        :param order: "best_first", or "best_last" for a model that heeds the end of a prompt.
        """
        from .search.context import Packing, counter, find_context

        packing = Packing(max_tokens, siblings, order).check()
        count = None if tokenizer is None else counter(tokenizer)
        request = arguments.search_request(
            self._index.models,
            query,
            k,
            mode=mode,
            where=where,
            rerank=rerank,
            rerank_depth=rerank_depth,
            rerank_seconds=rerank_seconds,
            per_document=0,
            collapse=False,
            min_relevance=min_relevance,
            deadline=Deadline.after(deadline),
        )
        start, encoder_of = time.perf_counter(), self._index.models.encoder_of

        def packed(snapshot: Snapshot) -> tuple[Context, Hits, float]:
            hits = request.hits(snapshot, encoder_of)
            seconds = time.perf_counter() - start
            return find_context(snapshot, request, hits, encoder_of, packing, count), hits, seconds

        context, hits, seconds = self._index.read(packed)
        self._report(request, hits, seconds)
        return context

    def _report(self, request: SearchRequest, hits: Hits, seconds: float) -> None:
        """Log a search, and call `on_search`."""
        event = SearchEvent(request.text, hits, seconds)
        event.log()
        if self.on_search:
            self.on_search(event)
