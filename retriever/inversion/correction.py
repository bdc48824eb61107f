"""Search for the text nearest to a vector: change proposals, encode them again, and keep the changes that help.

The loop through the real encoder is that of vec2text's corrector (Morris et al. 2023, arXiv:2310.06816). That corrector
is a second model, which rewrites a text from two vectors. Here the decoder that made the proposals says which other
tokens could be at each position, and a beam of the nearest texts goes on. So no second model is trained, and the search
works with every encoder.

Single changes cannot put words into order, so each round also moves spans and exchanges tokens. When the score stops
rising and there is time, the search starts again from the nearest text with some random changes (iterated local search:
Lourenço et al. 2003, doi:10.1007/0-306-48056-5_11).

A text's score is its cosine plus a weight times the likelihood of its tokens. The weight falls with the distance of the
nearest text: the decoder guides a search that is far away, and the vector decides one that is near. With a constant
weight, half of the texts that a search ended at had a higher score than the true text.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.arrays import Floats, Integers

    Ids = tuple[int, ...]
    Embed = Callable[[Sequence[Ids]], Floats]
    ChangeKey = tuple[int, str, int]  # number of the token that is changed, kind, new token

_BEAM = 8  # texts that combined changes start from
_SINGLE = 256  # single changes of the nearest text to measure in a round
_COMBINED = 128  # texts with several changes to encode in a round
_STEPS = 12  # maximum number of changes to combine
_MEMORY = 4_000  # measured changes to remember, the newest
_PATIENCE = 4  # rounds without a gain; each draws its changes with more randomness
_ORDERS = 64  # other orders of the nearest text to encode in a round
_STRETCH = 6  # maximum number of tokens that are moved together
_KICKS = 0.2  # share of the tokens that a new start changes
_KICK_TEMPERATURE = 3.0  # nats: how random they are
_EXACT = 0.9999  # cosine that ends the search
_MIN_GAIN = 1e-4  # of the cosine
_MIN_SQUARE = 1e-6  # of the length of a summed vector: a change may delete all that a text says
_LIKELY = 0.03  # maximum weight of a nat per token, relative to the cosine
_LIKELY_NEAR = 0.3  # the same, as a share of 1 minus the cosine of the nearest text


@dataclass(frozen=True, slots=True)
class Change:
    """Insert, delete or replace one token."""

    position: int
    kind: str  # "replace", "insert" before the position, or "delete"
    token: int = -1

    def __call__(self, ids: Ids) -> Ids:
        """Return the token ids after the change, as a new tuple."""
        before, after = ids[: self.position], ids[self.position + (self.kind != "insert") :]
        return before + after if self.kind == "delete" else (*before, self.token, *after)


class Proposer(Protocol):
    """A decoder that judges texts for a vector."""

    def changes(self, ids: Ids, own: Floats) -> list[tuple[float, Change]]:
        """Changes worth trying, with how much likelier each makes the text, in nats.

        :param own: the vector of the unchanged text.
        """
        ...

    def likelihood(self, ids: Ids) -> float:
        """How likely a text's tokens are for the vector, in any order: nats per token."""
        ...


@dataclass(frozen=True, slots=True)
class Correction:
    """A text as token ids, and the cosine of its vector with the target."""

    ids: Ids
    cosine: float
    rounds: int


def correct(
    vector: Floats,
    proposals: Sequence[Ids],
    proposer: Proposer,
    embed: Embed,
    *,
    seconds: float,
    seed: int = 0,
    longest: int = 128,
    rounds: int | None = None,
    starts: int | None = None,
) -> Correction:
    """Find a text near `vector`; stop when the time or the rounds are up, or a text has this vector.

    :param vector: (dim,) of length 1.
    :param embed: encodes texts given as token ids, as the vector was encoded; vectors of length 1.
    :param longest: maximum number of tokens in a text.
    :param rounds: maximum number of rounds: a limit that does not depend on the machine's speed.
    :param starts: maximum number of new starts; after the last one, the search ends when its cosine stops rising.
    """
    return _Search(vector, proposer, embed, seed, longest).run(proposals, time.monotonic() + seconds, rounds, starts)


@dataclass(frozen=True, slots=True)
class _Text:
    """An encoded text. Each of its tokens has a number of its own, which changed texts inherit."""

    ids: Ids
    slots: tuple[int, ...]  # the numbers of the tokens; the additional last one is of the end
    vector: Floats
    likely: float  # nats per token
    cosine: float


class _Search:
    """Measure the changes of a text one by one, then combine the changes with the nearest sum.

    A change is measured as the difference that it makes to the text's vector. Several changes together make nearly the
    sum of their differences. So sums choose up to a dozen changes to combine, and only combined texts are encoded.
    """

    def __init__(self, vector: Floats, proposer: Proposer, embed: Embed, seed: int, longest: int) -> None:
        self._vector, self._proposer, self._embed, self._longest = vector, proposer, embed, longest
        self._random = np.random.default_rng(seed)
        self._known: dict[Ids, _Text] = {}
        self._slots = 0
        self._weight = _LIKELY
        self._measured = _MeasuredChanges(vector)
        self._proposed: tuple[Ids, list[tuple[float, Change]]] = ((), [])

    def run(
        self, proposals: Sequence[Ids], deadline: float, limit: int | None = None, starts: int | None = None
    ) -> Correction:
        self._encode([(ids, self._new_slots(len(ids) + 1)) for ids in proposals])
        if not self._known:
            return Correction((), 0.0, 0)
        nearest, waited, rounds = self._best(1)[0], 0, 0
        while rounds != limit and time.monotonic() < deadline and nearest.cosine < _EXACT:
            if waited == _PATIENCE:
                if starts == 0:
                    break
                starts = None if starts is None else starts - 1
                self._start_again(nearest)
                waited = 0
            rounds += 1
            self._weight = min(self._weight, _LIKELY_NEAR * max(0.0, 1 - nearest.cosine))
            best = self._best(1)[0]
            self._measure(best, 0.5 + waited)
            self._combine()
            self._rearrange(best)
            waited = 0 if self._score(self._best(1)[0]) > self._score(best) + _MIN_GAIN else waited + 1
            nearest = max(nearest, self._best(1)[0], key=self._score)
        return Correction(nearest.ids, nearest.cosine, rounds)

    def _start_again(self, nearest: _Text) -> None:
        """Forget all texts but one: the nearest with some likely changes."""
        proposed = self._proposer.changes(nearest.ids, nearest.vector)
        gains = np.array([gain for gain, _ in proposed])
        order = np.argsort(-(gains + _KICK_TEMPERATURE * self._random.gumbel(size=len(gains))))
        by_position: dict[int, Change] = {}
        for number in order:
            by_position.setdefault(proposed[number][1].position, proposed[number][1])
        changes = list(by_position.values())[: max(2, round(_KICKS * len(nearest.ids)))]
        self._known = {}
        self._encode([(apply_changes(nearest.ids, changes), self._slots_after(nearest, changes))])
        if not self._known:
            self._known = {nearest.ids: nearest}

    def _rearrange(self, text: _Text) -> None:
        """Encode a text's tokens in other orders."""
        orders = [self._order(len(text.ids)) for _ in range(_ORDERS)]
        ids = [tuple(text.ids[position] for position in order) for order in orders]
        slots = [(*(text.slots[position] for position in order), text.slots[-1]) for order in orders]
        self._encode(list(zip(ids, slots, strict=True)))

    def _order(self, count: int) -> list[int]:
        """An order of tokens with two of them exchanged, or with a stretch moved."""
        order = list(range(count))
        first, second = self._random.integers(count, size=2).tolist()
        if self._random.random() < 0.5:
            order[first], order[second] = second, first
            return order
        stretch = order[first : first + 1 + int(self._random.integers(_STRETCH))]
        rest = order[:first] + order[first + len(stretch) :]
        target = min(second, len(rest))
        return rest[:target] + stretch + rest[target:]

    def _best(self, count: int) -> list[_Text]:
        return nlargest(count, self._known.values(), key=self._score)

    def _score(self, text: _Text) -> float:
        return text.cosine + self._weight * text.likely

    def _new_slots(self, count: int) -> tuple[int, ...]:
        self._slots += count
        return tuple(range(self._slots - count, self._slots))

    def _encode(self, texts: Sequence[tuple[Ids, tuple[int, ...]]]) -> None:
        """Encode the texts that are new."""
        new = {ids: slots for ids, slots in texts if ids and len(ids) <= self._longest and ids not in self._known}
        for (ids, slots), vector in zip(new.items(), self._embed(list(new)) if new else (), strict=True):
            self._known[ids] = _Text(ids, slots, vector, self._proposer.likelihood(ids), float(vector @ self._vector))

    def _measure(self, text: _Text, temperature: float) -> None:
        """Encode a text with single changes, drawn by how much likelier they make it."""
        if self._proposed[0] != text.ids:
            self._proposed = text.ids, self._proposer.changes(text.ids, text.vector)
        measured = self._measured.keys
        changes = [(gain, change) for gain, change in self._proposed[1] if _key(text, change) not in measured]
        gains = np.array([gain for gain, _ in changes])
        order = np.argsort(-(gains + temperature * self._random.gumbel(size=len(gains))))
        drawn = [changes[number][1] for number in order[:_SINGLE]]
        self._encode([(change(text.ids), self._slots_after(text, [change])) for change in drawn])
        for change in drawn:
            if changed := self._known.get(change(text.ids)):
                self._measured.add(_key(text, change), changed.vector - text.vector, changed.likely - text.likely)
        self._measured.forget()

    def _combine(self) -> None:
        """Encode texts with several measured changes, chosen by their sums."""
        texts: dict[Ids, tuple[int, ...]] = {}
        for rank, text in enumerate(self._best(_BEAM)):
            applicable = self._measured.applicable(text)
            for attempt in range(4 if rank == 0 else 2):
                rows = applicable if attempt == 0 else applicable[self._random.random(len(applicable)) < 0.6]
                path = self._measured.path(text, rows, self._weight)
                for count in range(2, len(path) + 1):
                    changes = [self._measured.change(text, row) for row in path[:count]]
                    texts.setdefault(apply_changes(text.ids, changes), self._slots_after(text, changes))
        items = list(texts.items())
        if len(items) > _COMBINED:
            items = [items[number] for number in self._random.choice(len(items), _COMBINED, replace=False)]
        self._encode(items)

    def _slots_after(self, text: _Text, changes: Sequence[Change]) -> tuple[int, ...]:
        """The numbers of the tokens after these changes."""
        slots = list(text.slots)
        for change in sorted(changes, key=_from_the_end):
            if change.kind == "delete":
                del slots[change.position]
            elif change.kind == "insert":
                slots.insert(change.position, *self._new_slots(1))
            else:
                slots[change.position] = self._new_slots(1)[0]
        return tuple(slots)


class _MeasuredChanges:
    """Measured changes: the number of the token that each changes, and its difference to the vector."""

    def __init__(self, vector: Floats) -> None:
        """:param vector: (dim,) of length 1, to come near to."""
        self._vector = vector
        self._keys: list[ChangeKey] = []
        self._deltas = np.empty((0, len(vector)), np.float32)
        self._likely: list[float] = []
        self._new: list[Floats] = []

    @property
    def keys(self) -> set[ChangeKey]:
        return set(self._keys)

    def add(self, key: ChangeKey, delta: Floats, likely: float) -> None:
        self._keys.append(key)
        self._likely.append(likely)
        self._new.append(delta)

    def forget(self) -> None:
        """Keep the newest changes."""
        new = np.array(self._new, np.float32).reshape(-1, self._deltas.shape[1])
        self._deltas = np.concatenate([self._deltas, new])[-_MEMORY:]
        self._keys, self._likely, self._new = self._keys[-_MEMORY:], self._likely[-_MEMORY:], []

    def applicable(self, text: _Text) -> Integers:
        """Rows of the changes that can be made in a text."""
        return np.flatnonzero(np.isin([slot for slot, _, _ in self._keys], text.slots))

    def change(self, text: _Text, row: int) -> Change:
        slot, kind, token = self._keys[row]
        return Change(text.slots.index(slot), kind, token)

    def path(self, text: _Text, rows: Integers, weight: float) -> list[int]:
        """Choose changes one after another; each brings the summed vector nearest to the vector.

        :param weight: of a nat per token, relative to the cosine.

        No two of them change the same token, or put in the same new token.
        """
        keys = [self._keys[row] for row in rows]
        slots, tokens = np.array([key[0] for key in keys]), np.array([key[2] for key in keys])
        inserts = np.array([key[1] == "insert" for key in keys], bool)
        deltas, likely = self._deltas[rows], np.array([self._likely[row] for row in rows])
        products, squares = deltas @ self._vector, (deltas * deltas).sum(1)
        total, nats, allowed = text.vector.copy(), text.likely, np.ones(len(rows), bool)
        score = text.cosine + weight * text.likely
        path: list[int] = []
        while allowed.any() and len(path) < _STEPS:
            length = np.sqrt(np.maximum(total @ total + 2 * deltas @ total + squares, _MIN_SQUARE))
            scores = np.where(allowed, (total @ self._vector + products) / length + weight * (nats + likely), -np.inf)
            best = int(scores.argmax())
            if scores[best] <= score + _MIN_GAIN:
                break
            score, total, nats = float(scores[best]), total + deltas[best], nats + float(likely[best])
            path.append(int(rows[best]))
            allowed &= (slots != slots[best]) | (inserts != inserts[best])
            allowed &= (tokens != tokens[best]) | (tokens < 0)
        return path


def _key(text: _Text, change: Change) -> ChangeKey:
    return text.slots[change.position], change.kind, change.token


def _from_the_end(change: Change) -> tuple[int, bool]:
    return -change.position, change.kind == "insert"


def apply_changes(ids: Ids, changes: Sequence[Change]) -> Ids:
    """Return the text with all of these changes; positions count in the unchanged text."""
    for change in sorted(changes, key=_from_the_end):
        ids = change(ids)
    return ids
