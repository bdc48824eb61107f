"""Binocle in MTEB: its whole search, an encoder, a reranker or a vector index, measured on the tasks of the benchmark.

mteb.evaluate(BinocleSearch(mode="hybrid"), mteb.get_tasks(["SciFact"]))
mteb.evaluate(BinocleEncoder("my-encoder"), mteb.get_tasks(["STSBenchmark"]))
"""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError, MissingExtraError
from ...indexes.published import build as build_index
from ...indexes.registry import IndexSpec
from ..models.encoder import encode_finite
from ..models.load import load_encoder, load_reranker
from ..retriever import Retriever
from ..search.mode import Mode
from .opening import encoder_of

try:
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ScoringFunction
    from mteb.types import PromptType
except ModuleNotFoundError as error:
    raise MissingExtraError("mteb", "mteb", "Binocle in MTEB") from error

if TYPE_CHECKING:
    import os

    from ...core.arrays import Floats, Ids
    from ...indexes.base import VectorIndex
    from ..models.encoder import Encoder, Kind
    from ..models.reranker import Reranker
    from ..search.results.hits import Hits

__all__ = ["BinocleEncoder", "BinocleIndex", "BinocleReranker", "BinocleSearch"]

_TOGETHER = 64  # queries searched at once
_METRICS = {
    None: "cosine",  # MTEB's choice for a model that names no similarity
    ScoringFunction.COSINE: "cosine",
    ScoringFunction.DOT_PRODUCT: "ip",
    ScoringFunction.EUCLIDEAN: "l2",
}


class BinocleSearch:
    """A search that MTEB's retrieval and reranking tasks measure: an object of MTEB's `SearchProtocol`.

    A document ranks by its best passage, as in `binocle evaluate`.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        mode: Mode = "hybrid",
        rerank: str | Reranker | None = None,
        rerank_depth: int = 50,
        depth: int = 100,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        """Choose the search to measure.

        :param model: the folder or name of an encoder; all-MiniLM-L6-v2 unless given.
        :param mode: "hybrid" (words and meaning), "semantic" or "lexical".
        :param rerank: a cross-encoder that reranks the first `rerank_depth` passages.
        :param depth: the number of documents to rank for each query, at most; a task may ask for fewer.
        :param folder: keep the index of each task below this folder; by default it is temporary.
        """
        self.encoder = load_encoder() if model is None else load_encoder(model)
        self.mode: Mode = mode
        self.reranker = None if rerank is None else load_reranker(rerank)
        self.rerank_depth = rerank_depth
        self.depth = depth
        self._folder = Path(tempfile.mkdtemp(prefix="binocle-") if folder is None else folder)
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._retriever: Retriever | None = None

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """The name under which MTEB stores results: encoder, mode and reranker; the revision is the encoder's."""
        parts = [self.encoder.name, self.mode, *([self.reranker.name] if self.reranker else [])]
        return _meta(parts, self.encoder, embed_dim=self.encoder.dim)

    def index(self, corpus: Any, *, task_metadata: Any, hf_split: str, hf_subset: str, **_: Any) -> None:
        """Index the documents of a task; equal documents of an earlier run are not embedded again.

        :param corpus: a data set with `id`, `text` and perhaps `title`.
        """
        path = self._folder / f"{task_metadata.name}-{hf_subset}-{hf_split}"
        self._retriever = Retriever.open(path, model=self.encoder.name, durable=False)
        self._retriever.add(_documents(corpus))

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Mapping[str, list[str]] | None = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """Return the best documents for each query, with scores that fall from rank to rank.

        :param queries: a data set with `id` and `text`.
        :param top_ranked: the documents to choose from for each query, in a reranking task.
        """
        if self._retriever is None:
            raise InputError("no corpus was indexed yet: index() comes before search()")
        count = min(top_k, self.depth)
        documents, chunks = self._retriever.count(), self._retriever.snapshot().chunks.count_rows()
        passages = 2 * count * math.ceil(chunks / max(1, documents))
        options: dict[str, Any] = {"mode": self.mode}
        if self.reranker is not None:
            options |= {"rerank": self.reranker, "rerank_depth": self.rerank_depth}
        rows = list(queries)
        together = _TOGETHER if top_ranked is None else 1
        run: dict[str, dict[str, float]] = {}
        for start in range(0, len(rows), together):
            batch = rows[start : start + together]
            among = None if top_ranked is None else top_ranked.get(batch[0]["id"], [])
            texts = [_text(row) for row in batch]
            answers = self._retriever.search_many(texts, passages, ids=among, collapse=False, **options)
            run |= {row["id"]: _ranking(hits, count) for row, hits in zip(batch, answers, strict=True)}
        return run


class BinocleEncoder(AbsEncoder):
    """An encoder that MTEB's tasks of all types measure: an object of MTEB's `EncoderProtocol`.

    A text is one vector here, and a longer text than the encoder reads is cut off. `BinocleSearch` cuts documents into
    passages.
    """

    def __init__(self, model: str | os.PathLike[str] | Encoder | Retriever | None = None) -> None:
        """Load an encoder.

        :param model: its folder or name, an encoder, or a `Retriever`, for the encoder of its index; all-MiniLM-L6-v2
            unless given.
        """
        self.encoder = load_encoder() if model is None else encoder_of(model)
        self.mteb_model_meta = _meta(
            [self.encoder.name],
            self.encoder,
            embed_dim=self.encoder.dim,
            max_tokens=self.encoder.max_tokens,
            similarity_fn_name=ScoringFunction.DOT_PRODUCT,  # the vectors have length 1 where only directions count
        )

    def encode(self, inputs: Any, *, prompt_type: PromptType | None = None, **_: Any) -> Floats:
        """Return the vectors of texts, shape (texts, dim); the encoder has its own prompt for queries.

        :param inputs: batches with `text`.
        """
        kind: Kind = "query" if prompt_type is PromptType.query else "document"
        return encode_finite(self.encoder, _texts(inputs), kind=kind)


class BinocleReranker:
    """A cross-encoder that MTEB's reranking tasks measure: an object of MTEB's `CrossEncoderProtocol`."""

    def __init__(self, model: str | os.PathLike[str] | Reranker) -> None:
        """:param model: the folder or name of a cross-encoder, or a `Reranker`."""
        self.reranker = load_reranker(model)
        self.mteb_model_meta = _meta([self.reranker.name], self.reranker, model_type=["cross-encoder"])

    def predict(self, inputs1: Any, inputs2: Any, **_: Any) -> Floats:
        """Return how well each passage answers the query at its place, shape (pairs,): higher is better.

        :param inputs1: batches of queries, with `text`.
        :param inputs2: batches of passages, with `text`.
        """
        return self.reranker.score_pairs(list(zip(_texts(inputs1), _texts(inputs2), strict=True)))


class BinocleIndex:
    """One of Binocle's vector indexes below any encoder of MTEB, to measure its loss against exact search.

    It is an object of MTEB's `IndexEncoderSearchProtocol`:

    >>> SearchEncoderWrapper(encoder, index_backend=BinocleIndex(encoder, "hnsw_int8"))  # doctest: +SKIP
    """

    def __init__(
        self, model: Any, kind: str = "flat", *, build: Mapping[str, Any] | None = None, **search: Any
    ) -> None:
        """Choose a kind of index.

        :param model: the encoder of MTEB. Its similarity decides the metric.
        :param kind: as `binocle optimize` names it.
        :param build: parameters that are fixed when the index is built.
        :param search: parameters of a search.
        """
        meta = model.mteb_model_meta
        if meta.similarity_fn_name not in _METRICS:
            raise InputError(f"{meta.name} compares by {meta.similarity_fn_name}: expected cosine, dot or euclidean")
        self.spec = IndexSpec(kind, dict(build or {}), search, _METRICS[meta.similarity_fn_name])
        if isinstance(meta.embed_dim, int):
            self.spec.check(meta.embed_dim)
        self._folder = Path(tempfile.mkdtemp(prefix="binocle-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.clear()

    def clear(self) -> None:
        """Forget all documents."""
        self._names: list[str] = []
        self._batches: list[Floats] = []
        self._index: VectorIndex | None = None
        shutil.rmtree(self._folder / "indexes", ignore_errors=True)

    def add_documents(self, embeddings: Any, idxs: Sequence[str]) -> None:
        """Add the vectors of documents, shape (documents, dim), in the order of their ids."""
        self._batches.append(_array(embeddings))
        self._names += idxs
        self._index = None

    def search(
        self,
        embeddings: Any,
        top_k: int,
        similarity_fn: Any = None,
        top_ranked: Mapping[str, list[str]] | None = None,
        query_idx_to_id: Mapping[int, str] | None = None,
    ) -> tuple[list[list[float]], list[list[int]]]:
        """Return the scores of the best documents for each query, best first, and their positions.

        :param top_ranked: the documents to choose from for each query; positions then count in its list.
        """
        self._index = self._index or self._built()
        queries = _array(embeddings)
        if top_ranked is None or query_idx_to_id is None:
            return _answers(*self._index.search(queries, min(top_k, len(self._names))))
        rows = {name: row for row, name in enumerate(self._names)}
        scores, positions = [], []
        for number, query in enumerate(queries):
            names = top_ranked.get(query_idx_to_id[number], [])
            ranks = {rows[name]: rank for rank, name in enumerate(names)}
            allowed = np.array(sorted(ranks), np.int64)
            answer = self._index.search(query[None], min(top_k, len(ranks)), allowed=allowed)
            ((values,), (ids,)) = _answers(*answer)
            scores.append(values)
            positions.append([ranks[row] for row in ids])
        return scores, positions

    def _built(self) -> VectorIndex:
        if not self._names:
            raise InputError("there are no documents: add_documents() comes before search()")
        vectors = np.concatenate(self._batches)
        batch = np.arange(len(vectors), dtype=np.int64), vectors
        spec = self.spec.check(vectors.shape[1])
        return build_index(self._folder / "indexes", spec, [batch], dim=vectors.shape[1], covers=0).load()


def _array(embeddings: Any) -> Floats:
    """Return the vectors of any encoder, also those on a GPU, as float32."""
    tensor = embeddings.detach().cpu().float() if hasattr(embeddings, "detach") else embeddings
    return np.asarray(tensor, np.float32)


def _answers(scores: Floats, ids: Ids) -> tuple[list[list[float]], list[list[int]]]:
    """Return scores and ids without the padding of short answers."""
    counts = (ids >= 0).sum(1).tolist()
    values = [row[:count] for row, count in zip(scores.tolist(), counts, strict=True)]
    return values, [row[:count] for row, count in zip(ids.tolist(), counts, strict=True)]


def _meta(names: Iterable[str], model: Encoder | Reranker, **settings: Any) -> ModelMeta:
    """Describe a model under the last parts of the names; the revision is the model's."""
    name = "-".join(name.rstrip("/").rsplit("/", 1)[-1] for name in names)
    return ModelMeta.create_empty({"name": f"binocle/{name}", "revision": model.fingerprint[:12], **settings})


def _texts(batches: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the texts of all batches of a data loader."""
    texts: list[str] = []
    for batch in batches:
        if "text" not in batch:
            raise InputError(f"a batch has {', '.join(batch)}: expected a task of texts, not of images or sounds")
        texts += batch["text"]
    return texts


def _ranking(hits: Hits, count: int) -> dict[str, float]:
    """Return the first documents, each by its best passage."""
    best: dict[str, float] = {}
    for hit in hits:
        best.setdefault(hit.path, hit.score)
    return _falling(dict(list(best.items())[:count]))


def _documents(corpus: Any) -> Iterator[dict[str, str]]:
    for row in corpus:
        title = row.get("title") or ""
        yield {"id": row["id"], "title": title, "text": _text(row) or title}


def _text(row: Mapping[str, Any]) -> str:
    text = row.get("text")
    if not isinstance(text, str):
        raise InputError(f"{row.get('id')!r} has no text: expected a task of texts, not of images or conversations")
    return text


def _falling(scores: dict[str, float]) -> dict[str, float]:
    """Return scores without ties between ranks, in the 32 bits that trec_eval compares."""
    last = np.float32(np.inf)
    for document, score in scores.items():
        last = min(np.float32(score), np.nextafter(last, np.float32(-np.inf)))
        scores[document] = float(last)
    return scores
