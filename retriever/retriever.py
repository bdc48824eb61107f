"""Retriever: fill and search an index of documents. It joins the rooms and contains no algorithm."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from numpy.typing import ArrayLike

from ..core import forking
from ..core.errors import DamagedError, InputError, ModelNotFoundError, NoIndexError, StoreError
from ..core.files import expand_home
from ..core.progress import OnProgress, ignore
from ..indexes.base import VectorIndex
from ..indexes.manifest import IndexManifest, IndexMetadata
from ..indexes.registry import IndexSpec
from ..indexes.tuning.benchmark import Requirements
from ..indexes.tuning.optimize import TuningResult, check_kinds
from .asynchronous import AsyncCalls, CallPool
from .documents.scan import INDEX_NAME, is_index
from .indexing.report import Report
from .indexing.switch import SwitchReport, previous_encoder, rollback, switch
from .integrity.repair import Repair, repair
from .integrity.status import Status, measure
from .integrity.verify import Verification, verify
from .models.cache import ModelCache, check_no_encoder, model_name
from .models.encoder import Encoder
from .models.identity import EncoderId
from .models.load import load_encoder
from .models.reranker import Reranker
from .reads import DocumentReads
from .search import arguments
from .search import query as queries
from .search import similar as similarity
from .search.calibration import renew_scale
from .search.context import Context, Order, Packing, counter, find_context
from .search.deadline import Deadline
from .search.events import SearchEvent
from .search.request import SearchRequest, hits_of_many
from .search.results.currency import Currency, check_passage
from .search.results.hit import Hit
from .search.results.hits import Hits
from .search.results.passage import Passage
from .store import documents as stored_documents
from .store.confinement import check_files
from .store.derived import benchmark_queries
from .store.derived.search_backend import SearchBackend
from .store.filters.where import Where, among, parse
from .store.head import FORMAT, Settings
from .store.locations.folder_location import reachable
from .store.locations.location import Location
from .store.locations.open_location import is_s3, open_location
from .store.locations.waiting_line import Patience
from .store.root import Request, held_below, relative_folder, root_of, to_drop, to_sync
from .store.snapshot import Snapshot
from .store.store import Store, allow, change_settings, go_back, naming_way_back, with_way_back
from .store.trust import is_trusted
from .store.writer import open_writer
from .writes import DocumentWrites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cluster.cluster import Cluster
    from .deferred import DeferredErasure
    from .enrichment.enrich import EnrichReport
    from .models.heads.reader import Reader
    from .scope import Scope
    from .search.answers import Answer
    from .store.head import Head
    from .store.writer import Writer

Rerank = str | os.PathLike[str] | Reranker | None
_T = TypeVar("_T")
_LOG = logging.getLogger("binocle")


class Retriever(DocumentReads, DocumentWrites, AsyncCalls):
    """One index of documents.

    Threads may share it; their writes wait for each other. Meanwhile other processes may read the index, and one may
    write it. A process forked from one that has searched cannot search: it gets an error that says so.

    >>> retriever = Retriever.open("docs")  # doctest: +SKIP
    >>> retriever.sync()  # doctest: +SKIP
    >>> retriever.search("how do I cancel a task?", k=3)  # doctest: +SKIP
    """

    def __init__(
        self,
        location: Location,
        *,
        model: str | None = None,
        ray: str | None = None,
        gpu: bool = False,
        trust: bool = False,
        dim: int | None = None,
    ) -> None:
        if isinstance(location, (str, os.PathLike)):
            raise InputError(f"an index is opened by Retriever.open({os.fspath(location)!r})")
        self.location = location
        self.path = location.cache
        self._ray = ray
        self._gpu = gpu
        self._trust = trust
        self._cluster: Cluster | None = None
        self._models = ModelCache(location, model, lambda: self.trusted, dim)
        self._lock = threading.RLock()  # of the attributes below
        self._store: Store | None = None
        self._current: Snapshot | None = None  # the state last read or written
        self._damaged: tuple[Head, str] | None = None  # a committed state that does not answer, and why
        self._connecting = threading.Lock()
        self._writing = threading.RLock()  # threads that write take turns
        self._calls = CallPool()
        self._erasure: DeferredErasure | None = None  # made when something waits to be erased
        self._is_closed = False
        self.on_search: Callable[[SearchEvent], None] | None = None  # called after each search that succeeds

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        model: str | os.PathLike[str] | None = None,
        encoder: EllipsisType | None = ...,
        dim: int | None = None,
        ray: str | None = None,
        gpu: bool = False,
        durable: bool = True,
        wait: float = 0.0,
        on_wait: Callable[[str], None] = lambda _: None,
        trust: bool = False,
    ) -> Retriever:
        """Open the index at `path`, or the index of the folder `path`. The first `sync` or `add` creates a new one.

        An existing index is opened wherever it is. A folder with files gets its index in `.binocle` inside; a new or
        empty folder becomes the index itself.

        :param path: a folder, or `s3://BUCKET/PREFIX` for an index on object storage.
        :param model: a sentence-transformers folder or name for a new index, all-MiniLM-L6-v2 unless given.
        :param encoder: None for a new index without an encoder, which holds only the vectors that come with documents.
        :param dim: the dimension of these vectors. An existing index knows it.
        :param ray: the address of a Ray cluster to work on. Every machine of it must reach the index under this path,
            and have the model.
        :param gpu: compare every vector on the GPUs of this machine, for a process that answers many queries. The CPU
            does if there is no GPU, too little memory, or an index in shards; `snapshot().searched_by` says which.
        :param durable: write to the disk what a commit names before it returns. Without, a power cut soon after may
            damage the whole index, so choose that only for an index that can be made anew. Storage on S3 is durable.
        :param wait: the seconds that a write waits for another process to finish its own; by default none, so that it
            raises LockedError at once. Searches never wait.
        :param on_wait: called with a line for people when a write begins to wait.
        :param trust: trust an index that came from elsewhere, for this object only: write to it, and load the encoder
            that it names. Indexes that you made or allowed by `binocle trust` need no such word.
        """
        patience = Patience(wait, on_wait).check()
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "\0" in str(path):
            raise InputError(f"{path!r} is not a path: expected a folder of documents or an index")
        if str(path).startswith(("http://", "https://")):
            raise InputError(f"{path} is the address of a server: open it by RemoteRetriever({str(path)!r})")
        name = None if model is None else model_name(model)
        check_no_encoder(encoder, dim, name)
        if is_s3(path):
            return cls(open_location(path, patience=patience), model=name, ray=ray, gpu=gpu, trust=trust, dim=dim)
        folder = expand_home(path)
        with reachable(folder):
            if folder.exists() and not folder.is_dir():
                raise InputError(f"{path} is a file: expected a folder of documents or an index")
            if not (is_index(folder) or folder.name == INDEX_NAME or open_location(folder).is_free()):
                folder = folder / INDEX_NAME
        location = open_location(folder.resolve(), durable=durable, patience=patience)
        return cls(location, model=name, ray=ray, gpu=gpu, trust=trust, dim=dim)

    def __reduce__(self) -> tuple[Callable[..., Retriever], tuple[Any, ...]]:
        # Each process opens the index for itself.
        models = {"model": self._models.requested, "dim": self._models.dim}
        options = {**models, "ray": self._ray, "gpu": self._gpu, "trust": self._trust}
        return _reopen, (str(self.location), self.location.durable, self.location.patience.seconds, options)

    # Filling

    def sync(
        self,
        folder: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        *,
        drop: Sequence[str | os.PathLike[str]] = (),
        exclude: Sequence[str] = (),
        exclude_anew: bool = False,
        retry: bool = False,
        drop_missing: bool = False,
        ocr: bool = False,
        progress: OnProgress = ignore,
    ) -> Report:
        """Update the index to a folder. A text that was embedded before is not embedded again.

        :param folder: by default the indexed folder, or else the folder that contains `.binocle`. A list of folders and
            files makes a collection, or adds to one. The paths of its documents are relative to "/".
        :param drop: folders to take out of a collection, with their documents.
        :param exclude: patterns as in `.gitignore` of files to leave out; the index remembers them.
        :param exclude_anew: forget the patterns of earlier calls.
        :param retry: read files again that failed before or were deleted from the index.
        :param drop_missing: drop the documents of missing files, however many. By default they stay if they are more
            than half of the index, or lie below a folder that is now empty, and more than three: `missing` counts
            them. A disk may not be mounted.
        :param ocr: also read the text in images and in PDF pages without text, with Tesseract, which must be installed.
        :raises LockedError: when another process is writing.
        :raises EncoderMismatchError: when the index was built with another encoder.
        """
        from .indexing.sync import sync  # with all that reads files; a search needs none of it

        store = self._existing()
        self._models.check_encoder(None if store is None else store.head().encoder, "it can only hold added documents")
        request = to_sync(self.location, store, folder, self.documents).holding(
            drop=to_drop(store, drop), exclude=exclude, exclude_anew=exclude_anew
        )
        store = self._prepare_store(store, request)
        with self._writer(store) as writer:
            store = store.read_settings()  # another process may have added a folder before
            encoder = self._models.encoder_of(writer.head.encoder)
            cluster = self._connected()
            file_indexer = cluster.index if cluster else None
            report = sync(
                writer,
                request.root,
                encoder,
                within=held_below(store),
                exclude=store.settings.exclude,
                retry=retry,
                drop_missing=drop_missing,
                ocr=ocr,
                leave_out=self.path,
                file_indexer=file_indexer,
                progress=progress,
            )
            renew_scale(writer.snapshot(), encoder)
            from .enrichment.enrich import fill_new

            report.note = "; ".join(filter(None, [report.note, fill_new(writer, encoder, progress)]))
            return report

    def enrich(
        self,
        heads: Mapping[str, str | os.PathLike[str] | Sequence[str]] | None = None,
        *,
        remove: Sequence[str] = (),
        precision: float | None = None,
        progress: OnProgress = ignore,
    ) -> EnrichReport:
        """Let heads fill keys of the documents' metadata: filters and facets take them, and `sync` keeps them filled.

        A classifier gives a document its class, by the mean of its passages; a tagger the names that it found, each
        label under KEY.LABEL if there are several. A document without a fitting label has an empty list. Without any
        argument, the documents that were added since get their labels.

        >>> Retriever.open("docs").enrich({"topic": "my-classifier", "kind": ["bug", "praise"]})  # doctest: +SKIP

        :param heads: for each key a trained classifier or tagger, or names of labels that the encoder alone gives.
        :param remove: keys of heads to take out again, with their values.
        :param precision: promised share of right labels: documents that are less sure get none.
        :raises InputError: before anything is changed, for a head that does not fit, or a key that documents have.
        """
        from .enrichment.enrich import enrich, new_head

        new = [new_head(key, source, precision) for key, source in (heads or {}).items()]
        with self._writer() as writer:
            return enrich(writer, self._models.encoder_of(writer.head.encoder), new, remove, progress)

    def switch(
        self,
        model: str | os.PathLike[str],
        *,
        keep: bool = True,
        progress: OnProgress = ignore,
    ) -> SwitchReport:
        """Replace the encoder: embed every passage with the new one, then change all vectors at once.

        Until then the old encoder answers every search, here and in other processes; then the new one does, with no
        restart. You may interrupt it: the same call goes on from there, unless something else was written meanwhile.
        The old vectors stay for `rollback` until the next switch.

        :param model: the folder or name of an encoder that splits texts into the same passages, such as one fine-tuned
            from the index's own.
        :param keep: keep the old vectors for `rollback`; else they are erased from the disk.
        :raises EncoderMismatchError: when it splits texts into other passages: that needs a new index.
        """
        name = model_name(model)
        store = self._opened()
        encoder = load_encoder(name)
        with self._writer(store) as writer:
            report = switch(writer, encoder, progress, keep=keep)
            renew_scale(writer.snapshot(), encoder)
        self._models.use(encoder)
        return report

    def rollback(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        progress: OnProgress = ignore,
    ) -> SwitchReport:
        """Restore the encoder before the last switch, with its vectors; embed newer documents with it.

        :param model: the present location of that encoder, if it was moved.
        :raises StoreError: when there was no switch, or it was rolled back already.
        """
        name = None if model is None else model_name(model)
        with self._writer() as writer:
            encoder = previous_encoder(writer.head, name)
            report = rollback(writer, encoder, progress)
            renew_scale(writer.snapshot(), encoder)
        self._models.use(encoder)
        return report

    def build_index(
        self,
        kind: str,
        *,
        search: Mapping[str, Any] | None = None,
        settle: Callable[[VectorIndex], IndexMetadata] | None = None,
        **build: Any,
    ) -> IndexManifest:
        """Replace the vector index by one of another kind, built beside the old one; later writes keep it current.

        >>> Retriever.open("docs").build_index("ivf_int8", nlist=1024, search={"nprobe": 32})  # doctest: +SKIP

        :param kind: a key of `indexes.registry.KINDS`, its `build_parameters` and `search_parameters` describe it.
        :param settle: gets the finished index, and returns search parameters and measurements to publish it with. If
            it raises, the old index stays in service.
        :raises InputError: when there is no such kind, or no such parameter.
        """
        if not isinstance(kind, str):
            raise InputError(f"a kind of index is named by a text, not {kind!r}: expected one such as 'ivf_int8'")
        if search is not None and not isinstance(search, Mapping):
            raise InputError(f"search is a mapping of parameters, such as {{'nprobe': 32}}, not {search!r}")
        with self._writer() as writer:
            writer.index.build(IndexSpec(kind, build, dict(search or {})), settle)
            published = writer.snapshot().published
        assert published is not None
        return published

    def optimize(
        self,
        recall: float = 0.99,
        *,
        memory: float | None = None,
        latency: float | None = None,
        queries: Sequence[str] | ArrayLike | None = None,
        kinds: Sequence[str] = (),
        seed: int = 0,
        progress: Callable[[str], None] = lambda _: None,
    ) -> TuningResult:
        """Put the fastest vector index in service that meets requirements, proven on queries that did not choose it.

        If no index meets them, nothing changes, and the result says what would be possible.

        :param recall: of the ten best passages, on average over queries: its lower 95 % bound must reach this.
        :param memory: the bytes that searches may read at random.
        :param latency: the 99th percentile of the seconds that a query may keep the vector index busy, one query at a
            time, for the 200 neighbours that a search takes into account.
        :param queries: real queries to measure with, or their vectors, shape (n, dim); by default sentences of the
            passages. An index without an encoder needs vectors.
        :param kinds: the keys of `indexes.registry.KINDS` to try; by default the promising ones.
        :param seed: of the sample of queries.
        """
        requirements = Requirements(recall, memory, latency).check()
        check_kinds(kinds)
        queries = benchmark_queries.check(queries, seed)
        with self._writer() as writer:
            encoder = self._models.encoder_of(writer.head.encoder)
            sample = benchmark_queries.choose(queries, writer.snapshot(), encoder, requirements, seed)
            return writer.index.optimize(requirements, sample, kinds=tuple(kinds), log=progress)

    # Searching

    def search(
        self,
        query: str | None = None,
        k: int = 10,
        *,
        vector: ArrayLike | None = None,
        mode: queries.Mode = "hybrid",
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
        """Return the k best passages, best first, as a list that also says whether the index answers the query.

        Copies of a passage, also those with a word or two changed, are no hits: the best of them has the others in
        `copies`.

        A reranker reads as many of the `rerank_depth` best passages as it has time for; these come first, the rest
        follow in the old order. The reranker alone orders them, unless its folder has a `binocle.json` with a
        `first_stage_weight`, such as {"first_stage_weight": 0.3}: then the order is the mean, with this weight, of the
        standard scores of both stages.

        Passages that hold an identifier of the query literally come before the others, definitions before uses. Words
        in double quotes and +word are in every hit, -word at the end of the query is in none: see `search.exact`.

        :param query: the text; None with a `vector`, which then searches by meaning alone.
        :param vector: the meaning of the query, shape (dim,), of the index's encoder; the words are the text's.
        :param mode: "hybrid" (words and meaning), "semantic" or "lexical". An index without an encoder searches a text
            without a vector by words.
        :param where: a filter such as `F.author == "Ada"`, `"type=pdf and modified>=2026-01-01"` or
            `{"author": "Ada"}`: see `retriever.store.filters`.
        :param ids: only passages of these documents.
        :param offset: the number of best hits to leave out, for the next page. Ranks go on where the page before ended.
        :param rerank: a cross-encoder: a `Reranker`, or a folder or name to load one from and keep in memory.
        :param rerank_seconds: rerank for about this long, the best passages first. Loading and compiling the model,
            once in a process, do not count.
        :param per_document: the number of passages of a document at most, 1 for documents; 0 for no limit. By default
            3, and more where other documents have no passages to offer.
        :param collapse: False gives every passage, for measurements: copies too, and any number of a document.
        :param join: make one hit of neighbouring passages among the k best, with the scores of the best one and all in
            `parts`. There are then fewer hits than k. The ranks of parts count passages.
        :param min_relevance: leave out passages of less `relevance`, from 0 to 1; below 0.5 a hit is `weak`.
        :param with_vectors: give each hit its `vector`, the stored one of its passage.
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
            self._models,
            query,
            k,
            mode,
            among(where, ids),
            rerank,
            rerank_depth,
            rerank_seconds,
            per_document,
            collapse=collapse,
            min_relevance=min_relevance,
            vector=vector,
            with_vectors=with_vectors,
            group_by=group_by,
            mmr=mmr,
            deadline=Deadline.after(deadline),
            join=join,
            offset=offset,
        )
        return self._answer(request).after(int(offset))

    def search_many(
        self,
        texts: Iterable[str] | None = None,
        k: int = 10,
        *,
        vectors: ArrayLike | None = None,
        offset: int = 0,
        where: Where = None,
        ids: Iterable[str | os.PathLike[str]] | None = None,
        deadline: float | None = None,
        **options: Any,
    ) -> list[Hits]:
        """Return the hits of each query, the same as `search` returns; all are encoded together.

        :param vectors: the vector of each query, shape (queries, dim), with the texts or instead of them.
        :param deadline: the seconds from now for all searches.
        :param options: the others of `search`.
        """
        conditions = among(where, ids)
        options = {"per_document": None, "deadline": Deadline.after(deadline), **options, "offset": offset}
        pairs = arguments.check_queries(texts, vectors)
        requests = [
            arguments.search_request(self._models, text, k, where=conditions, vector=vector, **options)
            for text, vector in pairs
        ]

        def answer(snapshot: Snapshot) -> list[Hits]:
            return hits_of_many(requests, snapshot, self._models.encoder_of)

        return [hits.after(int(offset)) for hits in self._read(answer)]

    def answer(
        self,
        question: str,
        *,
        reader: str | os.PathLike[str] | Reader,
        k: int = 10,
        hits: Sequence[Hit] | None = None,
        **options: Any,
    ) -> list[Answer]:
        """Return the spans of the k best passages that answer a question, the surest first; none if none does.

        Each answer cites its own characters and lines, and has the `hit` that it stands in.

        :param reader: a `Reader`, or a folder or name to load one from and keep in memory.
        :param hits: read these instead of searching.
        :param options: of `search`.
        :raises InputError: when the model is no reader, or the question is empty.
        """
        from .search.answers import answers

        model = self._models.reader_of(reader)
        return answers(question, self.search(question, k, **options) if hits is None else hits, model)

    def check(self, passage: Hit | Passage) -> Currency:
        """Tell whether a hit, or a passage of a context, is still the text of its document.

        "exact": the same characters at the same place. "moved": the document has them elsewhere. "stale": the document
        changed, and lacks them. "gone": there is no such document, or file. A file is read as it is on the disk now.
        """
        return self._read(lambda snapshot: check_passage(snapshot, self.folder, passage))

    def warm_up(self) -> None:
        """Load everything that a search needs, for a process that answers many.

        The first search is then as fast as the rest. The graph of a plain BERT encoder is compiled, so that a query
        takes a fraction of the time. It runs in bf16 where the processor has it: cosines then differ from other
        processes' in the fourth digit.

        :raises NoIndexError: when there is no index yet.
        """
        self._read(lambda snapshot: self._models.warm_up(snapshot.head.encoder))
        self.search("warm up", k=1)

    def similar(self, path: str | os.PathLike[str], line: int, k: int = 10, *, where: Where = None) -> Hits:
        """Return the k passages most similar to the passage at a line of a document, without itself."""
        similarity.check(line, k)
        conditions = parse(where)
        return self._read(lambda snapshot: similarity.similar(snapshot, path, line, k, where=conditions))

    def context(
        self,
        query: str,
        *,
        max_tokens: int = 2_000,
        tokenizer: Callable[[str], Any] | None = None,
        siblings: int = 1,
        order: Order = "best_first",
        k: int = 24,
        mode: queries.Mode = "hybrid",
        where: Where = None,
        rerank: Rerank = None,
        rerank_depth: int = 50,
        rerank_seconds: float | None = None,
        min_relevance: float | None = None,
        deadline: float | None = None,
    ) -> Context:
        """Pack the best passages for a prompt into at most `max_tokens`.

        Near-copies and passages far below the best are left out, neighbours are joined, and a numbered citation
        precedes each passage. No document can forge a citation (`search.results.passage`). The context is empty where a
        search says that nothing answers; `min_relevance=0` packs even then. The other parameters are as in `search`.

        :param tokenizer: gives the tokens of a text, or their number, as the model of the prompt counts them; by
            default the encoder's.
        :param siblings: how many passages of the same section may extend a hit on either side, if there is room.
        :param order: "best_first", or "best_last" for a model that heeds the end of a prompt.
        """
        packing = Packing(max_tokens, siblings, order).check()
        count = None if tokenizer is None else counter(tokenizer)
        request = arguments.search_request(
            self._models,
            query,
            k,
            mode,
            where,
            rerank,
            rerank_depth,
            rerank_seconds,
            collapse=False,
            min_relevance=min_relevance,
            deadline=Deadline.after(deadline),
        )
        return self._read(lambda snapshot: find_context(snapshot, request, self._models.encoder_of, packing, count))

    def _answer(self, request: SearchRequest) -> Hits:
        """Search, and tell who observes."""
        start = time.perf_counter()
        hits = self._read(lambda snapshot: request.hits(snapshot, self._models.encoder_of))
        event = SearchEvent(request.text, hits, time.perf_counter() - start)
        event.log()
        if self.on_search:
            self.on_search(event)
        return hits

    def scope(self, where: Where) -> Scope:
        """Return the part of the index that passes a filter. Whoever has it sees, adds and deletes nothing else.

        >>> Retriever.open("docs").scope(F.tenant == "t1").search("invoices")  # doctest: +SKIP
        """
        from .scope import Scope

        return Scope(self, where)

    # Inspecting

    def snapshot(self) -> Snapshot:
        """Return the committed state, for reading rows: the same object until something is committed."""
        forking.check()
        store, head, fallback = self._committed()
        if self._current is not None and self._current.head != head:
            check_files(self.path)
        return self._set_current(store, head, fallback)

    @property
    def folder(self) -> Path | None:
        """The indexed folder, as the settings name it now; None for added documents only."""
        if self._store is None:
            return root_of(self._reopened())
        try:
            return root_of(self._store.read_settings())
        except StoreError:  # the index was removed
            return root_of(self._reopened())

    @property
    def folders(self) -> list[Path]:
        """The folders and files of a collection; else the indexed folder, if there is one."""
        root = self.folder
        folders = self._opened().read_settings().settings.folders if root else ()
        return [Path(path) for path in folders] or list(filter(None, [root]))

    @property
    def encoder(self) -> Encoder:
        """The encoder of the index, as last read or written; of a new index, its future encoder.

        :raises EncoderMismatchError: when the index has another encoder than the requested `model`.
        """
        if self._current is None:
            with contextlib.suppress(NoIndexError):
                self.snapshot()
        current = self._current
        return self._models.encoder_of(None if current is None else current.head.encoder)

    def status(self) -> Status:
        """Measure the index: documents by state, bytes, its encoder and its vector index."""
        return self._read(lambda snapshot: measure(snapshot, self.folder))

    def documents(self) -> list[dict[str, Any]]:
        """Return all documents in order of path, as mappings without their texts."""
        return list(map(stored_documents.readable, self._read(stored_documents.rows)))

    def document(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Return one document with its text, as a mapping."""
        return stored_documents.readable(self._read(lambda snapshot: stored_documents.row(snapshot, path)))

    def text(self, path: str | os.PathLike[str], *, lines: tuple[int, int] | None = None, hidden: bool = True) -> str:
        """Return the text that was read from a document.

        :param lines: the first and the last line to return, from 1, as citations count them.
        :param hidden: with what a person does not see in the document, such as white letters on white.
        :raises InputError: when the document has no text, with the reason, or not these lines.
        """
        if lines is None:
            return self._read(lambda snapshot: stored_documents.text(snapshot, path, hidden=hidden))
        first, last = lines
        return self._read(lambda snapshot: stored_documents.lines(snapshot, path, first, last, hidden=hidden))

    def line_range(self, path: str | os.PathLike[str]) -> tuple[int, int]:
        """Return the first and the last line of a document, counted as citations count them.

        :raises InputError: when the document has no text, with the reason.
        """
        return self._read(lambda snapshot: stored_documents.line_range(snapshot, path))

    def verify(self, *, deep: bool = False, progress: OnProgress = ignore) -> Verification:
        """Check the index against the present documents, and its parts against each other.

        :param deep: also look for vectors that do not belong to their texts.
        """
        return self._read(
            lambda snapshot: verify(snapshot, self.folder, self._models.encoder_of, deep=deep, progress=progress)
        )

    def repair(self, *, deep: bool = False, progress: OnProgress = ignore) -> Repair:
        """Embed wrong vectors anew, drop documents with faulty passages, rebuild both indexes, and sync the folder.

        Vectors are wrong if they changed in the store since the vector index was published; with `deep`, also if they
        do not belong to their texts. If the committed state is damaged, the one before is committed again first.

        :raises InputError: when the folder does not exist, before anything is changed.
        """
        if self.folder:
            to_sync(self.location, self._existing(), None, self.documents)
        faults = self.verify().faults
        if self.snapshot().fallback:
            go_back(self._opened(), self._damaged and self._damaged[0])
        with self._writer() as writer:
            result = repair(writer, faults, self._models.encoder_of, deep=deep, progress=progress)
        return result.followed_by(self.sync()) if self.folder else result

    @property
    def trusted(self) -> bool:
        """Whether the user made this index, or allowed it; else it is read-only and the model that it names not loaded.

        An index from elsewhere still answers: with the default encoder if it was made with that, else with a `model`
        that you name, or in mode "lexical".
        """
        return self._opened().trusted

    def is_still_trusted(self) -> bool:
        """Whether the user's word on this index is as it was when it was opened.

        :raises NoIndexError: when it is no longer there.
        """
        store = self._opened()
        return is_trusted(store.location, store.settings.id) == store.trusted

    @property
    def model_names(self) -> list[str]:
        """The folders or names of the models that were loaded for this index."""
        return self._models.names

    def allow(self) -> None:
        """Trust this index from now on, in other processes too, as `binocle trust` does."""
        store = allow(self._reopened())
        with self._lock:
            self._store = store

    # Closing

    def close(self) -> None:
        """Let go of the index and its models. Calls that run end first; a later call raises StoreError.

        Deleted documents that wait to be erased are erased first.
        """
        self._calls.close()
        if self._erasure:
            self._erasure.close()
        with self._writing, self._lock:
            self._is_closed, self._store, self._current, self._damaged = True, None, None, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Retriever of {self.location}{', closed' if self._is_closed else ''}>"

    # The parts

    def _read(self, answer: Callable[[Snapshot], _T]) -> _T:
        """Answer from the committed state; from the next state, if this one or its encoder was removed meanwhile."""
        while True:
            snapshot = self.snapshot()
            try:
                return answer(snapshot)
            except (StoreError, ModelNotFoundError) as error:
                if self.snapshot() is snapshot:
                    if isinstance(error, DamagedError) and not snapshot.fallback:
                        return self._read_previous(answer, snapshot, error)
                    raise

    def _read_previous(self, answer: Callable[[Snapshot], _T], damaged: Snapshot, error: DamagedError) -> _T:
        """Answer from the state before a damaged one.

        :raises DamagedError: the given one, when that state was not kept or is damaged too.
        """
        previous = damaged.store.previous()
        if previous is not None:
            with contextlib.suppress(StoreError):
                reason = str(with_way_back(error))
                result = answer(Snapshot(damaged.store, previous, damaged.backend, fallback=reason))
                self._damaged = damaged.head, reason
                self.snapshot()
                return result
        raise error

    def _opened(self) -> Store:
        """Return the store, opened once."""
        return self._store or self._reopened()

    def _reopened(self) -> Store:
        """Open the store, or read its settings again.

        :raises StoreError: when this retriever was closed.
        """
        if self._is_closed:
            raise StoreError(f"this retriever of {self.location} was closed: open the index again")
        store = Store.open(self.location, trusted=self._trust)
        with self._lock:
            self._store = store
        return store

    def _existing(self) -> Store | None:
        """Return the store with its present settings; None if there is no index yet."""
        try:
            return self._reopened()
        except NoIndexError:
            return None

    def _committed(self) -> tuple[Store, Head, str]:
        """Read HEAD, or the state before if HEAD is damaged, with the reason.

        An index that was removed, or replaced by another, is opened again.
        """
        store = self._opened()
        try:
            head = store.head()
        except StoreError:
            store = self._reopened()
            return store, *store.head_or_previous()
        if self._damaged and self._damaged[0] == head and (previous := store.previous()):
            return store, previous, self._damaged[1]
        return store, head, ""

    def _set_current(self, store: Store, head: Head, fallback: str = "") -> Snapshot:
        with self._lock:
            if self._current is None or (self._current.head, self._current.fallback) != (head, fallback):
                earlier, self._current = self._current, Snapshot(store, head, self._backend(), fallback=fallback)
                if earlier:
                    self._current.take_over(earlier)
                if fallback:
                    _LOG.warning("%s; until then that state answers", fallback)
            return self._current

    def _backend(self) -> SearchBackend:
        cluster = self._connected()
        if cluster is None:
            return SearchBackend(self._gpu)
        return SearchBackend(self._gpu, cluster.serve, cluster.build_shards)

    def _connected(self) -> Cluster | None:
        """Return the cluster, if one was asked for."""
        if self._ray is None:
            return None
        from .cluster.cluster import Cluster

        with self._connecting:
            self._cluster = self._cluster or Cluster(self._ray)
            return self._cluster

    @contextlib.contextmanager
    def _writer(self, store: Store | None = None) -> Iterator[Writer]:
        """Write to the index; a cluster then serves the new vector index, and no longer the old one."""
        store = store or self._reopened()
        opened = open_writer(store, self._models.encoder_of, self._backend(), self._current)
        with self._writing, naming_way_back(store), opened as writer:
            try:
                yield writer
            finally:
                with self._lock:
                    self._current = writer.snapshot()
                self._note_erasure(writer.erasure_due)
            if self._cluster:
                self._cluster.retire(store, writer.head)

    def _note_erasure(self, due: float | None) -> None:
        if self._erasure is None and due is None:
            return
        from .deferred import DeferredErasure  # few indexes need it

        self._erasure = self._erasure or DeferredErasure(self._erase_deleted)
        self._erasure.note_write(due)

    def _erase_deleted(self) -> None:
        with self._writer() as writer:
            writer.erase_deleted()

    def _prepare_store(self, store: Store | None, request: Request | None) -> Store:
        """Create the index if there is none; change its settings if it is to hold another folder."""
        folder = None if request is None else relative_folder(request.root, self.path)
        with self._writing:
            store = store or self._existing()
            if store is None:
                encoder = self._models.encoder_of(None)
                new = EncoderId.of_encoder(encoder)
                settings = Settings(FORMAT, folder)
                if request is not None and folder is not None:
                    settings = request.change(settings, folder)
                store = Store.create(self.location, new, folder, folders=settings.folders, exclude=settings.exclude)
            else:
                store.check_trusted()
                self._models.encoder_of(store.head().encoder)  # raises before anything is changed
                if request is not None and folder is not None and request.changes(store, folder):
                    store = change_settings(store, lambda settings: request.change(settings, folder))
            with self._lock:
                self._store = store
            return store


def _reopen(location: str, durable: bool, wait: float, options: dict[str, Any]) -> Retriever:
    return Retriever(open_location(location, durable=durable, patience=Patience(wait)), **options)
