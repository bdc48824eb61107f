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

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Ids = tuple[int, ...]
    Embed = Callable[[Sequence[Ids]], Floats]

_BEAM = 3  # texts that go on to the next round
_TRIED = 96  # changed texts that are encoded in a round
_JOINED = 16  # of which so many join changes that were good each
_PATIENCE = 3  # rounds without a rise, with more and more chance in what is tried
_RISE = 1e-4  # of the cosine
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
    random = np.random.default_rng(seed)
    until = time.monotonic() + seconds
    vectors: dict[Ids, Floats] = {}
    known: dict[Ids, float] = {}  # the cosine, and a little of what the decoder thinks of the words
    likely = proposer.rates(vector)

    def score(texts: Sequence[Ids]) -> None:
        new = [ids for ids in dict.fromkeys(texts) if ids and len(ids) <= longest and ids not in known]
        for ids, made in zip(new, embed(new) if new else (), strict=True):
            vectors[ids] = made
            known[ids] = float(made @ vector) + _LIKELY * likely(ids)

    score(proposals)
    waited = rounds = 0
    worth: dict[Ids, list[tuple[float, Change]]] = {}
    while known and waited < _PATIENCE and time.monotonic() < until:
        rounds += 1
        beam = sorted(known, key=known.__getitem__, reverse=True)[:_BEAM]
        best = known[beam[0]]
        tried: list[tuple[Ids, Change]] = []
        for rank, ids in enumerate(beam):
            if ids not in worth:
                worth[ids] = proposer.changes(vector, ids, vectors[ids])
            share = round((_TRIED - _JOINED) * 0.5 ** (rank + (rank < len(beam) - 1)))
            tried += [(ids, change) for change in _drawn(worth[ids], known, ids, share, 0.5 + waited, random)]
        score([change(ids) for ids, change in tried])
        score(_joined(tried, known, random))
        waited = 0 if max(known.values()) > best + _RISE else waited + 1
    if not known:
        return Corrected((), 0.0, rounds)
    found = max(known, key=known.__getitem__)
    return Corrected(found, float(vectors[found] @ vector), rounds)


def _drawn(
    changes: Sequence[tuple[float, Change]],
    known: dict[Ids, float],
    ids: Ids,
    count: int,
    heat: float,
    random: np.random.Generator,
) -> list[Change]:
    """The likeliest changes that were not tried, with some chance (Gumbel noise: a draw without replacement)."""
    if not changes:
        return []
    noisy = np.array([gain for gain, _ in changes]) + heat * random.gumbel(size=len(changes))
    found: list[Change] = []
    for place in np.argsort(-noisy):
        if len(found) == count:
            break
        change = changes[place][1]
        if change(ids) not in known:
            found.append(change)
    return found


def _joined(tried: Sequence[tuple[Ids, Change]], known: dict[Ids, float], random: np.random.Generator) -> list[Ids]:
    """Texts with several of the changes that each brought the same text nearer, at different places."""
    good: dict[Ids, list[tuple[float, Change]]] = {}
    for ids, change in tried:
        gain = known.get(change(ids), -1.0) - known[ids]
        if gain > 0:
            good.setdefault(ids, []).append((gain, change))
    found: list[Ids] = []
    for ids, changes in good.items():
        changes.sort(key=lambda one: -one[0])
        best = [change for _, change in changes]
        found += [_together(ids, best[:several]) for several in range(2, min(len(best), 6) + 1)]
        for _ in range(4 if len(changes) > 3 else 0):
            some = random.choice(len(changes), 3, replace=False)
            found.append(_together(ids, [best[place] for place in some]))
    found.sort(key=len)
    return found if len(found) <= _JOINED else [found[n] for n in random.choice(len(found), _JOINED, replace=False)]


def _together(ids: Ids, changes: Sequence[Change]) -> Ids:
    """The text with the first change at each place made, from the last place to the first."""
    first: dict[int, Change] = {}
    for change in changes:
        first.setdefault(change.place, change)
    for place in sorted(first, reverse=True):
        ids = first[place](ids)
    return ids
