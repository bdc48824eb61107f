"""Which generated queries should teach an adapter? `tune` with parts of them, and with general pairs.

    python -m benchmarks.models.adapter_queries --data FOLDER --work FOLDER [--collections cranfield] [--seeds 0 1]

- all: the queries that `tune` makes.
- first: the queries that find their own document first in hybrid search, as InPars and Promptagator filter queries.
- first-alone: likewise, but the passage lacks the query.
- sentences: the kinds claim and cloze.
- written: the kinds title, section, claim and link, which judge.
- words: the kinds keywords and dropped.
- general: all, and 800 questions of SQuAD's training split. Each must find its paragraph among the 800.

FOLDER after --data is as for `benchmarks.models.training`. nDCG@10 of the test queries, by meaning and in hybrid,
whether or not the adapter would be published.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle import Retriever
from binocle.retriever.models.encoders.adapted_encoder import save_adapted_encoder
from binocle.training.evaluation import significance
from binocle.training.evaluation.retrieval import evaluate
from binocle.training.mining.bm25 import BM25
from binocle.training.tuning.adapter import fit_map, weaken
from binocle.training.tuning.ranking_distillation import drawing_shares, scores_of_others
from binocle.training.tuning.teachers import NEVER, SearchTeacher, standard_rows
from binocle.training.tuning.tuning_config import TuningConfig
from binocle.training.tuning.tuning_queries import TuningQueries
from binocle.training.tuning.verdict import Judges

from ..machine import save
from .training import COLLECTIONS, collection_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from binocle.core.arrays import Floats
    from binocle.retriever.models.encoder import Encoder
    from binocle.training.tuning.passages import Passages
    from binocle.training.tuning.queries.query_generation import SyntheticPair

    Lesson = tuple[Floats, Floats, Floats, NDArray[np.float64]]  # the arguments of `fit_map`

_KINDS = {
    "sentences": ("claim", "cloze"),
    "written": ("title", "section", "claim", "link"),
    "words": ("keywords", "dropped"),
}
_MODES = ("semantic", "hybrid")
_CHOOSING_QUERIES, _CHOOSING_RIVALS = 200, 600  # as for an adapter without a log
_GENERAL = 800  # questions of SQuAD
_CERTAIN = 30.0  # score of the right paragraph among others with 0: its share of the softmax is 1


def measure(folder: Path, index: Path, seeds: Sequence[int], squad: Path) -> dict[str, Any]:
    """Fit an adapter to each part of the queries with each seed. Differences are paired by test query."""
    before = {mode: evaluate(folder, mode=mode, index=index).per_query["nDCG@10"] for mode in _MODES}
    gains: dict[str, list[dict[str, Any]]] = {}
    for seed in seeds:
        retriever = Retriever.open(index)
        queries = TuningQueries.make(retriever, retriever.snapshot(), TuningConfig(seed=seed), _say)
        for name, lesson in _lessons(retriever, queries, squad):
            matrix, share = weaken(fit_map(*lesson, seed), retriever.encoder, _choosing(queries, seed))
            adapter = index.with_name(f"{index.name}-{name}-{seed}")
            save_adapted_encoder(adapter, retriever.encoder, matrix)
            retriever.switch(adapter)
            after = {mode: evaluate(folder, mode=mode, index=index).per_query["nDCG@10"] for mode in _MODES}
            retriever.rollback()
            values = {mode: significance.align(after[mode], before[mode]) for mode in _MODES}
            gain = {mode: np.asarray(a) - np.asarray(b) for mode, (a, b) in values.items()}
            _say(f"{folder.name} {seed} {name}: {len(lesson[0])}, share {share}, {_means([gain])}")
            gains.setdefault(name, []).append(gain | {"queries": len(lesson[0]), "share": share})
    return {name: _row(of_seeds, gains["all"]) for name, of_seeds in gains.items()}


def _row(gains: list[dict[str, Any]], of_all: list[dict[str, Any]]) -> dict[str, Any]:
    """The gain of a part by seed, and how much it differs from that of all queries, in the mean of the seeds."""
    row: dict[str, Any] = {"queries": [gain["queries"] for gain in gains], "share": [gain["share"] for gain in gains]}
    for mode in _MODES:
        part, everything = (np.mean([gain[mode] for gain in run], axis=0) for run in (gains, of_all))
        row[mode] = {
            "gain": [round(float(gain[mode].mean()), 4) for gain in gains],
            "minus all": significance.difference(part, everything).as_dict(),
        }
    return row


def _means(gains: list[dict[str, Any]]) -> dict[str, float]:
    return {mode: round(float(np.mean([gain[mode] for gain in gains])), 4) for mode in _MODES}


def _lessons(retriever: Retriever, queries: TuningQueries, squad: Path) -> Iterator[tuple[str, Lesson]]:
    """Yield what `fit_map` learns from each choice of queries."""
    encoder, pairs, passages = retriever.encoder, queries.teaching, queries.passages
    vectors = encoder.encode([pair.query for pair in pairs], kind="query")
    teacher = SearchTeacher(retriever.snapshot(), encoder, passages)
    ranking = teacher.scores([pair.query for pair in pairs])
    scores = scores_of_others(teacher, pairs, passages)
    kinds = np.array([pair.kind for pair in pairs])
    parts = {
        "all": np.ones(len(pairs), bool),
        "first": _is_first(ranking, pairs, passages),
        "first-alone": _is_first_alone(encoder, vectors, pairs, passages),
        **{name: np.isin(kinds, of_kind) for name, of_kind in _KINDS.items()},
    }
    for name, part in parts.items():
        chosen = [pairs[row] for row in np.flatnonzero(part)]
        yield name, (vectors[part], scores[part], passages.vectors, drawing_shares(chosen))
    yield "general", _with_general((vectors, scores, passages.vectors, drawing_shares(pairs)), encoder, squad)


def _is_first(scores: Floats, pairs: Sequence[SyntheticPair], passages: Passages) -> NDArray[np.bool_]:
    """Whether the best passage is of the document that a query was made from."""
    own = np.array([passages.numbers[pair.document] for pair in pairs])
    first: NDArray[np.bool_] = passages.documents[scores.argmax(1)] == own
    return first


def _is_first_alone(
    encoder: Encoder, vectors: Floats, pairs: Sequence[SyntheticPair], passages: Passages
) -> NDArray[np.bool_]:
    """Whether the passage without the query outranks all other documents, by words and meaning."""
    own = encoder.encode([pair.positive for pair in pairs])
    bm25 = BM25.of([*passages.texts, *(pair.positive for pair in pairs)])
    is_first = np.empty(len(pairs), bool)
    for row, (pair, query) in enumerate(zip(pairs, vectors, strict=True)):
        rivals = np.flatnonzero(passages.documents != passages.numbers[pair.document])
        lexical = bm25.scores(pair.query)[[*rivals, len(passages.texts) + row]]
        semantic = np.append(passages.vectors[rivals] @ query, own[row] @ query)
        is_first[row] = standard_rows(np.stack([lexical, semantic])).sum(0).argmax() == len(rivals)
    return is_first


def _with_general(lesson: Lesson, encoder: Encoder, squad: Path) -> Lesson:
    """Add questions with their paragraphs as further passages. Neither side ranks the passages of the other."""
    vectors, scores, passages, shares = lesson
    with gzip.open(squad, "rt", encoding="utf-8") as stream:
        rows = [row for row in map(json.loads, stream) if row["qas"]]
    rows = random.Random(0).sample(rows, _GENERAL)
    questions = encoder.encode([row["qas"][0]["question"] for row in rows], kind="query")
    paragraphs = encoder.encode([row["context"] for row in rows])
    own = np.pad(scores, ((0, 0), (0, _GENERAL)), constant_values=NEVER)
    right = np.pad(np.eye(_GENERAL, dtype=np.float32) * _CERTAIN, ((0, 0), (len(passages), 0)), constant_values=NEVER)
    half = np.concatenate([shares, np.full(_GENERAL, 1 / _GENERAL)]) / 2
    return (
        np.concatenate([vectors, questions]),
        np.concatenate([own, right]),
        np.concatenate([passages, paragraphs]),
        half,
    )


def _choosing(queries: TuningQueries, seed: int) -> Judges:
    """The queries that choose the share of the map, as `tune` has them."""
    pairs = queries.choosing(_CHOOSING_QUERIES)
    own = [queries.passages.numbers[pair.document] for pair in pairs]
    return Judges(pairs, queries.passages.without(own).sample(_CHOOSING_RIVALS, seed))


def _say(event: str) -> None:
    print(event, file=sys.stderr, flush=True)


def main() -> None:
    """Measure each collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="keeps the indexes and adapters")
    parser.add_argument("--collections", nargs="+", default=COLLECTIONS, choices=COLLECTIONS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    squad = options.data / "squad11" / "squad11_train.jsonl.gz"
    results = {}
    for name in options.collections:
        folder = collection_folder(name, options.data, options.work)
        results[name] = measure(folder, options.work / f"{name}-index", options.seeds, squad)
    save("adapter-queries", results, seed=options.seeds[0])


if __name__ == "__main__":
    main()
