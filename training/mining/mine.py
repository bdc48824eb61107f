"""Hard negatives: what a model ranks high for a query although it is no answer.

Candidates come from the index that serves queries. Some of them are answers that nobody marked, and to train against
those does harm: filters by the positive's score leave them out (Moreira et al. 2024, arXiv:2407.15831; its TopK-PercPos
of 95 % is `relative_margin=0.05`), and so can a cross-encoder as judge.

It is a stream: texts lie in a file, vectors in a memory map, queries go through in blocks and rows are written as they
come. In memory are the model, 24 bytes a document and one block.
"""

from __future__ import annotations

import sqlite3
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import EncoderMismatchError, InputError, StoreError
from ...core.words import encodable
from ...indexes.gpu import on_gpus
from ...retriever.documents.scan import INDEX_NAME, is_index
from ...retriever.models.files import DEFAULT_MODEL
from ...retriever.models.load import load_encoder
from ...retriever.retriever import Retriever
from ..data import beir
from ..data import dataset as data
from ..data import texts as texts_of
from .candidates import Documents, Passages, encoded
from .negatives import Mined, Miner, MiningConfig, MiningReport
from .output import row_writer
from .text_db import TextDatabase

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ...indexes.base import VectorIndex
    from ...retriever.models.encoder import Encoder
    from ...retriever.search.query import Mode
    from .candidates import FirstStage

    Pairs = str | Path | Iterable[Mapping[str, Any]]
    Named = tuple[str, str]  # a document's name or "", and its text
    Corpus = str | Path | Retriever | Iterable[str | Named]
    Progress = Callable[[str, int, int], None]  # what is under way, how many of it are done, of how many

MODES = ("semantic", "hybrid")
_QUERIES = 4_096  # encoded and searched together
_MANY = 10**9  # comparisons: some seconds on a CPU, for which it is not worth asking torch for a GPU


def mine(
    pairs: Pairs,
    out: str | os.PathLike[str],
    *,
    split: str = "train",
    corpus: Corpus | None = None,
    column: str | None = None,
    model: str | Encoder | None = None,
    mode: Mode = "semantic",
    form: str = "tuple",
    scores: bool = False,
    progress: Progress | None = None,
    **rules: Any,
) -> MiningReport:
    """Write each pair with hard negatives for its query to a file, which appears when it is whole.

    A text of the same words as the query or as one of its positives is never a negative; nor is another text of a
    positive's document, where documents have names. Equal texts are one. Each row keeps its `document_id`, by which
    training holds out whole documents.

    :param pairs: whatever `data.prepare` reads: a file, a folder, a data set's name, or mappings with `query`,
        `positive` and, if known, `document_id`.
    :param out: a .jsonl or .parquet file.
    :param split: which of a BEIR folder or a data set.
    :param corpus: what negatives are taken from, beside the positives: a BEIR folder, a file with a column of texts,
        texts, or (name, text). Or an index: then they are taken from its passages alone. A BEIR folder's own corpus,
        or else the positives, unless given.
    :param column: the column of texts in `corpus`.
    :param model: a folder, a name or an encoder; the index's, or else the default, unless given.
    :param mode: "semantic", or "hybrid": candidates are the best passages of Binocle's hybrid search.
    :param form: "tuple": columns `negative_1` and so on, without the queries that have fewer than asked for;
        "list": a column `negatives` with as many as there are; "triplet": a row for each negative.
    :param scores: add a column `scores`: the positive's and each negative's, for distillation.
    :param rules: the fields of `negatives.Rules`, by name.
    :raises InputError: when an argument makes no sense or the data cannot be mined, naming file and line.
    """
    if form not in FORMS:
        raise InputError(f"there is no form {form!r}: expected one of {', '.join(FORMS)}")
    chosen = _rules(rules)
    report = MiningReport(mode=mode)
    with row_writer(out) as (write, work):
        if corpus is None and isinstance(pairs, (str, Path)) and beir.is_collection(Path(pairs)):
            corpus = pairs
        opened = _corpus(corpus, column)
        encoder = _encoder(model, opened)
        rows = _pairs(pairs, split, work / "rows")
        for group in _mined(rows, opened, encoder, chosen, work, report, progress):
            lines = [line for one in group for line in FORMS[form](one, chosen.negatives, scores)]
            with report.timed("writing"):
                write(lines)
            report.rows += len(lines)
        if not report.rows:
            raise InputError(_nothing(report, chosen.negatives if form == "tuple" else 1))
    return report


def _mined(
    pairs: Iterable[tuple[str, str, str]],
    corpus: Retriever | Iterable[Named],
    encoder: Encoder,
    rules: MiningConfig,
    work: Path,
    report: MiningReport,
    progress: Progress | None,
) -> Iterator[list[Mined]]:
    """Every pair with its negatives, a group of queries at a time.

    :param pairs: query, positive, and the name of its document or "".
    """
    if report.mode not in MODES:
        raise InputError(f"there is no mode {report.mode!r}: expected one of {', '.join(MODES)}")
    tell = progress or (lambda *_: None)
    report.model = encoder.name
    collection = TextDatabase(work / "texts.db")
    try:
        with report.timed("reading"):
            for query, positive, name in pairs:
                collection.add_pair(query, positive, name)
            report.pairs, report.queries = collection.pairs, collection.queries
            if report.mode == "semantic" and not isinstance(corpus, Retriever):
                for name, text in corpus:
                    collection.add_document(text, name)
        with report.timed("encoding texts"):
            total = collection.documents
            index = encoded(collection, encoder, work / "vectors", lambda done: tell("encoding texts", done, total))
        if report.mode == "hybrid" and not isinstance(corpus, Retriever):
            with report.timed("indexing"):
                tell("indexing", 0, 1)
                corpus = _indexed(collection, corpus, encoder, work / "index")
                tell("indexing", 1, 1)
        keys = collection.keys()
        stage: FirstStage
        if isinstance(corpus, Retriever):
            stage = Passages(corpus.snapshot(), report.mode)
        else:
            searched: VectorIndex = index
            if collection.queries * total >= _MANY:
                searched, report.searched_by = on_gpus(index)
            stage = Documents(collection, keys, searched)
        report.documents = stage.size
        miner = Miner(collection, keys, index, stage, encoder, rules, report)
        for first in range(0, collection.queries, _QUERIES):
            end = min(first + _QUERIES, collection.queries)
            yield from miner.mined(first, end)
            tell("mining", end, collection.queries)
    except sqlite3.Error as error:
        raise StoreError(f"cannot write to {work} ({error}): is the disk full?") from error
    finally:
        collection.close()


def _rules(given: dict[str, Any]) -> MiningConfig:
    known = [one.name for one in fields(MiningConfig)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InputError(f"there is no rule {unknown[0]!r}: expected some of {', '.join(known)}")
    return MiningConfig(**given)


def _nothing(report: MiningReport, wanted: int) -> str:
    dropped = ", ".join(f"{why} {count:,}" for why, count in report.dropped.items() if count) or "none"
    return (
        f"no query has {wanted} negative{'s' * (wanted != 1)} among {report.documents:,} texts (dropped: {dropped}): "
        "give a larger corpus, a greater depth or looser rules"
    )


def _pairs(source: Pairs, split: str, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Query, positive and document of every row, all of them checked before the first is given."""
    prepared = data.prepare(source, folder, split=split, held_out=0)
    if prepared.texts[:2] != ("query", "positive"):
        raise InputError(f"negatives are mined for pairs (query, positive), but the rows are {prepared.shape.value}")
    for batch in prepared.table().to_batches():
        names = batch["group"].to_pylist() if "group" in batch.schema.names else [""] * len(batch)
        yield from zip(batch["query"].to_pylist(), batch["positive"].to_pylist(), names, strict=True)


def _corpus(source: Corpus | None, column: str | None) -> Retriever | Iterable[Named]:
    """An index, or the names and texts of documents."""
    if source is None or isinstance(source, Retriever):
        return () if source is None else source
    if not isinstance(source, (str, Path)):
        return _given(source)
    if not str(source).strip():
        raise InputError("the corpus is '': expected a file, a folder or an index")
    path = Path(source).expanduser()
    folder = path.parent if path.name == "corpus.jsonl" and path.is_file() else path
    if beir.is_collection(folder):
        return _beir(folder)
    for index in (path, path / INDEX_NAME):
        if is_index(index):
            return Retriever.open(index)
    return (("", text) for text in texts_of.documents([source], column))


def _given(source: Iterable[str | Named]) -> Iterator[Named]:
    for number, one in enumerate(source, 1):
        name, text = ("", one) if isinstance(one, str) else one if isinstance(one, tuple) and len(one) == 2 else (0, 0)
        if not isinstance(name, str) or not isinstance(text, str):
            raise InputError(f"text {number} of the corpus: expected a text, or a name and a text, not {one!r:.60}")
        if text.strip():
            yield name, _encodable(text)


def _beir(folder: Path) -> Iterator[Named]:
    for row in beir.documents(folder):
        text = beir.joined(row)
        if text.strip():
            yield row["id"], _encodable(text)


def _encodable(text: str) -> str:
    return encodable(text)  # half a surrogate pair is no character


def _encoder(model: str | Encoder | None, corpus: Retriever | Iterable[Named]) -> Encoder:
    """The encoder asked for, which is the index's where there is one."""
    index = corpus if isinstance(corpus, Retriever) else None
    if model is None:
        return index.encoder if index else load_encoder(DEFAULT_MODEL)
    loaded = load_encoder(model) if isinstance(model, str) else model
    if index and index.encoder.fingerprint != loaded.fingerprint:
        raise EncoderMismatchError(
            f"the index at {index.path} was made with {index.encoder.name}, not with {loaded.name}: leave the model "
            "out, or index with it"
        )
    return loaded


def _indexed(collection: TextDatabase, corpus: Iterable[Named], encoder: Encoder, path: Path) -> Retriever:
    """An index of positives and corpus, for its hybrid search."""
    retriever = Retriever.open(path, model=encoder.name)
    named = chain(collection.named_documents(), corpus)
    retriever.add({"text": text} | ({"id": name} if name else {}) for name, text in named)
    return retriever


def _pair(one: Mined) -> dict[str, Any]:
    """What every form of a row begins with."""
    named = {"document_id": one.document_id} if one.document_id else {}
    return {"query": one.query, "positive": one.positive, **named}


def _triplets(one: Mined, wanted: int, scores: bool) -> Iterator[dict[str, Any]]:  # noqa: ARG001 - one signature
    for negative, score in zip(one.negatives, one.scores[1:], strict=True):
        yield _pair(one) | {"negative": negative} | ({"scores": [one.scores[0], score]} if scores else {})


def _tuple(one: Mined, wanted: int, scores: bool) -> Iterator[dict[str, Any]]:
    if len(one.negatives) == wanted:
        negatives = {f"negative_{place}": text for place, text in enumerate(one.negatives, 1)}
        yield _pair(one) | negatives | ({"scores": one.scores} if scores else {})


def _list(one: Mined, wanted: int, scores: bool) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    yield _pair(one) | {"negatives": one.negatives} | ({"scores": one.scores} if scores else {})


FORMS: dict[str, Callable[[Mined, int, bool], Iterator[dict[str, Any]]]] = {
    "tuple": _tuple,
    "list": _list,
    "triplet": _triplets,
}
