"""Tune the encoder of one index: learn the teacher's rankings of queries, judge, and write the encoder."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.progress import counted
from ...retriever.models.encoders.adapted_encoder import save_adapted_encoder
from ...retriever.models.load import load_encoder
from ...retriever.models.model_files import INT8, find, split_precision
from ..encoders.base_model import make_model, save_model
from ..encoders.config import EncoderConfig
from ..runs.run_folder import files_of
from . import base_share, teachers
from .adapter import fit_map, weaken
from .ranking_distillation import drawing_shares, learn_ranking, scores_of_others
from .tuning_config import HYBRID
from .tuning_queries import TuningQueries
from .verdict import Judges, LogJudges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats
    from ...retriever.models.encoder import Encoder
    from ...retriever.retriever import Retriever
    from ...retriever.store.snapshot import Snapshot
    from ..runs.model_card import Card
    from ..runs.training_run import LoopResult, TrainingRun
    from .passages import Passages
    from .queries.query_generation import SyntheticPair
    from .teachers import Teacher
    from .tuning_config import TuningConfig
    from .verdict import RankingComparison, Verdict

_RIVALS = 3_000  # maximum of passages that a held-out query's own must outrank
_CHOOSING_QUERIES, _CHOOSING_RIVALS = 200, 600
_BLOCK = 128  # queries that a teacher ranks passages for at once


class IndexTuning:
    """The tuning of one index."""

    def __init__(
        self, run: TrainingRun[TuningConfig], base: Encoder, snapshot: Snapshot, queries: TuningQueries
    ) -> None:
        self.run, self.config, self.base, self.snapshot = run, run.config, base, snapshot
        self.queries, self.passages = queries, queries.passages
        self.rivals = self.passages.sample(_RIVALS, self.config.seed)
        self.judges = Judges(queries.judging, self.rivals)

    @classmethod
    def open(cls, run: TrainingRun[TuningConfig], retriever: Retriever) -> IndexTuning:
        """Make the queries, and start or resume the run.

        :raises InputError: if the index holds too few documents.
        """
        base, snapshot = retriever.encoder, retriever.snapshot()
        queries = TuningQueries.make(retriever, snapshot, run.config, run.report)
        run.open({"encoder": base.fingerprint, "index": snapshot.head.chunks, "files": files_of(run.config.log)})
        return cls(run, base, snapshot, queries)

    @cached_property
    def teacher(self) -> Teacher:
        """The teacher of all passages that are learned from."""
        return teachers.teacher(
            self.config.teachers,
            self.passages.texts,
            lambda: teachers.SearchTeacher(self.snapshot, self.base, self.passages),
            self.run.progress,
        )

    @cached_property
    def before(self) -> dict[str, Floats]:
        """nDCG@10 of each held-out query with the base, by mode."""
        return self.judges.by_mode(self.base, self._base_vectors)

    @cached_property
    def _base_vectors(self) -> Floats:
        return self.judges.stored_vectors(self.base)

    def teaching(self) -> RankingComparison:
        """Compare the teacher with the encoder that is to learn from it, on queries from held-out documents."""
        self.run.report("comparing the teacher with the encoder")
        if self.config.teachers == (HYBRID,):
            ranking = self.before["hybrid"]
        else:
            texts, vectors = self.judges.texts, self._base_vectors
            hybrid = partial(teachers.Hybrid, self.base, texts, vectors)
            ranking = self.judges.by_teacher(teachers.teacher(self.config.teachers, texts, hybrid, self.run.progress))
        return self.judges.compare(self.before["semantic"], ranking, self.config.seed)

    @cached_property
    def precision(self) -> str:
        """The suffix of the tuned encoder's name: @int8 if the index encodes documents in int8, else empty."""
        return INT8 if split_precision(self.base.name)[1] else ""

    def train(self) -> Verdict:
        """Learn, judge, and write the encoder with its card.

        The weights are written without rounding to int8, but judged in the precision of the index.
        """
        self.run.report("loading the encoder to train")
        model = make_model(str(find(self.base.name)), EncoderConfig(seed=self.config.seed))
        base = base_share.weights_of(model)
        loop = self._learn(model)
        self.run.report("choosing the share of the base")
        share = base_share.choose(model, base, self._choosing_judges())
        folder = self.run.new_model_folder()
        save_model(model, folder)
        self.run.report("asking held-out documents")
        tuned = load_encoder(f"{folder}{self.precision}")
        verdict = self._judge(tuned, self.judges.vectors(tuned))
        facts = {"pairs": len(self.queries.teaching), "share": share, **verdict.as_dict()}
        (folder / "binocle.json").write_text(json.dumps({"tuning": facts}), "utf-8")
        self.run.finish(self._card(loop, verdict, tuned, share), loop.history, None)
        return verdict

    def _choosing_judges(self) -> Judges:
        """Return queries of documents that are ranked while learning, without the queries that were learned from.

        If queries of a log choose the share, these only exclude shares, by the rule of `Verdict.loses_much`. There
        are then as many queries and rivals as for the verdict.
        """
        has_log = bool(self.queries.choosing_log)
        pairs = self.queries.choosing(self.config.queries if has_log else _CHOOSING_QUERIES)
        own = [self.passages.numbers[pair.document] for pair in pairs]
        rivals = self.passages.without(own).sample(_RIVALS if has_log else _CHOOSING_RIVALS, self.config.seed)
        return Judges(pairs, rivals)

    def fit_adapter(self) -> Verdict:
        """Fit a linear map of the query vectors, judge, and write it."""
        self.run.report("fitting a map of the query vectors")
        vectors = self.base.encode([pair.query for pair in self.queries.teaching], kind="query")
        rankings = self._rankings(self.queries.teaching)
        matrix = fit_map(
            vectors, rankings, self.passages.vectors, drawing_shares(self.queries.teaching), self.config.seed
        )
        log = self._log_judges(self.queries.choosing_log, self.passages)
        matrix, share = weaken(matrix, self.base, self._choosing_judges(), log)
        self.run.discard()  # the state to resume from
        adapted = save_adapted_encoder(self.run.out, self.base, matrix)
        self.run.report("asking held-out documents")
        verdict = self._judge(adapted, self._base_vectors)
        facts = {"pairs": len(self.queries.teaching), "share": share, **verdict.as_dict()}
        (self.run.out / "binocle.json").write_text(json.dumps({"tuning": facts}, indent=1) + "\n", "utf-8")
        return verdict

    def _rankings(self, pairs: Sequence[SyntheticPair]) -> Floats:
        """Return the teacher's scores of other documents for some queries, shape (queries, passages)."""
        scores = np.empty((len(pairs), len(self.passages.texts)), np.float32)
        starts = range(0, len(pairs), _BLOCK)
        for start in counted(starts, self.run.progress, "asking the teacher"):
            block = pairs[start : start + _BLOCK]
            scores[start : start + len(block)] = scores_of_others(self.teacher, block, self.passages)
        return scores

    def _learn(self, model: Any) -> LoopResult:
        return learn_ranking(
            model,
            self.queries.teaching,
            self.passages,
            self.teacher,
            self.config.learning,
            seed=self.config.seed,
            folder=self.run.checkpoints,
            progress=self.run.progress,
        )

    def _judge(self, tuned: Encoder, vectors: Floats) -> Verdict:
        """Compare a tuned encoder with its base.

        :param vectors: of the judges' passages, the rivals first.
        """
        verdict = self.judges.judge(self.before, self.judges.by_mode(tuned, vectors), self.config.seed)
        log = self._log_judges(self.queries.judging_log, self.rivals)
        if log is None:
            return verdict
        after = log.agreement(tuned, vectors[: len(self.rivals.texts)])
        return replace(verdict, log=log.compare(log.agreement(self.base), after))

    def _log_judges(self, logged: Sequence[SyntheticPair], passages: Passages) -> LogJudges | None:
        """Return queries of the log with the teacher's ranking of some passages; None without queries."""
        if not logged:
            return None
        columns = np.searchsorted(self.passages.ids, passages.ids)
        teacher = self._rankings(logged)[:, columns]
        return LogJudges([pair.query for pair in logged], passages.vectors, teacher, self.config.seed)

    def _card(self, loop: LoopResult, verdict: Verdict, tuned: Encoder, share: float) -> Card:
        measures = [
            {
                "name": f"gain in nDCG@10, {mode}",
                "value": comparison.difference.value,
                "interval": [comparison.difference.low, comparison.difference.high],
                "on": f"queries made from held-out documents, p {comparison.difference.p:.4f}",
                "rows": verdict.queries,
            }
            for mode, comparison in verdict.modes.items()
        ]
        names = " + ".join(self.config.teachers)
        return self.run.card(
            kind="encoder",
            objective=f"the rankings of a teacher ({names}), KL divergence over all passages",
            data={
                "queries": len(self.queries.teaching),
                "passages": len(self.passages.texts),
                "share of the learned weights": share,
            },
            measures=measures,
            loop=loop,
            fingerprint=tuned.fingerprint,
        )
