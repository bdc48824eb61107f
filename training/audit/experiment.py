"""Attack the vectors of one index with each defence: who attacks, what he knows, and how well he reads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError
from ...core.progress import Progress, counted
from ...indexes import metric
from ...retriever.models.encoders.defended_encoder import DefendedEncoder
from ..evaluation import significance
from ..inversion import metrics as recovery_metrics
from ..inversion.metrics import Value
from . import defences
from .attacks.alignment import align
from .attacks.attacker import Corrector
from .attacks.averaging import with_neighbours
from .attacks.candidates import OUTSIDERS, AttackerSpace, CandidateAttack, membership
from .attacks.ridge import RidgeBag
from .attacks.unknown_encoder import Suspects
from .config import AVERAGED, CORRECTED, PAIRS, RIDGE, RIDGE_WITHOUT_PAIRS, WITHOUT_PAIRS
from .result import Alignment, AttackExample, AttackResult, DefenceResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...core.arrays import Floats, Positions
    from ...core.progress import OnProgress
    from ...retriever.models.encoder import Encoder
    from ..inversion.metrics import Recovery
    from .attacks.attacker import Attacker, AttackerFactory
    from .attacks.unknown_encoder import Suspect
    from .config import AuditConfig
    from .defences import DefenceSetting
    from .result import ByLength
    from .search_cost import DefendedSearch
    from .texts import LeakTexts

_BATCH_SIZE = 2_048  # texts encoded at a time
_CORRECTED_LENGTH = 32  # tokens of them; the nearest length of the audit is taken
_SUSPECTED_TEXTS = 2_500  # of a thief who does not know the encoder
_SUSPECTED = ("none", "rotation")  # the defences that he is tried against
_ALL = slice(None)


class Experiment:
    """The attacks on all settings of one audit; the setting "none" comes first."""

    def __init__(
        self,
        encoder: Encoder,
        texts: LeakTexts,
        search: DefendedSearch,
        factory: AttackerFactory | None,
        config: AuditConfig,
        on_progress: OnProgress,
        suspects: Sequence[Encoder] = (),
    ) -> None:
        """:param factory: makes the attacker that learns in steps; None: attacks in closed form alone."""
        self._encoder, self._texts, self._search = encoder, texts, search
        self._factory, self._config, self._on_progress = factory, config, on_progress
        stage = f"encoding {len(texts.corpus):,} texts that the attacker learns from"
        self._own = self._encoded(texts.corpus, stage)  # undefended, as are the next
        stage = "encoding the texts that are attacked"
        self._true = {length: self._encoded(of_length, stage) for length, of_length in texts.true.items()}
        self._rows = {length: texts.rows(length) for length in texts.true}
        self._tokens = texts.tokens(texts.corpus)
        self._common = texts.common_tokens()
        self.guessing = self._most_frequent()
        self._cut_off = False
        on_progress(Progress("encoding candidates"))
        defended = isinstance(encoder, DefendedEncoder)
        self._candidates = None if defended else CandidateAttack(texts, encoder, config.seed, quick=config.quick)
        self._suspects = self._suspected(suspects) if suspects else None
        self._undefended: tuple[Attacker | None, dict[int, RidgeBag]] | None = None  # learned from undefended vectors
        self._undefended_ndcg: Floats | None = None

    def _encoded(self, texts: Sequence[str], stage: str) -> Floats:
        """Return the stored vectors of passages, and encode all other texts."""
        stored = self._texts.stored
        unstored = [text for text in texts if text not in stored]
        starts = counted(range(0, len(unstored), _BATCH_SIZE), self._on_progress, stage)
        batches = [self._encoder.encode(unstored[start : start + _BATCH_SIZE]) for start in starts]
        encoded = dict(zip(unstored, np.concatenate(batches), strict=True)) if unstored else {}
        return np.array([stored[text] if text in stored else encoded[text] for text in texts], np.float32)

    def result(self, setting: DefenceSetting) -> DefenceResult:
        """Attack the vectors with a defence, and measure its cost."""
        defence, texts = self._search.fitted[setting.name], self._texts
        own = defence.documents(self._own, texts.corpus)
        stolen = {length: defence.documents(self._true[length], texts.true[length]) for length in texts.true}
        attacks, alignment = self._attacks(setting, own, stolen)
        ndcg = self._search.ndcg(setting.name)
        before = self._undefended_ndcg = ndcg if self._undefended_ndcg is None else self._undefended_ndcg
        mean, undefended_mean = float(ndcg.mean()), float(before.mean())
        bounds = [
            round(bound, 4) if math.isfinite(bound) else None  # of one query
            for bound in significance.interval(ndcg, seed=self._config.seed)
        ]
        return DefenceResult(
            name=setting.name,
            kind=setting.kind,
            bytes=defence.bytes,
            dim=defence.stored_dim,
            ndcg=Value(round(mean, 4), *bounds),
            keep=mean / undefended_mean if undefended_mean else 0.0,
            difference=significance.difference(ndcg, before, seed=self._config.seed),
            same_ranking=bool((ndcg == before).all()),
            attacks=attacks,
            nearest=self._nearest(own, stolen),
            guessing=self.guessing,
            alignment=alignment,
            suspects=self._unknown_encoder(own, stolen) if self._suspects and setting.kind in _SUSPECTED else [],
            cut_off=self._cut_off,
            epsilon=defences.epsilon(setting.strength) if setting.kind == "noise" else None,
            **self._facts(setting, own, stolen),
            seed=self._config.seed,
        )

    def _attacks(
        self, setting: DefenceSetting, own: Floats, stolen: Mapping[int, Floats]
    ) -> tuple[dict[str, AttackResult], Alignment | None]:
        """Let each attacker read the stolen vectors; also return how far a rotation was undone."""
        attacker, bags = self._learned(own), self._bags(own)
        plain_attacker, plain_bags = self._undefended = self._undefended or (attacker, bags)
        attacks, alignment = {PAIRS: self._attack(attacker, stolen)} if attacker else {}, None
        attacks[RIDGE] = self._read(bags, stolen)
        if isinstance(attacker, Corrector):
            attacks[CORRECTED] = self._correct(attacker, bags, stolen, self._comparison(setting, own))
        if setting.kind == "noise":
            attacks[AVERAGED] = self._averaged(setting, own, stolen)
        if setting.kind == "rotation":
            aligned, alignment = self._aligned(own, stolen)
            if plain_attacker:
                attacks[WITHOUT_PAIRS] = self._attack(plain_attacker, aligned)
            attacks[RIDGE_WITHOUT_PAIRS] = self._read(plain_bags, aligned)
        return attacks, alignment

    def _learned(self, own: Floats) -> Attacker | None:
        """Let an attacker learn in steps from his own texts and their stored vectors, if the audit has one."""
        if self._factory is None:
            return None
        attacker = self._factory(own.shape[1], self._config.seed, self._encoder)
        self._on_progress(Progress("learning"))
        self._cut_off |= attacker.fit(own, self._texts.corpus, self._config.steps, self._config.seconds)
        return attacker

    def _aligned(self, own: Floats, stolen: Mapping[int, Floats]) -> tuple[dict[int, Floats], Alignment]:
        """Turn stolen vectors back without a known pair.

        The attacked texts and half of the attacker's documents are stolen as vectors. The attacker has the texts of the
        other half, without stolen vectors.
        """
        self._on_progress(Progress("undoing the rotation without pairs"))
        in_index = self._texts.in_index
        every = np.concatenate([own[in_index], *stolen.values()])
        plain = self._own[~in_index]
        turn_back = align(every, plain, seed=self._config.seed)
        aligned = {length: turn_back(vectors) for length, vectors in stolen.items()}
        cosines = np.concatenate([metric.cosines(aligned[length], self._true[length]) for length in aligned])
        return aligned, Alignment(len(every), len(plain), float(cosines.mean()))

    def _facts(self, setting: DefenceSetting, own: Floats, stolen: Mapping[int, Floats]) -> dict[str, Any]:
        """Let a thief with candidates pick facts, and tell indexed texts from others."""
        attack, length = self._candidates, max(self._texts.true)
        if attack is None:
            return {}
        self._on_progress(Progress("picking candidates"))
        comparison = self._comparison(setting, own)
        in_index, corpus = self._texts.in_index, self._texts.corpus
        rows = [row for row in self._rows[length].tolist() if not in_index[row]][:OUTSIDERS]
        outsiders = comparison.texts(self._own[rows], [corpus[row] for row in rows])
        members = comparison.texts(self._true[length], self._texts.true[length])
        store = comparison.stolen(np.concatenate([own[in_index], *stolen.values()]))
        return {
            "facts": attack.facts(stolen[attack.length], comparison),
            "membership": membership(members, outsiders, store, self._config.seed) if rows else None,
        }

    def _suspected(self, encoders: Sequence[Encoder]) -> Suspects:
        """Encode texts of documents outside the index with each suspected encoder, the index's own first."""
        length, in_index = self._sample_length(), self._texts.in_index
        rows = [row for row in self._rows[length].tolist() if not in_index[row]][:_SUSPECTED_TEXTS]
        self._on_progress(Progress(f"encoding {len(rows):,} texts with {len(encoders)} other encoders"))
        public = getattr(self._encoder, "base", self._encoder)
        texts = [self._texts.corpus[row] for row in rows]
        return Suspects([public, *encoders], texts, [self._tokens[row] for row in rows], length, self._config.seed)

    def _unknown_encoder(self, own: Floats, stolen: Mapping[int, Floats]) -> list[Suspect]:
        """Let a thief who has no pair and does not know the encoder name it, and read through it."""
        assert self._suspects
        length, in_index = self._sample_length(), self._texts.in_index
        self._on_progress(Progress("looking for the encoder"))
        rows = [row for row in self._rows[length].tolist() if in_index[row]][:_SUSPECTED_TEXTS]
        every = np.concatenate([own[rows], stolen[length]])
        return self._suspects.likeliest(every, self._texts.tokens(self._texts.true[length]))

    def _sample_length(self) -> int:
        """The length nearest to 32 tokens."""
        return min(self._texts.true, key=lambda size: (abs(size - _CORRECTED_LENGTH), size))

    def _comparison(self, setting: DefenceSetting, own: Floats) -> AttackerSpace:
        """The space where a thief compares texts with stolen vectors; he knows the defence, not its key."""
        if setting.kind == "rotation":
            left, _, right = np.linalg.svd(own.T @ self._own)
            turn = left @ right
            return AttackerSpace(lambda stolen: stolen @ turn, lambda plain, _: plain)
        if setting.kind == "noise":
            return AttackerSpace(lambda stolen: stolen, lambda plain, _: plain)
        return AttackerSpace(lambda stolen: stolen, self._search.fitted[setting.name].documents, defended=True)

    def _bags(self, own: Floats) -> dict[int, RidgeBag]:
        """Fit a ridge for each length to the attacker's pairs."""
        self._on_progress(Progress("fitting a ridge"))
        return {
            length: RidgeBag.fit(own[rows], [self._tokens[row] for row in rows], length, seed=self._config.seed)
            for length, rows in self._rows.items()
        }

    def _read(self, bags: Mapping[int, RidgeBag], stolen: Mapping[int, Floats]) -> AttackResult:
        """Answer each stolen vector with the tokens that a ridge expects."""
        return self._answered({length: bags[length].tokens(vectors) for length, vectors in stolen.items()})

    def _averaged(self, setting: DefenceSetting, own: Floats, stolen: Mapping[int, Floats]) -> AttackResult:
        """Let a ridge read each vector beside its neighbours; those of a stored passage are among all passages."""
        self._on_progress(Progress("averaging near vectors"))
        tokens = {}
        for length, rows in self._rows.items():
            store = np.concatenate([own[rows], stolen[length]])
            if length == self._texts.stored_length:
                store = self._search.stored(setting.name)
            known = [self._tokens[row] for row in rows]
            bag = RidgeBag.fit(with_neighbours(own[rows], store), known, length, seed=self._config.seed)
            tokens[length] = bag.tokens(with_neighbours(stolen[length], store))
        return self._answered(tokens)

    def _answered(self, tokens: dict[int, list[list[int]]]) -> AttackResult:
        texts = {length: [self._texts.tokens.text(row) for row in rows] for length, rows in tokens.items()}
        return self._measured(texts, tokens)

    def _correct(
        self, attacker: Corrector, bags: Mapping[int, RidgeBag], stolen: Mapping[int, Floats], comparison: AttackerSpace
    ) -> AttackResult:
        """Attack a sample of the vectors of the length nearest to 32 tokens as `binocle invert` does."""
        length = self._sample_length()
        rows = np.unique(np.linspace(0, len(stolen[length]) - 1, self._config.corrected_texts).astype(int))
        self._on_progress(Progress(f"correcting {len(rows)} texts of {length} tokens"))
        vectors = stolen[length][rows]
        recovered = attacker.correct(vectors, comparison, bags[length].tokens(vectors))
        return AttackResult(
            {length: self._compared(length, recovered, self._cosines(length, recovered, rows), rows=rows)},
            [],
            rows.tolist(),
        )

    def _attack(self, attacker: Attacker, stolen: Mapping[int, Floats]) -> AttackResult:
        recovered = {}
        for length, vectors in stolen.items():
            self._on_progress(Progress(f"recovering {len(vectors):,} texts of {length} tokens"))
            recovered[length] = attacker.recover(vectors)
            if len(recovered[length]) != len(vectors):
                raise InputError(f"the attacker gave {len(recovered[length])} texts for {len(vectors)} vectors")
        return self._measured(recovered)

    def _measured(
        self, recovered: Mapping[int, list[str]], tokens: Mapping[int, list[list[int]]] | None = None
    ) -> AttackResult:
        """Measure recovered texts by length, with examples."""
        by_length, examples = {}, []
        for length, texts in recovered.items():
            of_length = None if tokens is None else tokens[length]
            by_length[length] = self._compared(length, texts, self._cosines(length, texts), of_length)
            examples += self._examples(length, texts, by_length[length])
        return AttackResult(by_length, examples)

    def _cosines(self, length: int, recovered: Sequence[str], rows: Positions | slice = _ALL) -> Floats:
        """Return the cosine of each recovered text, encoded again, with its true vector; 0 for an empty text."""
        different = list(dict.fromkeys(recovered))
        row_of = {text: row for row, text in enumerate(different)}
        encoded = self._encoder.encode(different)[[row_of[text] for text in recovered]]
        cosines = metric.cosines(encoded, self._true[length][rows])
        cosines[[not text.strip() for text in recovered]] = 0
        return cosines

    def _compared(
        self,
        length: int,
        recovered: Sequence[str],
        cosines: Floats,
        tokens: Sequence[Sequence[int]] | None = None,
        rows: Positions | slice = _ALL,
    ) -> Recovery:
        return recovery_metrics.compare(
            np.array(self._texts.true[length], object)[rows].tolist(),
            recovered,
            self._texts.tokens,
            cosines=cosines,
            tokens=tokens,
            common=self._common,
            seed=self._config.seed,
        )

    def _examples(self, length: int, recovered: Sequence[str], recovery: Recovery) -> list[AttackExample]:
        """Choose the best recovered text, and more at even steps down towards the worst."""
        order = np.argsort(recovery.f1, kind="stable")[::-1]
        count = min(self._config.examples, len(order))
        sample = order[np.linspace(0, len(order) - 1, count + 1).round().astype(int)[:count]].tolist()
        true = self._texts.true[length]
        return [AttackExample(length, round(recovery.f1[row], 4), true[row], recovered[row]) for row in sample]

    def _nearest(self, own: Floats, stolen: Mapping[int, Floats]) -> ByLength:
        """Answer each stolen vector with the attacker's own text that has the nearest stored vector."""
        by_length = {}
        for length, vectors in stolen.items():
            rows = np.array([int((own @ vector).argmax()) for vector in vectors])
            cosines = metric.cosines(self._own[rows], self._true[length])
            by_length[length] = self._compared(length, [self._texts.corpus[row] for row in rows], cosines)
        return by_length

    def _most_frequent(self) -> ByLength:
        """Answer every text with the tokens that occur in most of the attacker's texts of its length."""
        by_length = {}
        for length, texts in self._texts.true.items():
            tokens = self._frequent_tokens(length)
            guesses = [self._texts.tokens.text(tokens)] * len(texts)
            by_length[length] = self._compared(length, guesses, self._cosines(length, guesses), [tokens] * len(texts))
        return by_length

    def _frequent_tokens(self, length: int) -> list[int]:
        """Return the `length` most frequent tokens; a token is listed twice if enough texts have it twice."""
        counts: dict[tuple[int, int], int] = {}  # token and its occurrence in a text -> texts
        for tokens in self._texts.tokens(self._texts.by_length[length] or self._texts.corpus):
            occurrences: dict[int, int] = {}
            for token in tokens:
                occurrences[token] = occurrences.get(token, 0) + 1
                counts[token, occurrences[token]] = counts.get((token, occurrences[token]), 0) + 1
        best = sorted(counts, key=lambda occurrence: (-counts[occurrence], occurrence))[:length]
        return [token for token, _ in best]
