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

import hashlib
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..indexes import metric
from ..indexes.errors import InputError
from ..retriever.encoder_tokens import EncoderTokens
from . import corpus, defences, recovered, search_cost, significance
from .audit_statements import ENCODER_ONLY, PAIRS, remarks, statements
from .leak_texts import cut
from .overlaps import Known
from .progress import counted
from .recovered import Recovery, Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ..retriever.defence import Defence
    from ..retriever.encoder import Encoder
    from ..retriever.retriever import Retriever
    from .defences import Setting
    from .progress import Tell

    Floats = NDArray[np.float32]
    ByLength = dict[int, Recovery]

LENGTHS = (8, 16, 32, 64, 128)
_QUERIES = 300  # made from the documents
_FEWEST = 20  # texts that an attacker learns from
_AT_ONCE = 2_048  # texts encoded at a time


class Attacker(Protocol):
    """Learns to recover texts from vectors."""

    def fit(self, vectors: Floats, texts: Sequence[str], seconds: float) -> None:
        """Learn from texts and their vectors, as a thief sees those, shape (n, dim), for about so long."""
        ...

    def recover(self, vectors: Floats) -> list[str]:
        """A text for each vector; an empty one where none was recovered."""
        ...


class Factory(Protocol):
    def __call__(self, dim: int, seed: int, encoder: Encoder) -> Attacker:
        """
        :param dim: of the stolen vectors, which a defence may have changed.
        :param encoder: of the index, which is public: its tokens and its vectors without the defence.
        """
        ...


def default_attacker(tell: Tell) -> Factory:
    """The attackers of `binocle audit`, which begin from one decoder."""
    from .attack import Attackers

    return Attackers(tell)


@dataclass(frozen=True, slots=True)
class Example:
    length: int
    f1: float
    true: str
    recovered: str


@dataclass(frozen=True, slots=True)
class Attack:
    by_length: ByLength
    examples: list[Example]


@dataclass(frozen=True, slots=True)
class Result:
    """What a defence lets through, and what it costs."""

    name: str
    kind: str
    bytes: int  # that a stored vector takes
    dim: int
    ndcg: Value
    keep: float  # nDCG@10 as a share of that without a defence; 0 where that is 0
    difference: significance.Difference  # of nDCG@10 to that without a defence, over queries
    same_ranking: bool  # whether every query's nDCG@10 is exactly what it was
    attacks: dict[str, Attack]  # by what the attacker has
    nearest: ByLength  # the baseline that looks for the nearest text of the attacker's own

    @property
    def leak(self) -> float:
        """The highest token F1 at any length, of any attacker or of the nearest text that one has learned from."""
        found = [*(attack.by_length for attack in self.attacks.values()), self.nearest]
        return max(recovery["f1"] for by_length in found for recovery in by_length.values())

    def as_dict(self) -> dict[str, Any]:
        row = defences.TABLE[self.kind]
        return {
            **{name: getattr(self, name) for name in ("name", "kind", "bytes", "dim", "same_ranking")},
            "documents": row.documents,
            "queries": row.queries,
            "source": row.source,
            "ndcg": asdict(self.ndcg),
            "keep": round(self.keep, 4),
            "difference": {name: round(value, 4) for name, value in asdict(self.difference).items()},
            "leak": round(self.leak, 4),
            "attacks": {
                name: {"lengths": _lengths(attack.by_length), "examples": [asdict(one) for one in attack.examples]}
                for name, attack in self.attacks.items()
            },
            "nearest": _lengths(self.nearest),
        }


@dataclass(slots=True)
class Audit:
    """What an audit found."""

    index: str
    model: str
    fingerprint: str
    documents: int
    passages: int
    learned: int  # texts that the attacker learned from
    queries: int
    query_source: str
    seconds_each: float  # that an attacker had to learn
    seed: int
    bleu: str  # sacrebleu's signature
    frequent: ByLength  # the baseline of most frequent tokens, whatever the defence
    results: list[Result]
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def front(self) -> list[str]:
        """The Pareto front: settings that no other beats in one of leak and quality without losing in the other."""
        return [one.name for one in self.results if not any(_beats(other, one) for other in self.results)]

    def satisfying(self, max_f1: float | None, min_keep: float | None) -> list[Result]:
        """The settings within both limits: best nDCG@10 first or, where any leak will do, least leak first."""
        within = [one for one in self.results if not _excess(one, max_f1, min_keep)]
        within.sort(key=lambda one: (-(one.ndcg.value or 0.0), one.leak))
        return within if max_f1 is not None else sorted(within, key=lambda one: one.leak)

    def nearest(self, max_f1: float | None, min_keep: float | None) -> list[Result]:
        """The settings by how far they are outside of the limits, nearest first."""
        return sorted(self.results, key=lambda one: _excess(one, max_f1, min_keep))

    def as_dict(self) -> dict[str, Any]:
        plain = (
            *("index", "model", "fingerprint", "documents", "passages", "learned", "queries", "query_source"),
            *("seconds_each", "seed", "bleu"),
        )
        return {
            **{name: getattr(self, name) for name in plain},
            "seconds": round(self.seconds, 1),
            "front": self.front(),
            "frequent": _lengths(self.frequent),
            "settings": [result.as_dict() for result in self.results],
            "statements": [*statements(self), *self.notes],
        }


def _lengths(found: ByLength) -> dict[str, Any]:
    return {str(length): recovery.as_dict() for length, recovery in found.items()}


def _beats(one: Result, other: Result) -> bool:
    no_worse = one.leak <= other.leak and one.keep >= other.keep
    return no_worse and (one.leak < other.leak or one.keep > other.keep)


def _excess(one: Result, max_f1: float | None, min_keep: float | None) -> float:
    over = 0.0 if max_f1 is None else max(0.0, one.leak - max_f1)
    under = 0.0 if min_keep is None else max(0.0, min_keep - one.keep)
    return over + under


def audit(
    retriever: Retriever,
    *,
    lengths: Sequence[int] = LENGTHS,
    texts_per_length: int = 100,
    corpus_texts: int = 20_000,
    seconds: float = 90.0,
    settings: Sequence[str] | None = None,
    queries: str | Path | None = None,
    split: str = "test",
    attacker: Factory | None = None,
    held_out: float = 0.2,
    examples: int = 2,
    seed: int = 0,
    tell: Tell | None = None,
) -> Audit:
    """Attack an index's vectors without a defence and with each of several.

    :param lengths: of the texts attacked, in the encoder's tokens.
    :param texts_per_length: texts attacked, at most.
    :param corpus_texts: texts of all lengths that the attacker learns from, at most.
    :param seconds: that the attacker learns for each defence; he begins with four times as many, and encodes texts.
    :param settings: defences as `defences.parse` reads them; one or several strengths of every kind unless given.
    :param queries: a folder in BEIR's layout whose documents' ids are the index's paths; else queries are made.
    :param held_out: the share of the documents that is attacked.
    :param examples: texts of each length to show with what was recovered of them; 0 keeps all text out of the report.
    :raises InputError: when the index holds too little text.
    :raises MissingExtraError: when sacrebleu, or what the attacker needs, is not installed.
    """
    began = time.monotonic()
    recovered.require()
    tell = tell or (lambda _: None)
    _check(lengths, texts_per_length, corpus_texts, seconds, held_out, examples, seed)
    snapshot, encoder = retriever.snapshot(), retriever.encoder
    chosen = defences.default(encoder.dim) if settings is None else defences.parse(settings)
    at = ""  # which of the settings it is

    def told(text: str) -> None:
        tell(f"{at}{text}")

    make = attacker or default_attacker(told)
    field_ = _Field.of(retriever, lengths, texts_per_length, corpus_texts, held_out, seed, tell)
    cost = _Cost.of(retriever, queries, split, seed, chosen, tell)
    run = _Run(encoder, field_, cost, make, seconds, examples, seed, told)
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
        documents=len(cost.searched.paths),
        passages=len(cost.searched.contexts),
        learned=len(field_.corpus),
        queries=len(cost.queries.judged),
        query_source=cost.queries.source,
        seconds_each=seconds,
        seed=seed,
        bleu=recovered.bleu_signature(),
        frequent=frequent,
        results=results,
        notes=[*field_.notes, *remarks(encoder, results, frequent)],
        seconds=time.monotonic() - began,
    )


def _check(
    lengths: Sequence[int], texts: int, corpus_texts: int, seconds: float, held_out: float, examples: int, seed: int
) -> None:
    if not lengths or any(length < 1 for length in lengths) or len(set(lengths)) < len(lengths):
        raise InputError(
            f"lengths are different numbers of tokens from 1, not {', '.join(map(str, lengths)) or 'none'}"
        )
    for name, value, least in (
        ("texts", texts, 2),
        ("corpus texts", corpus_texts, _FEWEST),
        ("examples", examples, 0),
        ("seed", seed, 0),
    ):
        if value < least:
            raise InputError(f"{name} is a whole number from {least}, not {value}")
    if not 0 < seconds < np.inf:
        raise InputError(f"seconds is how long the attacker learns, a number above 0, not {seconds}")
    if not 0 < held_out < 1:
        raise InputError(f"held out is a share of the documents between 0 and 1, not {held_out}")


@dataclass(frozen=True, slots=True)
class _Cost:
    """The search whose quality a defence costs."""

    queries: search_cost.Queries
    asked: Floats
    searched: search_cost.Passages
    made: dict[str, Defence]  # setting -> defence fitted to the index's vectors

    @classmethod
    def of(
        cls,
        retriever: Retriever,
        folder: str | Path | None,
        split: str,
        seed: int,
        chosen: Sequence[Setting],
        tell: Tell,
    ) -> _Cost:
        snapshot = retriever.snapshot()
        tell("making queries from the documents" if folder is None else "reading the queries")
        queries = (
            search_cost.made(snapshot, _QUERIES, seed)
            if folder is None
            else search_cost.labelled(folder, split, snapshot)
        )
        tell("fitting the defences to the passages")
        searched = search_cost.passages(snapshot, queries, seed)
        key = hashlib.sha256(f"audit {seed}".encode()).digest()
        made = {setting.name: defences.make(setting, searched.vectors, key) for setting in chosen}
        return cls(queries, search_cost.encoded(queries, retriever.encoder), searched, made)

    def ndcg(self, name: str) -> Floats:
        """Of each query with that defence."""
        defence = self.made[name]
        stored = defence.documents(self.searched.vectors, self.searched.contexts)
        found = search_cost.ndcg(self.queries, defence.queries(self.asked), stored, self.searched)
        return np.array(list(found.values()))


@dataclass(frozen=True, slots=True)
class _Field:
    """The texts that are learned from and those that are attacked."""

    corpus: list[str]
    by_length: dict[int, list[str]]  # of the corpus
    true: dict[int, list[str]]
    tokens: EncoderTokens
    notes: list[str]

    @classmethod
    def of(
        cls,
        retriever: Retriever,
        lengths: Sequence[int],
        texts: int,
        corpus_texts: int,
        held_out: float,
        seed: int,
        tell: Tell,
    ) -> _Field:
        snapshot, encoder = retriever.snapshot(), retriever.encoder
        own, attacked = corpus.split(corpus.from_index(snapshot), held_out, seed)
        fitting = sorted(length for length in lengths if length <= encoder.max_tokens)
        notes = [
            f"{encoder.name} reads {encoder.max_tokens} tokens: texts of {length} were left out."
            for length in sorted(set(lengths) - set(fitting))
        ]
        tell("cutting texts out of the passages")
        each = -(-corpus_texts // max(1, len(fitting)))
        learned = cut(corpus.few(own, 4 * each, seed), encoder, fitting, each, seed, tell=tell)
        few = corpus.few(attacked, 20 * texts, seed)
        theirs = {passage.text for source in few for passage in source.passages}
        both = frozenset(passage.text for source in own for passage in source.passages if passage.text in theirs)
        own_texts = dict.fromkeys(text for found in learned.values() for text in found)
        tokens = EncoderTokens(encoder)
        known, near = Known(tokens(list(own_texts))), 0
        true: dict[int, list[str]] = {}
        for length, found in cut(few, encoder, fitting, 4 * texts, seed + 1, without=both, known=own_texts).items():
            apart = [text for text, ids in zip(found, tokens(found), strict=True) if not known.holds(ids)]
            near += len(found) - len(apart)
            true[length] = apart[:texts]
        if near:
            notes.append(f"{near} texts were not attacked: most of each stands in what the attacker learned from.")
        notes += [
            f"Of {length} tokens there were {len(found)} texts to attack, not {texts}."
            for length, found in true.items()
            if len(found) < texts
        ]
        true = {length: found for length, found in true.items() if len(found) > 1}
        if len(own_texts) < _FEWEST or not true:
            raise InputError(
                f"{retriever.path} holds too little to audit: {len(own_texts)} texts to learn from and "
                f"{sum(map(len, true.values()))} to attack came from its documents; expected some dozens of documents "
                f"with passages of {min(lengths)} tokens and more"
            )
        return cls(list(own_texts), learned, true, tokens, notes)


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
        field_: _Field,
        cost: _Cost,
        make: Factory,
        seconds: float,
        examples: int,
        seed: int,
        tell: Tell,
    ) -> None:
        self._encoder, self._field, self._cost = encoder, field_, cost
        self._make, self._seconds, self._examples, self._seed, self._tell = make, seconds, examples, seed, tell
        self._own = _encoded(encoder, field_.corpus, tell)  # as the encoder gives them, as are the next
        tell("encoding the texts that are attacked")
        self._true = {length: encoder.encode(found) for length, found in field_.true.items()}
        self._undefended: Attacker | None = None  # who has learned from vectors as the encoder gives them
        self._ndcg: Floats | None = None

    def result(self, setting: Setting) -> Result:
        defence, field_ = self._cost.made[setting.name], self._field
        own = defence.documents(self._own, field_.corpus)
        stolen = {length: defence.documents(self._true[length], field_.true[length]) for length in field_.true}
        attacker = self._make(own.shape[1], self._seed, self._encoder)
        self._tell("learning")
        attacker.fit(own, field_.corpus, self._seconds)
        if self._undefended is None:
            assert setting.kind == "none"
            self._undefended = attacker
        attacks = {PAIRS: self._attack(attacker, stolen)}
        if setting.kind == "rotation":
            attacks[ENCODER_ONLY] = self._attack(self._undefended, stolen)
        ndcg = self._cost.ndcg(setting.name)
        before = self._ndcg = ndcg if self._ndcg is None else self._ndcg
        mean, plain = float(ndcg.mean()), float(before.mean())
        low, high = significance.interval(ndcg, seed=self._seed)
        return Result(
            name=setting.name,
            kind=setting.kind,
            bytes=defence.bytes,
            dim=defence.stored_dim,
            ndcg=Value(round(mean, 4), round(low, 4), round(high, 4)),
            keep=mean / plain if plain else 0.0,
            difference=significance.difference(ndcg, before, seed=self._seed),
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
        field_ = self._field
        return recovered.compare(field_.true[length], found, field_.tokens, cosines=cosines, seed=self._seed)

    def _shown(self, length: int, found: Sequence[str], recovery: Recovery) -> list[Example]:
        """The best recovered text and others spread evenly over the rest, down to the worst."""
        order = np.argsort(recovery.f1, kind="stable")[::-1]
        count = min(self._examples, len(order))
        places = order[np.linspace(0, len(order) - 1, count + 1).round().astype(int)[:count]]
        true = self._field.true[length]
        return [Example(length, round(recovery.f1[place], 4), true[place], found[place]) for place in places.tolist()]

    def _nearest(self, own: Floats, stolen: Mapping[int, Floats]) -> ByLength:
        """For each stolen vector the text of the attacker's own part whose stored vector is nearest."""
        found = {}
        for length, vectors in stolen.items():
            places = np.array([int((own @ vector).argmax()) for vector in vectors])
            cosines = metric.cosines(self._own[places], self._true[length])
            found[length] = self._compared(length, [self._field.corpus[place] for place in places], cosines)
        return found

    def frequent(self) -> ByLength:
        """For each text the same: the tokens that most texts of its length have, as often as most of them have them."""
        found = {}
        for length, texts in self._field.true.items():
            counts: dict[tuple[int, int], int] = {}  # token and which time it comes -> texts
            for tokens in self._field.tokens(self._field.by_length[length] or self._field.corpus):
                seen: dict[int, int] = {}
                for token in tokens:
                    seen[token] = seen.get(token, 0) + 1
                    counts[token, seen[token]] = counts.get((token, seen[token]), 0) + 1
            best = sorted(counts, key=lambda one: (-counts[one], one))[:length]
            guess = self._field.tokens.text([token for token, _ in best])
            cosines = self._cosines(length, [guess] * len(texts))
            found[length] = self._compared(length, [guess] * len(texts), cosines)
        return found
