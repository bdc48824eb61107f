"""Mine hard negatives: texts that a model ranks high for a query although they do not answer it.

Candidates come from the index that serves queries. Some candidates are answers that nobody marked, and training against
those does harm. Filters by the positive's score drop them (Moreira et al. 2024, arXiv:2407.15831; its TopK-PercPos of
95 % is `relative_margin=0.05`), and so can a cross-encoder as judge.

Everything is a stream: texts lie in a file, vectors in a memory map, queries pass in blocks, and rows are written at
once. Memory holds the model, 24 bytes a document and one block.
"""

from __future__ import annotations

import sqlite3
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, StoreError
from ...core.files import expand_home
from ...core.progress import Progress, ignore
from ...core.units import count_of
from ...indexes.gpu import on_gpus
from ...retriever.models.bert.bert_encoder import use_gpus
from ...retriever.retriever import Retriever
from ..data import beir, sources
from .candidate_search import DocumentCandidates, PassageCandidates, encode_documents
from .config import MiningConfig
from .corpus import choose_encoder, open_corpus, read_pairs
from .forms import FORMS
from .mining_report import MiningReport
from .negatives import MinedPair, Miner
from .row_writer import row_writer
from .text_db import TextDatabase, text_key

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from ...core.arrays import Ids
    from ...core.progress import OnProgress
    from ...indexes.base import VectorIndex
    from ...indexes.flat import FlatIndex
    from ...retriever.models.encoder import Encoder
    from ...retriever.search.mode import Mode
    from .candidate_search import CandidateSource
    from .corpus import Corpus, Named, Pairs

_MODES = ("semantic", "hybrid")
_QUERIES = 4_096  # encoded and searched together
# Fewer comparisons or documents take seconds on a CPU, less than loading torch for a GPU.
_GPU_COMPARISONS = 10**9
_GPU_DOCUMENTS = 20_000


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
    progress: OnProgress = ignore,
    **rules: Any,
) -> MiningReport:
    """Write each pair with hard negatives for its query to a file; the file appears when it is complete.

    A negative never has the same words as the query or one of its positives. If documents have names, it is never from
    a positive's document. Equal texts are one text. Each row keeps its `document_id`: training holds out whole
    documents by it.

    :param pairs: any source of `data.dataset.prepare`: a file, a folder, a data set's name, or mappings with `query`,
        `positive` and, if known, `document_id`.
    :param out: a .jsonl or .parquet file.
    :param split: of a BEIR folder or a data set.
    :param corpus: the source of negatives, beside the positives: a BEIR folder, a file with a column of texts, texts,
        or (name, text). An index instead means that negatives are its passages only. By default a BEIR folder's own
        corpus, or else the positives.
    :param column: the column of texts in `corpus`.
    :param model: a folder, a name or an encoder; by default the index's, or else the default model.
    :param mode: "semantic", or "hybrid": candidates are the best passages of Binocle's hybrid search.
    :param form: "tuple": columns `negative_1` and so on, without the queries that have too few negatives;
        "list": a column `negatives` with all of them; "triplet": a row for each negative.
    :param scores: add a column `scores`: the positive's and each negative's, for distillation.
    :param rules: the fields of `MiningConfig`, by name.
    :raises InputError: when an argument makes no sense or the data cannot be mined, naming file and line.
    """
    if form not in FORMS:
        raise InputError(f"there is no form {form!r}: expected one of {', '.join(FORMS)}")
    if mode not in _MODES:
        raise InputError(f"there is no mode {mode!r}: expected one of {', '.join(_MODES)}")
    config = MiningConfig.of(rules)
    sources.check_apart(expand_home(out), pairs, corpus)
    report = MiningReport(mode=mode)
    with row_writer(out) as (write, work):
        if corpus is None and isinstance(pairs, (str, Path)) and beir.is_collection(Path(pairs)):
            corpus = pairs
        opened = open_corpus(corpus, column)
        encoder = choose_encoder(model, opened)
        rows = read_pairs(pairs, split, work / "rows")
        for group in _mine(rows, opened, encoder, config, work, report, progress):
            lines = [line for pair in group for line in FORMS[form](pair, config.negatives, scores)]
            with report.timed("writing"):
                write(lines)
            report.rows += len(lines)
        if not report.rows:
            raise InputError(_no_rows(report, config.negatives if form == "tuple" else 1))
    return report


def _mine(
    pairs: Iterable[tuple[str, str, str]],
    corpus: Retriever | Iterable[Named],
    encoder: Encoder,
    config: MiningConfig,
    work: Path,
    report: MiningReport,
    progress: OnProgress,
) -> Iterator[list[MinedPair]]:
    """Yield every pair with its negatives, a group of queries at a time.

    :param pairs: query, positive, and the name of its document or "".
    """
    report.model = encoder.name
    collection = TextDatabase.create(work / "texts.db")
    try:
        with report.timed("reading"):
            _fill(collection, pairs, corpus, report)
        if collection.documents >= _GPU_DOCUMENTS:
            report.encoded_by = use_gpus(encoder)
        with report.timed("encoding texts"):
            index = encode_documents(collection, encoder, work / "vectors", progress)
        keys = collection.keys()
        stage: CandidateSource
        if isinstance(corpus, Retriever):
            stage = PassageCandidates.read(corpus.snapshot(), report.mode)
        elif report.mode == "hybrid":
            stage = _passages(collection, corpus, encoder, work / "index", report, progress)
        else:
            stage = _documents(collection, keys, index, report)
        report.documents = stage.size
        miner = Miner(collection, keys, index, stage, encoder, config, report)
        for first in range(0, collection.queries, _QUERIES):
            end = min(first + _QUERIES, collection.queries)
            yield from miner.mine(first, end)
            progress(Progress("mining", end, collection.queries))
    except sqlite3.Error as error:
        raise StoreError(f"cannot write to {work} ({error}): is the disk full?") from error
    finally:
        collection.close()


def _fill(
    collection: TextDatabase,
    pairs: Iterable[tuple[str, str, str]],
    corpus: Retriever | Iterable[Named],
    report: MiningReport,
) -> None:
    """Write the pairs and, for semantic search, the corpus to the collection."""
    for query, positive, name in pairs:
        collection.add_pair(query, positive, name)
    report.pairs, report.queries = collection.pairs, collection.queries
    if report.mode == "semantic" and not isinstance(corpus, Retriever):
        for name, text in corpus:
            collection.add_document(text, name)


def _documents(
    collection: TextDatabase, keys: tuple[Ids, Ids], index: FlatIndex, report: MiningReport
) -> DocumentCandidates:
    """Search the collection's documents, on a GPU if that pays."""
    searched: VectorIndex = index
    if collection.queries * collection.documents >= _GPU_COMPARISONS:
        searched, report.searched_by = on_gpus(index)
    return DocumentCandidates(collection, keys, searched)


def _passages(
    collection: TextDatabase,
    corpus: Iterable[Named],
    encoder: Encoder,
    path: Path,
    report: MiningReport,
    progress: OnProgress,
) -> PassageCandidates:
    """Index positives and corpus for hybrid search: each text once, as a document, whatever document it is from."""
    with report.timed("indexing"):
        progress(Progress("indexing", 0, 1))
        retriever = Retriever.open(path, model=encoder.name)
        retriever.add(_numbered(chain(collection.named_documents(), corpus)))
        candidates = PassageCandidates.read(retriever.snapshot(), report.mode, _name_of)
        progress(Progress("indexing", 1, 1))
    return candidates


def _numbered(named: Iterable[Named]) -> Iterator[dict[str, str]]:
    """Yield each text once, with an id from its number and its name."""
    keys: set[int] = set()
    for name, text in named:
        if (key := text_key(text)) not in keys:
            keys.add(key)
            yield {"text": text, "id": f"{len(keys)}:{name}"}


def _name_of(path: str) -> str:
    """Return the name that `_numbered` put into a document's id."""
    return path.partition(":")[2]


def _no_rows(report: MiningReport, negatives: int) -> str:
    dropped = ", ".join(f"{rule} {count:,}" for rule, count in report.dropped.items() if count) or "none"
    return (
        f"no query has {count_of(negatives, 'negative')} among {count_of(report.documents, 'text')} "
        f"(dropped: {dropped}): give a larger corpus, a greater depth or looser rules"
    )
