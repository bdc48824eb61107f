"""Retriever: an index of documents, to fill and to search. It joins the parts and holds no algorithm."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core import forking as forked
from ..core.checks import is_whole
from ..core.errors import InputError, ModelNotFoundError, NoIndexError, StoreError
from ..core.files import expand_home
from ..core.progress import OnProgress, ignore
from ..indexes.base import VectorIndex
from ..indexes.manifest import IndexManifest, IndexMetadata
from ..indexes.registry import IndexSpec
from ..indexes.tuning.benchmark import Requirements
from ..indexes.tuning.optimize import TuningResult, check_kinds
from .documents.scan import INDEX_NAME, is_index
from .indexing import switch as switching
from .indexing.add import add
from .indexing.delete import delete
from .indexing.report import Report
from .indexing.sync import sync
from .integrity.repair import Repair, repair
from .integrity.status import Status, measure
from .integrity.verify import Verification, verify
from .models import encoder as encoders
from .models.cache import ModelCache, name_of
from .models.identity import EncoderId
from .models.load import load_encoder
from .models.reranker import Reranker
from .models.token_boundaries import token_boundary_digest
from .search import context as contexts
from .search import query as queries
from .search.hit import Hit
from .store import benchmark_queries as questions
from .store import documents as lookup
from .store import root as roots
from .store.filters import parse
from .store.folder_location import reachable
from .store.location import Location
from .store.open_location import is_s3, open_location
from .store.snapshot import Snapshot
from .store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cluster.cluster import Cluster
    from .store.writer import Writer

Where = str | Sequence[str] | Mapping[str, Any] | None
Rerank = str | os.PathLike[str] | Reranker | None
_T = TypeVar("_T")


class Retriever:
    """One index. Safe to share among threads, whose writes wait for each other; other processes may read it meanwhile,
    and one may write it. A process that is forked from one which has searched cannot: it is told so.

    >>> retriever = Retriever.open("docs")  # doctest: +SKIP
    >>> retriever.sync()  # doctest: +SKIP
    >>> retriever.search("how do I cancel a task?", k=3)  # doctest: +SKIP
    """

    def __init__(self, place: Location, *, model: str | None = None, ray: str | None = None, gpu: bool = False) -> None:
        if isinstance(place, (str, os.PathLike)):
            raise InputError(f"an index is opened by Retriever.open({os.fspath(place)!r})")
        self.place = place
        self.path = place.cache
        self._ray = ray
        self._gpu = gpu
        self._cluster: Cluster | None = None
        self._models = ModelCache(self.path, model)
        self._lock = threading.RLock()
        self._connecting = threading.Lock()
        self._turn = threading.RLock()  # of those threads that write, one after the other
        self._current: Snapshot | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        model: str | os.PathLike[str] | None = None,
        ray: str | None = None,
        gpu: bool = False,
    ) -> Retriever:
        """Open the index at `path`, or of the folder `path`; it is made when something is first put in.

        An existing index is opened as it is. A folder with something in it gets its index in `.binocle` inside;
        a new or empty folder becomes the index itself.

        :param path: a folder, or `s3://BUCKET/PREFIX` for an index on object storage.
        :param model: a sentence-transformers folder or name for a new index, all-MiniLM-L6-v2 unless given.
        :param ray: the address of a Ray cluster that is to do the work: then every machine of it must reach the index
            under this path, and have the model.
        :param gpu: compare every vector on the GPUs of this machine, whatever the kind of index: for a process that
            answers many queries. Where they cannot, or the index is in shards, it is searched on the CPU as ever;
            `searched_by` says which.
        """
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "\0" in str(path):
            raise InputError(f"{path!r} is not a path: expected a folder of documents or an index")
        name = None if model is None else name_of(model)
        if is_s3(path):
            return cls(open_location(path), model=name, ray=ray, gpu=gpu)
        place = expand_home(path)
        with reachable(place):
            if place.exists() and not place.is_dir():
                raise InputError(f"{path} is a file: expected a folder of documents or an index")
            if not (is_index(place) or place.name == INDEX_NAME or open_location(place).is_free()):
                place = place / INDEX_NAME
        return cls(open_location(place.resolve()), model=name, ray=ray, gpu=gpu)

    def __reduce__(self) -> tuple[Callable[..., Retriever], tuple[Any, ...]]:
        return _opened, (str(self.place), self._models.asked, self._ray, self._gpu)  # by each process for itself

    # Filling

    def sync(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        retry: bool = False,
        progress: OnProgress = ignore,
    ) -> Report:
        """Bring the index in line with a folder; what is already embedded is not embedded again.

        :param folder: the folder that holds `.binocle`, or the one indexed before, unless given.
        :param retry: read again what failed before or was forgotten.
        :raises LockedError: when another process is writing.
        :raises EncoderMismatchError: when the index was made with another encoder.
        """
        root = roots.to_sync(self.place, folder, self.documents)
        store = self._store_for(self.encoder, root)
        with self._writing(store) as writer:
            encoder = self._models.encoder_of(writer.head.encoder)
            cluster = self._connected()
            crew = cluster.index if cluster else None
            return sync(writer, root, encoder, retry=retry, leave_out=self.path, crew=crew, progress=progress)

    def add(self, documents: Iterable[Mapping[str, Any]]) -> Report:
        """Add documents that are not files, or replace those of the same id.

        Lines are kept with "\\n" at their ends: the places of hits are those in `text(id)`.

        :param documents: mappings with `text` and, if wanted, `id` (a name that no file of the index and no other added
            document has; else made from the text), `title` and `metadata` (strings, numbers, booleans or lists of
            them; dates, which are kept as text; what is None is left out).
        :raises InputError: naming the first that cannot be added, and how many before it were.
        """
        if not isinstance(documents, Iterable) or isinstance(documents, (str, bytes)):
            raise InputError(f"expected documents, each a mapping with 'text', not {documents!r}")
        with self._writing(self._store_for(self.encoder, None)) as writer:
            return add(writer, self._models.encoder_of(writer.head.encoder), documents)

    def delete(self, *paths: str | os.PathLike[str], erase: bool = True) -> Report:
        """Take documents out of the index for good: by path, by an added document's id, or a folder by "name/".

        A file that is still there stays out until `sync(retry=True)`. What was stored of it is erased from disk, for
        which each call builds both indexes anew, and after `optimize` the sentences that it was measured with: delete
        many in one. Of an index on object storage another machine has its copy of the vectors until it next fetches
        the vector index.

        :param erase: whether to; else they are found no more, but go from the disk in the course of later writing.
        :returns: `removed` documents, and a `note` if the vector index no longer meets its requirements.
        """
        for path in paths:
            if not isinstance(path, (str, os.PathLike)):
                raise InputError(f"{path!r} is not a document: expected its path, or its id as it was added")
        with self._writing(self._open_store()) as writer:
            return delete(writer, [os.fspath(path) for path in paths], erase=erase)

    def switch(
        self,
        model: str | os.PathLike[str],
        *,
        keep: bool = True,
        progress: OnProgress = ignore,
    ) -> switching.SwitchReport:
        """Put another encoder in service: every passage is embedded with it, and then all of them change at once.

        Until then every search, here and in other processes, is answered by the old encoder, and after that by the new
        one, with no restart. Interrupt it when you like: the same call goes on where it stopped, unless something else
        was written meanwhile. The old vectors are kept for `rollback` until the next switch.

        :param model: a folder or name, of an encoder that cuts texts into the same passages: one fine-tuned from the
            index's own, say.
        :param keep: whether the old vectors stay for `rollback`; else they are erased from the disk.
        :raises EncoderMismatchError: when it cuts them otherwise, which takes an index of its own.
        """
        name = name_of(model)
        store = self._open_store()
        encoder = load_encoder(name)
        with self._writing(store) as writer:
            report = switching.switch(writer, encoder, progress, keep=keep)
        self._models.use(encoder)
        return report

    def rollback(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        progress: OnProgress = ignore,
    ) -> switching.SwitchReport:
        """Put the encoder before the last switch back, with its vectors; what was indexed since is embedded with it.

        :param model: where that encoder is now, if it has moved.
        :raises StoreError: when there was no switch, or it was rolled back already.
        """
        name = None if model is None else name_of(model)
        with self._writing(self._open_store()) as writer:
            encoder = switching.previous_encoder(writer.head, name)
            report = switching.rollback(writer, encoder, progress)
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
        """Put a vector index of another kind in service; it is built beside the one there is, and kept up to date.

        >>> Retriever.open("docs").build_index("ivf_int8", nlist=1024, search={"nprobe": 32})  # doctest: +SKIP

        :param kind: one of `indexes.kinds.KINDS`, whose `build_parameters` and `search_parameters` say what it takes.
        :param settle: is given the index when it has been written and read again, and may choose the search parameters
            that it is published with, and say what was measured; what it raises leaves the old index in service.
        :raises InputError: when there is no such kind, or no such parameter.
        """
        if not isinstance(kind, str):
            raise InputError(f"a kind of index is named by a text, not {kind!r}: expected one such as 'ivf_int8'")
        if search is not None and not isinstance(search, Mapping):
            raise InputError(f"search is a mapping of parameters, such as {{'nprobe': 32}}, not {search!r}")
        with self._writing(self._open_store()) as writer:
            writer.build_index(IndexSpec(kind, build, dict(search or {})), settle)
            made = writer.snapshot().published
        assert made is not None
        return made

    def optimize(
        self,
        recall: float = 0.99,
        *,
        memory: float | None = None,
        latency: float | None = None,
        queries: Sequence[str] | None = None,
        kinds: Sequence[str] = (),
        seed: int = 0,
        progress: Callable[[str], None] = lambda _: None,
    ) -> TuningResult:
        """Put the vector index in service that meets a demand fastest, and is shown to on queries it was not chosen by.

        Without one that does nothing changes, and the outcome says what would be possible.

        :param recall: of the ten best, on average over queries: its lower 95 % bound must reach this.
        :param memory: bytes that searches may go through at random.
        :param latency: seconds that 99 of 100 queries may keep the vector index busy, asked one at a time for as many
            neighbours as a search takes into account, 200.
        :param queries: real ones, to measure with; made from sentences of the passages unless given.
        :param kinds: which of `indexes.kinds.KINDS` to try; the promising ones unless given.
        :param seed: of the sample of queries.
        """
        demand = Requirements(recall, memory, latency).check()
        check_kinds(kinds)
        questions.check(queries, seed)
        with self._writing(self._open_store()) as writer:
            encoder = self._models.encoder_of(writer.head.encoder)
            if queries is None:
                asked = questions.of_passages(writer.snapshot(), encoder, demand, seed)
            else:
                asked = questions.of_texts(queries, encoder, demand, seed)
            return writer.optimize(demand, asked, kinds=tuple(kinds), tell=progress)

    def amend_index(self, settled: IndexMetadata) -> None:
        """Publish the vector index there is with other search parameters or measurements, without building it."""
        with self._writing(self._open_store()) as writer:
            writer.amend_index(settled)

    # Searching

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        mode: queries.Mode = "hybrid",
        where: Where = None,
        rerank: Rerank = None,
        rerank_depth: int = 50,
        rerank_seconds: float | None = None,
    ) -> list[Hit]:
        """The k passages that answer best, best first.

        With a reranker, those of the `rerank_depth` best passages that it reaches come first. Their order is its own
        unless its folder has a `binocle.json` with a `first_stage_weight`, such as {"first_stage_weight": 0.3}: then
        it is the mean, so weighted, of the standard scores of both stages among them. The rest follow as they were.

        :param mode: "hybrid" (words and meaning), "semantic" or "lexical".
        :param where: filters such as `"path=docs/**"`, `["type=pdf", "modified>=2026-01-01"]` or
            `{"author": "Ada"}`: see `retriever.where`.
        :param rerank: a cross-encoder: a `Reranker`, or a folder or name to load one from and keep.
        :param rerank_seconds: rerank for about this long, the best passages first, and as many as that reaches;
            loading the model and compiling it, once a process, do not count.
        :raises NoIndexError: when there is no index yet.
        :raises EncoderMismatchError: when the encoder is not the one that the index was made with.
        """
        return self.read(self._hits(query, k, mode, where, rerank, rerank_depth, rerank_seconds))

    def warm_up(self) -> None:
        """Load all that a search needs, for a process that is to answer many.

        The first is then as fast as the others. Where the encoder is a plain BERT its graph is compiled, so that a
        query takes a fraction of the time; in bf16, where the processor has it, cosines then differ from those of
        other processes in the fourth digit.

        :raises NoIndexError: when there is no index yet.
        """
        self.read(lambda snapshot: self._models.warm_up(snapshot.head.encoder))
        self.search("warm up", k=1)

    def similar(self, path: str | os.PathLike[str], line: int, k: int = 10, *, where: Where = None) -> list[Hit]:
        """The passages most like the one that stands on a line of a document, itself left out."""
        queries.check("-", k, "semantic")
        if isinstance(line, bool) or not isinstance(line, (int, np.integer)):
            raise InputError(f"a line is a whole number from 1, not {line!r}")
        chosen = parse(where)

        def hits(snapshot: Snapshot) -> list[Hit]:
            chunk = lookup.chunk_at(snapshot, path, line)
            vector = np.array([chunk["vector"]], np.float32)
            query = queries.Query(snapshot, "", lambda: vector)
            return query.hits(int(k), mode="semantic", where=chosen, without=chunk["id"])

        return self.read(hits)

    def stored(self, path: str | os.PathLike[str], line: int) -> tuple[NDArray[np.float32], str]:
        """The vector (dim,) of the passage that stands on a line of a document, and the text that was embedded."""

        def found(snapshot: Snapshot) -> tuple[NDArray[np.float32], str]:
            chunk = lookup.chunk_at(snapshot, path, line)
            return np.array(chunk["vector"], np.float32), chunk["context"]

        return self.read(found)

    def context(
        self,
        query: str,
        *,
        max_tokens: int = 2_000,
        k: int = 50,
        mode: queries.Mode = "hybrid",
        where: Where = None,
        rerank: Rerank = None,
        rerank_depth: int = 50,
        rerank_seconds: float | None = None,
    ) -> contexts.Context:
        """The best passages for a prompt, packed into at most `max_tokens` of the encoder's tokens.

        Passages are deduplicated, neighbours are joined, and each is preceded by its numbered citation. The other
        parameters are those of `search`.
        """
        if not is_whole(max_tokens, 1):
            raise InputError(f"max_tokens is how long the context may be, a whole number from 1, not {max_tokens!r}")
        found = self._hits(query, k, mode, where, rerank, rerank_depth, rerank_seconds)

        def packed(snapshot: Snapshot) -> contexts.Context:
            encoder, hits = self._models.encoder_of(snapshot.head.encoder), found(snapshot)
            rows = snapshot.documents_by_id(sorted({hit.document for hit in hits}), ["text"])
            texts = {number: row["text"] for number, row in rows.items()}
            return contexts.pack(hits, texts, lambda text: len(encoder.offsets([text])[0]), max_tokens)

        return self.read(packed)

    def _hits(
        self,
        query: str,
        k: int,
        mode: queries.Mode,
        where: Where,
        rerank: Rerank,
        rerank_depth: int,
        rerank_seconds: float | None,
    ) -> Callable[[Snapshot], list[Hit]]:
        """What `search` asks of a committed state."""
        query = queries.check(query, k, mode)
        queries.check_reranking(rerank_depth, rerank_seconds)
        chosen = parse(where)
        reranker = None if rerank is None else self._models.reranker_of(rerank)
        reranking = None if reranker is None else queries.Reranking(reranker, rerank_depth, rerank_seconds)

        request = queries.SearchRequest(query, int(k), mode, chosen, reranking)
        return lambda snapshot: request.hits(snapshot, self._models.encoder_of)

    # Looking inside

    def snapshot(self) -> Snapshot:
        """The committed state now; the same object until something is committed."""
        forked.check()
        store = self._open_store()
        head = store.head()
        with self._lock:
            if self._current is None or self._current.head != head:
                earlier, self._current = self._current, Snapshot(store, head)
                if earlier:
                    self._current.take_over(earlier)
            return self._current

    @property
    def searched_by(self) -> str:
        """What compares vectors: "2 GPUs" or "the CPU", and why that if GPUs were asked for."""
        return self.snapshot().searched_by

    @property
    def folder(self) -> Path | None:
        """The folder that is indexed."""
        return roots.root_of(self._open_store())

    def status(self) -> Status:
        """Measure what the index holds: documents by state, bytes, its encoder and its vector index."""
        return self.read(lambda snapshot: measure(snapshot, self.folder))

    def documents(self) -> list[dict[str, Any]]:
        """Every document and what became of it, by path: the documents table without the texts; `metadata` is JSON."""
        return self.read(lookup.rows)

    def document(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """The row of one document, its text included."""
        return self.read(lambda snapshot: lookup.row(snapshot, path))

    def text(self, path: str | os.PathLike[str]) -> str:
        """The text that was read from a document.

        :raises InputError: when none was, with the reason.
        """
        return self.read(lambda snapshot: lookup.text(snapshot, path))

    def lines(self, path: str | os.PathLike[str], first: int, last: int) -> str:
        """What stands on these lines of a document, counted as its citations count them."""
        return self.read(lambda snapshot: lookup.lines(snapshot, path, first, last))

    def verify(self, *, deep: bool = False, progress: OnProgress = ignore) -> Verification:
        """Check the index against its documents as they are now, and its parts against each other.

        :param deep: also look for vectors that do not belong to their texts.
        """
        return self.read(
            lambda snapshot: verify(snapshot, self.folder, self._models.encoder_of, deep=deep, progress=progress)
        )

    def repair(self, *, deep: bool = False, progress: OnProgress = ignore) -> Repair:
        """Build both indexes anew from the store, drop documents whose chunks are faulty, and sync the folder.

        Before that, vectors that changed in the store since the vector index was published, and with `deep` all that
        are found not to be those of their texts, are embedded anew.

        :raises InputError: when the folder is not there, before anything is changed.
        """
        if self.folder:
            roots.to_sync(self.place, None, self.documents)
        faults = self.verify().faults
        with self._writing(self._open_store()) as writer:
            result = repair(writer, faults, self._models.encoder_of, deep=deep, progress=progress)
        return result.followed_by(self.sync()) if self.folder else result

    # The parts

    def read(self, answer: Callable[[Snapshot], _T]) -> _T:
        """Answer from the committed state; from the next one, if it is gone meanwhile or its encoder is."""
        while True:
            snapshot = self.snapshot()
            try:
                return answer(snapshot)
            except (StoreError, ModelNotFoundError):
                if self.snapshot() is snapshot:
                    raise

    def _open_store(self) -> Store:
        return self._helped(Store.open(self.place))

    def _helped(self, store: Store) -> Store:
        store.gpu = self._gpu
        cluster = self._connected()
        if cluster:
            store.serve, store.spread = cluster.serve, cluster.shards
        return store

    def _connected(self) -> Cluster | None:
        """The cluster, where one was asked for."""
        if self._ray is None:
            return None
        from .cluster.cluster import Cluster

        with self._connecting:
            self._cluster = self._cluster or Cluster(self._ray)
            return self._cluster

    @contextlib.contextmanager
    def _writing(self, store: Store) -> Iterator[Writer]:
        """Be the one who writes; a cluster then serves what is in service, and nothing before it."""
        with self._turn, store.write(self._models.encoder_of) as writer:
            yield writer
            if self._cluster:
                self._cluster.retire(store, writer.head)

    def _store_for(self, encoder: encoders.Encoder, root: Path | None) -> Store:
        """The store, made if there is none; its folder set if it had none or another name."""
        folder = None if root is None else roots.as_settings_have(root, self.path)
        with self._turn:
            try:
                store = self._open_store()
            except NoIndexError:
                made_with = EncoderId(encoder.name, encoder.fingerprint, encoder.dim, token_boundary_digest(encoder))
                return self._helped(Store.create(self.place, made_with, folder))
            indexed = roots.root_of(store)
            if folder is not None and (indexed is None or indexed.resolve() != (self.path / folder).resolve()):
                store.set_folder(folder)
            return store

    @property
    def encoder(self) -> encoders.Encoder:
        """The encoder of this index, which is the one asked for, or there is an error."""
        try:
            wanted = self._open_store().head().encoder
        except NoIndexError:
            wanted = None
        return self._models.encoder_of(wanted)


def _opened(place: str, model: str | None, ray: str | None, gpu: bool) -> Retriever:
    return Retriever(open_location(place), model=model, ray=ray, gpu=gpu)
