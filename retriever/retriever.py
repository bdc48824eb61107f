"""Retriever: fill and search an index of documents. It joins the rooms and contains no algorithm."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Self

from ..core.checks import check_flags
from ..core.errors import InputError, NoIndexError
from ..core.files import check_name, expand_home
from ..core.progress import OnProgress, ignore
from .asynchronous import AsyncCalls, CallPool
from .documents.scan import INDEX_NAME, is_index
from .indexing.report import Report
from .integrity.status import Status, measure
from .models.cache import check_no_encoder, model_name
from .models.encoder import Encoder
from .models.load import note_on_prompts
from .open_index import OpenIndex
from .reads import DocumentReads
from .search.ranking.relevance_calibration import renew_scale
from .searches import Searches
from .store import documents as stored_documents
from .store.filters.where import Where
from .store.foreign.trust import is_trusted
from .store.locations.folder_location import reachable
from .store.locations.location import Location
from .store.locations.open_location import check_address, is_s3, open_location
from .store.locations.patience import Patience
from .store.root import Request, held_below, to_drop, to_sync
from .store.snapshot import Snapshot
from .upkeep import Upkeep
from .writes import DocumentWrites

if TYPE_CHECKING:
    from .enrichment.enrich import EnrichReport
    from .scope import Scope


class Retriever(Searches, DocumentReads, DocumentWrites, Upkeep, AsyncCalls):
    """One index of documents.

    Threads may share it; their writes wait for each other. Meanwhile other processes may read the index, and one may
    write it. A process that was forked after a search cannot search: it gets an error that says so.

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
        self._index = OpenIndex(location, model=model, ray=ray, gpu=gpu, trust=trust, dim=dim)
        self._calls = CallPool()

    @property
    def location(self) -> Location:
        """Where the index is stored."""
        return self._index.location

    @property
    def path(self) -> Path:
        """The folder of the index on this machine; of an index on object storage, the folder of its copies."""
        return self._index.location.cache

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
        :param encoder: None for a new index without an encoder: every document brings its own vector.
        :param dim: the dimension of these vectors. An existing index knows it.
        :param ray: the address of a Ray cluster to work on. Every machine of it must reach the index under this path,
            and have the model.
        :param gpu: encode documents and compare every vector on the GPUs of this machine, for a process that indexes
            much or answers many queries. The CPU does both if there is no GPU, too little memory, or an index in
            shards; `encoded_by` and `snapshot().searched_by` say which.
        :param durable: flush each commit to the disk before it returns. With False, a power cut soon after a commit may
            damage the whole index: choose it only for an index that you can build anew. Storage on S3 is durable.
        :param wait: the seconds that a write waits for another process that writes; 0 raises LockedError at once.
            Searches never wait.
        :param on_wait: called with a line for people when a write begins to wait.
        :param trust: trust an index that came from elsewhere, for this object only: write to it, and load the encoder
            that it names. An index that you made, or allowed by `binocle trust`, is trusted anyway.
        """
        patience = Patience(wait, on_wait).check()
        check_flags(durable=durable)
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "\0" in str(path):
            raise InputError(f"{path!r} is not a path: expected a folder of documents or an index")
        check_address(str(path))
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
        check_name(folder.resolve())
        location = open_location(folder.resolve(), durable=durable, patience=patience)
        return cls(location, model=name, ray=ray, gpu=gpu, trust=trust, dim=dim)

    def __reduce__(self) -> tuple[Callable[..., Retriever], tuple[Any, ...]]:
        # Each process opens the index for itself.
        index, location = self._index, self.location
        models = {"model": index.models.requested, "dim": index.models.dim}
        options = {**models, "ray": index.ray, "gpu": index.gpu, "trust": index.trust}
        return _reopen, (str(location), location.durable, location.patience.seconds, options)

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
        ocr: bool | None = None,
        ocr_language: str | None = None,
        progress: OnProgress = ignore,
    ) -> Report:
        """Update the index to a folder. A text that was embedded before is not embedded again.

        :param folder: by default the indexed folder, or else the folder that contains `.binocle`. A list of folders and
            files makes a collection, or adds to one. The paths of its documents are relative to "/".
        :param drop: folders to take out of a collection, with their documents.
        :param exclude: patterns as in `.gitignore` of files to leave out; the index remembers them.
        :param exclude_anew: forget the patterns of earlier calls.
        :param retry: read files again that failed before or were deleted from the index.
        :param drop_missing: drop the documents of missing files, however many. By default, more than three
            stay, counted as `missing`, if they are over half of the index or their folder is empty. Its disk may
            not be mounted.
        :param ocr: also read the text in images, in PDF pages without text and in pictures in Office files and EPUB.
            Tesseract must be installed. The index remembers it: later calls read pictures too, until a call with
            False. Unchanged files then keep the text of their pictures.
        :param ocr_language: the languages of these texts, as Tesseract names them: "deu+eng". It implies `ocr`, and
            pictures that were read in other languages are read again. By default the languages of the last run; in the
            first run those of the locale, and English.
        :raises LockedError: when another process is writing.
        :raises EncoderMismatchError: when the index was built with another encoder.
        """
        from .indexing.sync.picture_rows import languages_from_now_on

        is_ocr = False if ocr is None else ocr
        check_flags(exclude_anew=exclude_anew, retry=retry, drop_missing=drop_missing, ocr=is_ocr)
        store = self._index.existing()
        present = None if store is None else store.head().encoder
        self._index.models.check_encoder(present, "it can only hold added documents")
        request = to_sync(self.location, store, folder, self.documents).holding(
            drop=to_drop(store, drop),
            exclude=exclude,
            exclude_anew=exclude_anew,
            ocr=languages_from_now_on(ocr, ocr_language, store, self.snapshot),
        )
        return self._sync(request, retry=retry, drop_missing=drop_missing, progress=progress)

    def _sync(
        self,
        request: Request,
        *,
        retry: bool = False,
        drop_missing: bool = False,
        ocr: str = "",
        progress: OnProgress = ignore,
    ) -> Report:
        """Change the settings as requested, and update the index.

        :param ocr: the languages to read pictures in, this time only; by default the index's.
        """
        from .indexing.sync.sync import sync  # with all that reads files; a search needs none of it

        store = self._index.prepare(self._index.existing(), request)
        with self._index.writer(store) as writer:
            first_new = writer.head.next_chunk
            store = store.read_settings()  # another process may have added a folder before
            encoder = self._index.models.encoder_of(writer.head.encoder)
            cluster = self._index.connected()
            file_indexer = cluster.index if cluster else None
            report = sync(
                writer,
                request.root,
                encoder,
                within=held_below(store),
                exclude=store.settings.exclude,
                retry=retry,
                drop_missing=drop_missing,
                ocr=ocr or store.settings.ocr,
                leave_out=self.path,
                file_indexer=file_indexer,
                progress=progress,
            )
            renew_scale(writer.snapshot(), encoder)
            from .enrichment.enrich import fill_new
            from .search.words.documents_language import news_of_language

            notes = [
                report.note,
                "" if first_new else note_on_prompts(encoder.name),
                news_of_language(writer.snapshot(), first_new),
                fill_new(writer, encoder, progress),
            ]
            report.note = "; ".join(filter(None, notes))
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

        A classifier gives a document its class, by the mean of its passages. A tagger gives the names in a document; if
        it has several labels, each has a key KEY.LABEL. A document without a fitting label has an empty list. Without
        arguments, the call labels the documents that were added since the last one.

        >>> Retriever.open("docs").enrich({"topic": "my-classifier", "kind": ["bug", "praise"]})  # doctest: +SKIP

        :param heads: for each key a trained classifier or tagger, or names of labels that the encoder alone gives.
        :param remove: keys of heads to take out again, with their values.
        :param precision: promised share of right labels: documents that are less sure get none.
        :raises InputError: when a head does not fit, documents already have a key, or another model lies at the path of
            a stored head. Nothing is changed then.
        """
        from .enrichment.enrich import enrich, new_head

        new = [new_head(key, source, precision) for key, source in (heads or {}).items()]
        with self._index.writer() as writer:
            return enrich(writer, self._index.models.encoder_of(writer.head.encoder), new, remove, progress)

    def scope(self, where: Where) -> Scope:
        """Return the part of the index that passes a filter. Whoever has it sees, adds and deletes nothing else.

        >>> Retriever.open("docs").scope(F.tenant == "t1").search("invoices")  # doctest: +SKIP
        """
        from .scope import Scope

        return Scope(self, where)

    # Inspecting

    def snapshot(self) -> Snapshot:
        """Return the committed state, for reading rows: the same object until something is committed."""
        return self._index.snapshot()

    @property
    def folder(self) -> Path | None:
        """The indexed folder, as the settings name it now; None for added documents only."""
        return self._index.folder

    @property
    def folders(self) -> list[Path]:
        """The folders and files of a collection; else the indexed folder, if there is one."""
        root = self.folder
        folders = self._index.store().read_settings().settings.folders if root else ()
        return [Path(path) for path in folders] or list(filter(None, [root]))

    @property
    def encoder(self) -> Encoder:
        """The encoder of the index, as last read or written; of a new index, its future encoder.

        :raises EncoderMismatchError: when the index has another encoder than the requested `model`.
        """
        if self._index.current is None:
            with contextlib.suppress(NoIndexError):
                self.snapshot()
        current = self._index.current
        return self._index.models.encoder_of(None if current is None else current.head.encoder)

    def status(self) -> Status:
        """Measure the index: documents by state, bytes, its encoder and its vector index."""
        return self._index.read(lambda snapshot: measure(snapshot, self.folder))

    def documents(self) -> list[dict[str, Any]]:
        """Return all documents in order of path, as mappings without their texts."""
        return list(map(stored_documents.readable, self._index.read(stored_documents.rows)))

    def document(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Return one document with its text, as a mapping."""
        return stored_documents.readable(self._index.read(lambda snapshot: stored_documents.row(snapshot, path)))

    @property
    def trusted(self) -> bool:
        """Whether the user made or allowed this index. If not, it is read-only, and its encoder is not loaded.

        An untrusted index still answers: with the default encoder if it was built with that one, with a `model` that
        you name, or in mode "lexical".
        """
        return self._index.store().trusted

    def is_still_trusted(self) -> bool:
        """Whether the user still trusts this index, or still does not, as when it was opened.

        :raises NoIndexError: when it is no longer there.
        """
        store = self._index.store()
        return is_trusted(store.location, store.settings.id) == store.trusted

    @property
    def encoded_by(self) -> str:
        """The hardware that encodes documents, for messages: the CPU, and why, or the number of GPUs."""
        return self._index.models.encoded_by

    @property
    def model_names(self) -> list[str]:
        """The folders or names of the models that were loaded for this index."""
        return self._index.models.names

    def allow(self) -> None:
        """Trust this index from now on, in other processes too, as `binocle trust` does."""
        self._index.allow()

    # Closing

    def close(self) -> None:
        """Let go of the index and its models. Calls that run end first; a later call raises StoreError.

        Deleted documents that wait to be erased are erased first.
        """
        self._calls.close()
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Retriever of {self.location}{', closed' if self._index.is_closed else ''}>"


def _reopen(location: str, durable: bool, wait: float, options: dict[str, Any]) -> Retriever:
    return Retriever(open_location(location, durable=durable, patience=Patience(wait)), **options)
