"""Audit an index for leaks: how much text its vectors give away, and the cost of each defence.

The documents are split in two parts. An attacker learns from texts of one part with their stored vectors, and then
recovers texts of the other part from vectors alone. This is repeated for each defence with the same time. Two baselines
need no training: the tokens that occur in most texts, and the nearest text of the attacker's own part. The cost of a
defence is measured on the index's own passages (`search_cost`).

The attacker has pairs of text and stored vector: of his own documents in the index, for example, or from a log. He
knows the defence and its codebooks, not its key. A secret rotation is also attacked without pairs, with the stolen
vectors, the public encoder and texts of other documents (`alignment`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...core.progress import Progress, ignore, within
from ...retriever.models.load import load_encoder
from ..inversion import metrics as recovery_metrics
from . import defences
from .config import AuditConfig
from .experiment import Experiment
from .remarks import remarks
from .result import AuditReport, DefenceResult
from .search_cost import DefendedSearch, Queries, sample_passages
from .texts import LeakTexts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...core.progress import OnProgress
    from ...retriever.retriever import Retriever
    from .attacks.attacker import AttackerFactory
    from .result import ByLength


def default_attacker(on_progress: OnProgress) -> AttackerFactory:
    """Return the factory of `binocle audit`: all its attackers start from one decoder."""
    from .attacks.text_attacker import TextAttackers

    return TextAttackers(on_progress)


def audit(
    retriever: Retriever,
    *,
    attacker: AttackerFactory | None = None,
    progress: OnProgress = ignore,
    **options: Any,
) -> AuditReport:
    """Attack an index's vectors without a defence and with each of several.

    :param options: the fields of `AuditConfig`.
    :raises InputError: for impossible settings, or when the index holds too little text.
    :raises MissingExtraError: when sacrebleu or a package of the attacker is not installed.
    """
    began = time.monotonic()
    recovery_metrics.require()
    config = AuditConfig(**options)
    config.check()
    encoder, suspects = retriever.encoder, [load_encoder(name) for name in config.suspects]
    settings = defences.default(encoder.dim, quick=config.quick)
    if config.settings is not None:
        settings = defences.parse(config.settings)
    defences.check(settings, encoder.dim)
    stage = _Stage(progress)
    factory = attacker or (None if config.quick else default_attacker(stage))
    passages = sample_passages(retriever.snapshot(), Queries("", {}, {}), config.seed) if config.stored else None
    texts = LeakTexts.of(retriever, config, passages, progress)
    del passages  # up to 150 MB
    search = DefendedSearch.of(retriever, config, settings, progress)
    experiment = Experiment(encoder, texts, search, factory, config, stage, suspects)
    results = []
    for number, setting in enumerate(settings, 1):
        stage.prefix = f"{number} of {len(settings)}, {'as stored' if number == 1 else setting.name}: "
        results.append(experiment.result(setting))
    return _report(retriever, config, texts, search, results, experiment.guessing, time.monotonic() - began)


class _Stage:
    """Passes events on with a prefix for the setting under attack."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self.prefix = ""

    def __call__(self, event: Progress) -> None:
        within(self._on_progress, self.prefix)(event)


def _report(
    retriever: Retriever,
    config: AuditConfig,
    texts: LeakTexts,
    search: DefendedSearch,
    results: list[DefenceResult],
    frequent: ByLength,
    seconds: float,
) -> AuditReport:
    head = retriever.snapshot().head.encoder
    return AuditReport(
        index=str(retriever.path),
        model=head.model,
        fingerprint=head.fingerprint,
        documents=len(search.passages.paths),
        passages=len(search.passages.contexts),
        learned=len(texts.corpus),
        queries=len(search.queries.judged),
        query_source=search.queries.source,
        steps_each=0 if config.quick else config.steps,
        seed=config.seed,
        bleu=recovery_metrics.bleu_signature(),
        frequent=frequent,
        known=texts.known,
        results=results,
        stored_length=texts.stored_length,
        notes=[
            *(_quick_note(texts) if config.quick else ()),
            *texts.notes,
            *remarks(retriever.encoder, results, frequent),
        ],
        seconds=seconds,
    )


def _quick_note(texts: LeakTexts) -> Iterator[str]:
    attacked, learned = max(map(len, texts.true.values())), len(texts.corpus)
    yield (
        f"This was a quick audit: {attacked} texts of each length at most, and attackers in closed form with "
        f"{learned:,} texts. No decoder was trained and no text corrected, so 'binocle invert' may read more. A whole "
        "audit does both, and has narrower intervals."
    )
