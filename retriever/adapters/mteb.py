"""Binocle in MTEB: its whole search, measured on the tasks of the benchmark.

mteb.evaluate(BinocleSearch(mode="hybrid"), mteb.get_tasks(["SciFact"]))
"""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError, MissingExtraError
from ..models.load import load_encoder, load_reranker
from ..retriever import Retriever
from ..search.mode import Mode

try:
    from mteb.models import ModelMeta
except ModuleNotFoundError as error:
    raise MissingExtraError("mteb", "mteb", "Binocle in MTEB") from error

if TYPE_CHECKING:
    import os

    from ..models.reranker import Reranker
    from ..search.results.hits import Hits


_TOGETHER = 64  # queries searched at once


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
        :param depth: the number of documents ranked for each query, as far as the task asks for so many.
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
        name = "-".join(part.rstrip("/").rsplit("/", 1)[-1] for part in parts)
        settings = {"name": f"binocle/{name}", "revision": self.encoder.fingerprint[:12], "embed_dim": self.encoder.dim}
        return ModelMeta.create_empty(overwrites=settings)

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
