"""Better texts for a vector: proposals are encoded again, changed where that brings them nearer, and encoded again.

The idea of vec2text's corrector (Morris et al. 2023, arXiv:2310.06816): close the loop through the real encoder. Theirs
learns to rewrite a text from the two vectors; here the decoder that made the proposal is asked what else could stand at
each place, and a beam of the nearest texts goes on (no second model to train, and any encoder will do).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.arrays import Floats, Integers

    Ids = tuple[int, ...]
    Embed = Callable[[Sequence[Ids]], Floats]

_BEAM = 8  # texts from which joined changes begin
_SINGLE = 256  # changes of the nearest text that are measured in a round
_JOINED = 128  # texts with several changes that are encoded in a round
_STEPS = 12  # changes that are joined, at most
_KNOWN = 4_000  # newest measured changes that are remembered
_PATIENCE = 4  # rounds without a rise, with more and more chance in what is tried
_RISE = 1e-4  # of the cosine
_SHORTEST = 1e-6  # squared length of a sum: a change may take all that a text says
_LIKELY = 0.03  # what a nat a token counts beside the cosine


@dataclass(frozen=True, slots=True)
class Change:
    """One token put in, taken out, or put in another's place."""

    place: int
    kind: str  # "replace", "insert" before the place, or "delete"
    token: int = -1

    def __call__(self, ids: Ids) -> Ids:
        before, after = ids[: self.place], ids[self.place + (self.kind != "insert") :]
        return before + after if self.kind == "delete" else (*before, self.token, *after)


class Proposer(Protocol):
    """What a decoder is asked about a text for a vector."""

    def changes(self, vector: Floats, ids: Ids, own: Floats) -> list[tuple[float, Change]]:
        """Changes worth trying, with how much likelier each makes the text, in nats.

        :param own: the vector of the text as it is.
        """
        ...

    def rates(self, vector: Floats) -> Callable[[Ids], float]:
        """How likely a text's tokens are for the vector, in nats a token, whatever their order."""
        ...


@dataclass(frozen=True, slots=True)
class Corrected:
    """A text as token ids, and how near its vector is."""

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
) -> Corrected:
    """The text nearest to `vector` that was found before the time was up or the cosine stopped to rise.

    :param vector: (dim,) of length 1.
    :param embed: texts as token ids to vectors of length 1, as the vector was made.
    """
    return _Search(vector, proposer, embed, seed, longest).run(proposals, time.monotonic() + seconds)


@dataclass(frozen=True, slots=True)
class _Text:
    """A text that was encoded. Each of its tokens has a number of its own, which texts made from it keep."""

    ids: Ids
    slots: tuple[int, ...]  # one more than tokens: the last is of the end
    vector: Floats
    likely: float
    score: float


class _Search:
    """Changes are measured one by one, as what each adds to the vector; what several add is nearly the sum.

    So the sums say which changes to join, a dozen at a time, and only the joined texts are encoded.
    """

    def __init__(self, vector: Floats, proposer: Proposer, embed: Embed, seed: int, longest: int) -> None:
        self._vector, self._proposer, self._embed, self._longest = vector, proposer, embed, longest
        self._random = np.random.default_rng(seed)
        self._likely = proposer.rates(vector)
        self._known: dict[Ids, _Text] = {}
        self._slots = 0
        self._measured = _Measured(len(vector))
        self._worth: tuple[Ids, list[tuple[float, Change]]] = ((), [])

    def run(self, proposals: Sequence[Ids], until: float) -> Corrected:
        self._score([(ids, self._fresh(len(ids) + 1)) for ids in proposals])
        waited = rounds = 0
        while self._known and waited < _PATIENCE and time.monotonic() < until:
            rounds += 1
            best = self._best(1)[0]
            self._measure(best, 0.5 + waited)
            self._join()
            waited = 0 if self._best(1)[0].score > best.score + _RISE else waited + 1
        if not self._known:
            return Corrected((), 0.0, rounds)
        found = self._best(1)[0]
        return Corrected(found.ids, float(found.vector @ self._vector), rounds)

    def _best(self, count: int) -> list[_Text]:
        return sorted(self._known.values(), key=lambda text: -text.score)[:count]

    def _fresh(self, count: int) -> tuple[int, ...]:
        self._slots += count
        return tuple(range(self._slots - count, self._slots))

    def _score(self, texts: Sequence[tuple[Ids, tuple[int, ...]]]) -> None:
        new = {ids: slots for ids, slots in texts if ids and len(ids) <= self._longest and ids not in self._known}
        for (ids, slots), made in zip(new.items(), self._embed(list(new)) if new else (), strict=True):
            likely = self._likely(ids)
            self._known[ids] = _Text(ids, slots, made, likely, float(made @ self._vector) + _LIKELY * likely)

    def _measure(self, text: _Text, heat: float) -> None:
        """Encode a text with one change each."""
        if self._worth[0] != text.ids:
            self._worth = text.ids, self._proposer.changes(self._vector, text.ids, text.vector)
        here = self._measured.keys
        changes = [(gain, change) for gain, change in self._worth[1] if _key(text, change) not in here]
        gains = np.array([gain for gain, _ in changes])
        order = np.argsort(-(gains + heat * self._random.gumbel(size=len(gains))))
        drawn = [changes[place][1] for place in order[:_SINGLE]]
        self._score([(change(text.ids), self._after(text, [change])) for change in drawn])
        for change in drawn:
            if made := self._known.get(change(text.ids)):
                self._measured.add(_key(text, change), made.vector - text.vector, made.likely - text.likely)
        self._measured.forget()

    def _join(self) -> None:
        """Encode texts with several of the changes that were measured, those that come nearest by their sums."""
        found: dict[Ids, tuple[int, ...]] = {}
        for rank, text in enumerate(self._best(_BEAM)):
            here = self._measured.of(text)
            for attempt in range(4 if rank == 0 else 2):
                some = here if attempt == 0 else here[self._random.random(len(here)) < 0.6]
                path = self._measured.path(text, some, self._vector)
                for count in range(2, len(path) + 1):
                    changes = [self._measured.change(text, row) for row in path[:count]]
                    found.setdefault(_together(text.ids, changes), self._after(text, changes))
        rows = list(found.items())
        if len(rows) > _JOINED:
            rows = [rows[place] for place in self._random.choice(len(rows), _JOINED, replace=False)]
        self._score(rows)

    def _after(self, text: _Text, changes: Sequence[Change]) -> tuple[int, ...]:
        """The numbers of the tokens of the text with these changes."""
        slots = list(text.slots)
        for change in sorted(changes, key=_from_the_end):
            if change.kind == "delete":
                del slots[change.place]
            elif change.kind == "insert":
                slots.insert(change.place, *self._fresh(1))
            else:
                slots[change.place] = self._fresh(1)[0]
        return tuple(slots)


class _Measured:
    """Changes that were measured: the number of the token they are made at, and what they add to the vector."""

    def __init__(self, dim: int) -> None:
        self._keys: list[tuple[int, str, int]] = []
        self._deltas = np.empty((0, dim), np.float32)
        self._likely: list[float] = []
        self._new: list[Floats] = []

    @property
    def keys(self) -> set[tuple[int, str, int]]:
        return set(self._keys)

    def add(self, key: tuple[int, str, int], delta: Floats, likely: float) -> None:
        self._keys.append(key)
        self._likely.append(likely)
        self._new.append(delta)

    def forget(self) -> None:
        self._deltas = np.concatenate(
            [self._deltas, np.array(self._new, np.float32).reshape(-1, self._deltas.shape[1])]
        )[-_KNOWN:]
        self._keys, self._likely, self._new = self._keys[-_KNOWN:], self._likely[-_KNOWN:], []

    def of(self, text: _Text) -> Integers:
        """Which of them can be made in a text."""
        return np.flatnonzero(np.isin([slot for slot, _, _ in self._keys], text.slots))

    def change(self, text: _Text, row: int) -> Change:
        slot, kind, token = self._keys[row]
        return Change(text.slots.index(slot), kind, token)

    def path(self, text: _Text, rows: Integers, vector: Floats) -> list[int]:
        """Changes one after another, each the one that brings the sum nearest."""
        keys = [self._keys[row] for row in rows]
        slots, tokens = np.array([key[0] for key in keys]), np.array([key[2] for key in keys])
        inserts = np.array([key[1] == "insert" for key in keys], bool)
        deltas, likely = self._deltas[rows], np.array([self._likely[row] for row in rows])
        towards, squares = deltas @ vector, (deltas * deltas).sum(1)
        made, nats, open_ = text.vector.copy(), text.likely, np.ones(len(rows), bool)
        score = text.score
        found: list[int] = []
        while open_.any() and len(found) < _STEPS:
            length = np.sqrt(np.maximum(made @ made + 2 * deltas @ made + squares, _SHORTEST))
            scores = np.where(open_, (made @ vector + towards) / length + _LIKELY * (nats + likely), -np.inf)
            place = int(scores.argmax())
            if scores[place] <= score + _RISE:
                break
            score, made, nats = float(scores[place]), made + deltas[place], nats + float(likely[place])
            found.append(int(rows[place]))
            open_ &= (slots != slots[place]) | (inserts != inserts[place])
            open_ &= (tokens != tokens[place]) | (tokens < 0)
        return found


def _key(text: _Text, change: Change) -> tuple[int, str, int]:
    return text.slots[change.place], change.kind, change.token


def _from_the_end(change: Change) -> tuple[int, bool]:
    return -change.place, change.kind == "insert"


def _together(ids: Ids, changes: Sequence[Change]) -> Ids:
    """The text with all of these changes, from the last place to the first."""
    for change in sorted(changes, key=_from_the_end):
        ids = change(ids)
    return ids
