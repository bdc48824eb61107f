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
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...core.errors import InputError
from ...core.progress import Progress, counted, ignore, within
from ...indexes import metric
from ..evaluation import significance
from ..inversion import metrics as recovery_metrics
from ..inversion.metrics import Recovery, Value
from . import defences
from .alignment import align
from .config import PAIRS, WITHOUT_PAIRS, AuditConfig
from .remarks import remarks
from .result import Alignment, AttackResult, AuditReport, DefenceResult, Example
from .search_cost import DefendedSearch
from .texts import LeakTexts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ...retriever.models.encoder import Encoder
    from ...retriever.retriever import Retriever
    from .defences import DefenceSetting
    from .result import ByLength


_BATCH_SIZE = 2_048  # texts encoded at a time


class Attacker(Protocol):
    """Learns to recover texts from vectors."""

    def fit(self, vectors: Floats, texts: Sequence[str], seconds: float) -> None:
        """Learn from texts and their stolen vectors, shape (n, dim), for about `seconds`."""
        ...

    def recover(self, vectors: Floats) -> list[str]:
        """Return a text for each vector; "" if none was recovered."""
        ...


class AttackerFactory(Protocol):
    """Creates the attacker of a defence."""

    def __call__(self, dim: int, seed: int, encoder: Encoder) -> Attacker:
        """Create an attacker.

        :param dim: of the stolen vectors; a defence may have changed it.
        :param encoder: of the index. It is public: the attacker may use its tokens and its undefended vectors.
        """
        ...


def default_attacker(on_progress: OnProgress) -> AttackerFactory:
    """Return the factory of `binocle audit`: all its attackers start from one decoder."""
    from .attacker import Attackers

    return Attackers(on_progress)


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
    encoder = retriever.encoder
    settings = defences.default(encoder.dim) if config.settings is None else defences.parse(config.settings)
    stage = _Stage(progress)
    factory = attacker or default_attacker(stage)
    texts = LeakTexts.of(retriever, config, progress)
    search = DefendedSearch.of(retriever, config, settings, progress)
    attacks = _Attacks(encoder, texts, search, factory, config, stage)
    results = []
    for number, setting in enumerate(settings, 1):
        stage.prefix = f"{number} of {len(settings)}, {'as stored' if number == 1 else setting.name}: "
        results.append(attacks.result(setting))
    return _report(retriever, config, texts, search, results, attacks.most_frequent(), time.monotonic() - began)


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
        seconds_each=config.seconds,
        seed=config.seed,
        bleu=recovery_metrics.bleu_signature(),
        frequent=frequent,
        results=results,
        notes=[*texts.notes, *remarks(retriever.encoder, results, frequent)],
        seconds=seconds,
    )


class _Attacks:
    """The attacks on all settings of one audit; the setting "none" comes first."""

    def __init__(
        self,
        encoder: Encoder,
        texts: LeakTexts,
        search: DefendedSearch,
        factory: AttackerFactory,
        config: AuditConfig,
        on_progress: OnProgress,
    ) -> None:
        self._encoder, self._texts, self._search = encoder, texts, search
        self._factory, self._config, self._on_progress = factory, config, on_progress
        self._own = self._encoded(texts.corpus)  # undefended, as are the next
        on_progress(Progress("encoding the texts that are attacked"))
        self._true = {length: encoder.encode(of_length) for length, of_length in texts.true.items()}
        self._undefended: Attacker | None = None  # has learned from undefended vectors
        self._undefended_ndcg: Floats | None = None

    def _encoded(self, texts: Sequence[str]) -> Floats:
        stage = f"encoding {len(texts):,} texts that the attacker learns from"
        starts = counted(range(0, len(texts), _BATCH_SIZE), self._on_progress, stage)
        return np.concatenate([self._encoder.encode(texts[start : start + _BATCH_SIZE]) for start in starts])

    def result(self, setting: DefenceSetting) -> DefenceResult:
        """Attack the vectors with a defence, and measure its cost."""
        defence, texts = self._search.fitted[setting.name], self._texts
        own = defence.documents(self._own, texts.corpus)
        stolen = {length: defence.documents(self._true[length], texts.true[length]) for length in texts.true}
        attacker = self._factory(own.shape[1], self._config.seed, self._encoder)
        self._on_progress(Progress("learning"))
        attacker.fit(own, texts.corpus, self._config.seconds)
        if self._undefended is None:
            assert setting.kind == "none"
            self._undefended = attacker
        attacks, alignment = {PAIRS: self._attack(attacker, stolen)}, None
        if setting.kind == "rotation":
            aligned, alignment = self._aligned(own, stolen)
            attacks[WITHOUT_PAIRS] = self._attack(self._undefended, aligned)
        ndcg = self._search.ndcg(setting.name)
        before = self._undefended_ndcg = ndcg if self._undefended_ndcg is None else self._undefended_ndcg
        mean, undefended_mean = float(ndcg.mean()), float(before.mean())
        low, high = significance.interval(ndcg, seed=self._config.seed)
        return DefenceResult(
            name=setting.name,
            kind=setting.kind,
            bytes=defence.bytes,
            dim=defence.stored_dim,
            ndcg=Value(round(mean, 4), round(low, 4), round(high, 4)),
            keep=mean / undefended_mean if undefended_mean else 0.0,
            difference=significance.difference(ndcg, before, seed=self._config.seed),
            same_ranking=bool((ndcg == before).all()),
            attacks=attacks,
            nearest=self._nearest(own, stolen),
            alignment=alignment,
        )

    def _aligned(self, own: Floats, stolen: Mapping[int, Floats]) -> tuple[dict[int, Floats], Alignment]:
        """Turn stolen vectors back without a known pair.

        One half of the attacker's documents counts as stolen, beside the attacked texts. Of the other half he has the
        texts, and no stolen vector.
        """
        self._on_progress(Progress("undoing the rotation without pairs"))
        in_index = self._texts.in_index
        every = np.concatenate([own[in_index], *stolen.values()])
        plain = self._own[~in_index]
        turn_back = align(every, plain, seed=self._config.seed)
        aligned = {length: turn_back(vectors) for length, vectors in stolen.items()}
        cosines = np.concatenate([metric.cosines(aligned[length], self._true[length]) for length in aligned])
        return aligned, Alignment(len(every), len(plain), float(cosines.mean()))

    def _attack(self, attacker: Attacker, stolen: Mapping[int, Floats]) -> AttackResult:
        by_length, examples = {}, []
        for length, vectors in stolen.items():
            self._on_progress(Progress(f"recovering {len(vectors):,} texts of {length} tokens"))
            recovered = attacker.recover(vectors)
            if len(recovered) != len(vectors):
                raise InputError(f"the attacker gave {len(recovered)} texts for {len(vectors)} vectors")
            by_length[length] = self._compared(length, recovered, self._cosines(length, recovered))
            examples += self._examples(length, recovered, by_length[length])
        return AttackResult(by_length, examples)

    def _cosines(self, length: int, recovered: Sequence[str]) -> Floats:
        """Return the cosine of each recovered text, encoded again, with its true vector; 0 for an empty text."""
        cosines = metric.cosines(self._encoder.encode(list(recovered)), self._true[length])
        cosines[[not text.strip() for text in recovered]] = 0
        return cosines

    def _compared(self, length: int, recovered: Sequence[str], cosines: Floats) -> Recovery:
        texts = self._texts
        return recovery_metrics.compare(
            texts.true[length], recovered, texts.tokens, cosines=cosines, seed=self._config.seed
        )

    def _examples(self, length: int, recovered: Sequence[str], recovery: Recovery) -> list[Example]:
        """Choose the best recovered text, and more at even steps down towards the worst."""
        order = np.argsort(recovery.f1, kind="stable")[::-1]
        count = min(self._config.examples, len(order))
        chosen = order[np.linspace(0, len(order) - 1, count + 1).round().astype(int)[:count]].tolist()
        true = self._texts.true[length]
        return [Example(length, round(recovery.f1[row], 4), true[row], recovered[row]) for row in chosen]

    def _nearest(self, own: Floats, stolen: Mapping[int, Floats]) -> ByLength:
        """Answer each stolen vector with the attacker's own text that has the nearest stored vector."""
        by_length = {}
        for length, vectors in stolen.items():
            rows = np.array([int((own @ vector).argmax()) for vector in vectors])
            cosines = metric.cosines(self._own[rows], self._true[length])
            by_length[length] = self._compared(length, [self._texts.corpus[row] for row in rows], cosines)
        return by_length

    def most_frequent(self) -> ByLength:
        """Answer every text with the tokens that occur in most of the attacker's texts of its length."""
        by_length = {}
        for length, texts in self._texts.true.items():
            guess = self._texts.tokens.text(self._frequent_tokens(length))
            cosines = self._cosines(length, [guess] * len(texts))
            by_length[length] = self._compared(length, [guess] * len(texts), cosines)
        return by_length

    def _frequent_tokens(self, length: int) -> list[int]:
        """Return `length` tokens; a token comes twice when enough texts have it twice."""
        counts: dict[tuple[int, int], int] = {}  # token and its occurrence in a text -> texts
        for tokens in self._texts.tokens(self._texts.by_length[length] or self._texts.corpus):
            occurrences: dict[int, int] = {}
            for token in tokens:
                occurrences[token] = occurrences.get(token, 0) + 1
                counts[token, occurrences[token]] = counts.get((token, occurrences[token]), 0) + 1
        best = sorted(counts, key=lambda occurrence: (-counts[occurrence], occurrence))[:length]
        return [token for token, _ in best]
