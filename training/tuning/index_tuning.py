"""Tune the encoder of one index: make queries, learn the teacher's rankings, judge, and write the encoder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError
from ...retriever.models.files import find
from ...retriever.models.load import load_encoder
from ..data import documents as corpus
from ..encoders.base_model import make_model
from ..encoders.config import EncoderConfig
from . import query_generation as queries
from . import teachers
from .passages import Passages
from .ranking_distillation import learn_ranking
from .verdict import even, judge, judging_share, query_ndcg

if TYPE_CHECKING:
    from ...retriever.models.encoder import Encoder
    from ...retriever.retriever import Retriever
    from ..runs.model_card import Card
    from ..runs.training_run import LoopResult, TrainingRun
    from .tuning_config import TuningConfig
    from .verdict import Verdict

_PASSAGES = 20_000  # maximum to learn from; from a sample of the documents of a larger index
_RIVALS = 3_000  # maximum of passages that a held-out query's own must outrank
_MINIMUM_DOCUMENTS = 8  # to learn from
_SIGNIFICANT_DOCUMENTS = 6  # minimum for a p below 0.05


class IndexTuning:
    """The tuning of one index.

    :raises InputError: if the index holds too few documents.
    """

    def __init__(self, run: TrainingRun[TuningConfig], retriever: Retriever) -> None:
        self.run, self.config, self.base = run, run.config, retriever.encoder
        config, snapshot = run.config, retriever.snapshot()
        run.report("making queries from the documents")
        sources = corpus.sample(corpus.from_index(snapshot), _PASSAGES, config.seed)
        share = judging_share(sum(1 for _ in sources), config.held_out)
        learned, judging = corpus.split(sources, share, config.seed)
        pairs, judging_pairs = (queries.make(part, seed=config.seed, kinds=config.kinds) for part in (learned, judging))
        self.pairs = queries.sample(pairs, config.pairs, config.seed)
        self.judging_pairs = even(judging_pairs, config.queries, config.seed)
        judges = len({pair.document for pair in self.judging_pairs})
        if len({pair.document for pair in self.pairs}) < _MINIMUM_DOCUMENTS or judges < 2:
            raise InputError(
                f"{retriever.path} holds too little to learn from: {len(self.pairs)} queries came from training "
                f"documents and {len(self.judging_pairs)} from held-out ones; expected some dozens of documents with "
                "sentences"
            )
        if judges < _SIGNIFICANT_DOCUMENTS:
            run.report(f"queries came from {judges} held-out documents: no gain on so few is significant")
        self.passages = Passages.read(snapshot, {source.id for source in learned})
        run.report(f"{len(self.pairs):,} queries of {len(self.passages.texts):,} passages")
        texts, vectors = self.passages.texts, self.passages.vectors
        self.teacher = teachers.teacher(config.teacher, self.base, texts, vectors, run.progress)
        run.open({"encoder": self.base.fingerprint, "index": snapshot.head.chunks})

    def train(self) -> Verdict:
        """Learn, judge, and write the encoder with its card."""
        self.run.report("loading the encoder to train")
        tokens = float(np.percentile([len(text) for text in self.passages.texts], 75)) / 4  # about four letters each
        model = make_model(str(find(self.base.name)), EncoderConfig(seed=self.config.seed), tokens)
        loop = self._learn(model)
        folder = self.run.new_model_folder()
        model.eval().save_pretrained(str(folder), create_model_card=False)
        self.run.report("asking held-out documents")
        tuned = load_encoder(str(folder))
        verdict = self._judge(tuned)
        facts = {"pairs": len(self.pairs), **verdict.as_dict()}
        (folder / "binocle.json").write_text(json.dumps({"tuning": facts}), "utf-8")
        self.run.finish(self._card(loop, verdict, tuned), loop.history, None)
        return verdict

    def _learn(self, model: Any) -> LoopResult:
        return learn_ranking(
            model,
            self.pairs,
            self.passages,
            self.teacher,
            self.config.learning,
            seed=self.config.seed,
            folder=self.run.checkpoints,
            progress=self.run.progress,
        )

    def _judge(self, tuned: Encoder) -> Verdict:
        generator = np.random.default_rng(self.config.seed)
        sample = generator.permutation(len(self.passages.texts))[:_RIVALS]
        texts = [self.passages.texts[number] for number in sample]
        before = query_ndcg(self.base, self.judging_pairs, texts, self.passages.vectors[sample])
        after = query_ndcg(tuned, self.judging_pairs, texts, tuned.encode(texts))
        return judge(self.judging_pairs, before, after, self.config.seed)

    def _card(self, loop: LoopResult, verdict: Verdict, tuned: Encoder) -> Card:
        gain = verdict.difference
        measure = {
            "name": "gain in nDCG@10",
            "value": gain.value,
            "interval": [gain.low, gain.high],
            "on": f"queries made from held-out documents, p {gain.p:.4f}",
            "rows": verdict.queries,
        }
        return self.run.card(
            kind="encoder",
            objective=f"the rankings of a teacher ({self.config.teacher}), KL divergence over all passages",
            data={"queries made": len(self.pairs), "passages": len(self.passages.texts)},
            measures=[measure],
            loop=loop,
            fingerprint=tuned.fingerprint,
        )
