"""A leak audit: how much of an index's text could someone with its vectors recover, and what does a defence cost?

The index's documents are split in two. An attacker learns from texts of the one part with the vectors that a thief
would see, and is then given vectors of texts of the other. That is done anew for each defence, with the same time, and
beside it stand two answers that need no training: the tokens that most texts have, and the text of the attacker's own
part whose vector is nearest. What a defence costs is measured on the index's own passages (`search_cost`).

The attacker has pairs of text and stored vector: of his own documents in the index, say, or from a log. He knows the
defence and its codebooks, not its key. A secret rotation is tried by a second one besides, who has no pairs: only the
stolen vectors and the public encoder.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...core.errors import InputError
from ...indexes import metric
from ..evaluation import significance
from ..inversion import metrics as recovered
from ..inversion.metrics import Recovery, Value
from ..runs.progress import counted
from . import defences
from .config import AuditConfig
from .result import Attack, Audit, Example, Result
from .search_cost import DefendedSearch
from .statements import ENCODER_ONLY, PAIRS, remarks
from .texts import LeakTexts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...core.arrays import Floats
    from ...retriever.models.encoder import Encoder
    from ...retriever.retriever import Retriever
    from ..runs.progress import Tell
    from .defences import Setting
    from .result import ByLength


_AT_ONCE = 2_048  # texts encoded at a time


class Attacker(Protocol):
    """Learns to recover texts from vectors."""

    def fit(self, vectors: Floats, texts: Sequence[str], seconds: float) -> None:
        """Learn from texts and their vectors, as a thief sees those, shape (n, dim), for about so long."""
        ...

    def recover(self, vectors: Floats) -> list[str]:
        """A text for each vector; an empty one where none was recovered."""
        ...


class AttackerFactory(Protocol):
    def __call__(self, dim: int, seed: int, encoder: Encoder) -> Attacker:
        """
        :param dim: of the stolen vectors, which a defence may have changed.
        :param encoder: of the index, which is public: its tokens and its vectors without the defence.
        """
        ...


def default_attacker(tell: Tell) -> AttackerFactory:
    """The attackers of `binocle audit`, which begin from one decoder."""
    from .attacker import Attackers

    return Attackers(tell)


def audit(
    retriever: Retriever, *, attacker: AttackerFactory | None = None, tell: Tell | None = None, **options: Any
) -> Audit:
    """Attack an index's vectors without a defence and with each of several.

    :param options: the fields of `AuditConfig`.
    :raises InputError: for settings that cannot be, or when the index holds too little text.
    :raises MissingExtraError: when sacrebleu, or what the attacker needs, is not installed.
    """
    began = time.monotonic()
    recovered.require()
    tell = tell or (lambda _: None)
    config = AuditConfig(**options)
    config.check()
    snapshot, encoder = retriever.snapshot(), retriever.encoder
    chosen = defences.default(encoder.dim) if config.settings is None else defences.parse(config.settings)
    at = ""  # which of the settings it is

    def told(text: str) -> None:
        tell(f"{at}{text}")

    make = attacker or default_attacker(told)
    texts = LeakTexts.of(retriever, config, tell)
    search = DefendedSearch.of(retriever, config, chosen, tell)
    run = _Run(encoder, texts, search, make, config, told)
    results = []
    for number, setting in enumerate(chosen, 1):
        at = f"{number} of {len(chosen)}, {'as stored' if number == 1 else setting.name}: "
        results.append(run.result(setting))
    head = snapshot.head.encoder
    frequent = run.frequent()
    return Audit(
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
        bleu=recovered.bleu_signature(),
        frequent=frequent,
        results=results,
        notes=[*texts.notes, *remarks(encoder, results, frequent)],
        seconds=time.monotonic() - began,
    )


def _encoded(encoder: Encoder, texts: Sequence[str], tell: Tell) -> Floats:
    what = f"encoding {len(texts):,} texts that the attacker learns from"
    tell(what)
    starts = counted(range(0, len(texts), _AT_ONCE), tell, what)
    return np.concatenate([encoder.encode(texts[start : start + _AT_ONCE]) for start in starts])


class _Run:
    """The attacks, one defence after another."""

    def __init__(
        self,
        encoder: Encoder,
        texts: LeakTexts,
        search: DefendedSearch,
        make: AttackerFactory,
        config: AuditConfig,
        tell: Tell,
    ) -> None:
        self._encoder, self._texts, self._search = encoder, texts, search
        self._make, self._config, self._tell = make, config, tell
        self._own = _encoded(encoder, texts.corpus, tell)  # as the encoder gives them, as are the next
        tell("encoding the texts that are attacked")
        self._true = {length: encoder.encode(found) for length, found in texts.true.items()}
        self._undefended: Attacker | None = None  # who has learned from vectors as the encoder gives them
        self._ndcg: Floats | None = None

    def result(self, setting: Setting) -> Result:
        defence, texts = self._search.fitted[setting.name], self._texts
        own = defence.documents(self._own, texts.corpus)
        stolen = {length: defence.documents(self._true[length], texts.true[length]) for length in texts.true}
        attacker = self._make(own.shape[1], self._config.seed, self._encoder)
        self._tell("learning")
        attacker.fit(own, texts.corpus, self._config.seconds)
        if self._undefended is None:
            assert setting.kind == "none"
            self._undefended = attacker
        attacks = {PAIRS: self._attack(attacker, stolen)}
        if setting.kind == "rotation":
            attacks[ENCODER_ONLY] = self._attack(self._undefended, stolen)
        ndcg = self._search.ndcg(setting.name)
        before = self._ndcg = ndcg if self._ndcg is None else self._ndcg
        mean, plain = float(ndcg.mean()), float(before.mean())
        low, high = significance.interval(ndcg, seed=self._config.seed)
        return Result(
            name=setting.name,
            kind=setting.kind,
            bytes=defence.bytes,
            dim=defence.stored_dim,
            ndcg=Value(round(mean, 4), round(low, 4), round(high, 4)),
            keep=mean / plain if plain else 0.0,
            difference=significance.difference(ndcg, before, seed=self._config.seed),
            same_ranking=bool((ndcg == before).all()),
            attacks=attacks,
            nearest=self._nearest(own, stolen),
        )

    def _attack(self, attacker: Attacker, stolen: Mapping[int, Floats]) -> Attack:
        by_length, examples = {}, []
        for length, vectors in stolen.items():
            self._tell(f"recovering {len(vectors):,} texts of {length} tokens")
            found = attacker.recover(vectors)
            if len(found) != len(vectors):
                raise InputError(f"the attacker gave {len(found)} texts for {len(vectors)} vectors")
            by_length[length] = self._compared(length, found, self._cosines(length, found))
            examples += self._shown(length, found, by_length[length])
        return Attack(by_length, examples)

    def _cosines(self, length: int, found: Sequence[str]) -> Floats:
        """Of the recovered texts, encoded again, with the true vectors; 0 where no text was recovered."""
        cosines = metric.cosines(self._encoder.encode(list(found)), self._true[length])
        cosines[[not text.strip() for text in found]] = 0
        return cosines

    def _compared(self, length: int, found: Sequence[str], cosines: Floats) -> Recovery:
        texts = self._texts
        return recovered.compare(texts.true[length], found, texts.tokens, cosines=cosines, seed=self._config.seed)

    def _shown(self, length: int, found: Sequence[str], recovery: Recovery) -> list[Example]:
        """The best recovered text and others spread evenly over the rest, down to the worst."""
        order = np.argsort(recovery.f1, kind="stable")[::-1]
        count = min(self._config.examples, len(order))
        places = order[np.linspace(0, len(order) - 1, count + 1).round().astype(int)[:count]]
        true = self._texts.true[length]
        return [Example(length, round(recovery.f1[place], 4), true[place], found[place]) for place in places.tolist()]

    def _nearest(self, own: Floats, stolen: Mapping[int, Floats]) -> ByLength:
        """For each stolen vector the text of the attacker's own part whose stored vector is nearest."""
        found = {}
        for length, vectors in stolen.items():
            places = np.array([int((own @ vector).argmax()) for vector in vectors])
            cosines = metric.cosines(self._own[places], self._true[length])
            found[length] = self._compared(length, [self._texts.corpus[place] for place in places], cosines)
        return found

    def frequent(self) -> ByLength:
        """For each text the same: the tokens that most texts of its length have, as often as most of them have them."""
        found = {}
        for length, texts in self._texts.true.items():
            counts: dict[tuple[int, int], int] = {}  # token and which time it comes -> texts
            for tokens in self._texts.tokens(self._texts.by_length[length] or self._texts.corpus):
                seen: dict[int, int] = {}
                for token in tokens:
                    seen[token] = seen.get(token, 0) + 1
                    counts[token, seen[token]] = counts.get((token, seen[token]), 0) + 1
            best = sorted(counts, key=lambda one: (-counts[one], one))[:length]
            guess = self._texts.tokens.text([token for token, _ in best])
            cosines = self._cosines(length, [guess] * len(texts))
            found[length] = self._compared(length, [guess] * len(texts), cosines)
        return found
