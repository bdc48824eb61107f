"""The passages of an index that hold the exact parts of one query: identifiers, quotes, required words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....core.arrays import distinct, isin_sorted
from ...documents.document import context_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ....core.arrays import Ids, Mask
    from ...store.snapshot import Passing, Snapshot
    from ..mode import Mode
    from ..ranking.fusion import Candidates
    from ..results.hit import Hit
    from ..words.exact import ExactQuery
    from .word_search import WordSearch

_WITH_SIGNS = 1_000  # passages to take at most


class ExactMatches:
    """How well the passages of one snapshot hold the exact parts of a query. Each is read and judged once."""

    def __init__(self, snapshot: Snapshot, parts: ExactQuery, words: WordSearch) -> None:
        self._snapshot = snapshot
        self._parts = parts
        self._words = words
        self._contexts: dict[int, str] = {}  # by id, as read
        self._levels: dict[int, tuple[int, int]] = {}  # how well passages hold the parts, by id
        self._looked_up: Ids | None = None
        self._with_tokens: Ids | None = None  # all passages that can hold a part, if an index of words can tell

    @property
    def required(self) -> bool:
        """Whether a passage must hold some of the parts."""
        return bool(self._parts.required)

    @property
    def excluded(self) -> bool:
        """Whether a passage must not hold some of the parts."""
        return bool(self._parts.excluded)

    def look_up(self, passing: Passing | None) -> Ids:
        """Return passages with an exact part, from the best passages with all words of that part.

        The words of a part may be common, so the best passages for the whole query may lack it.
        """
        ids = self.with_words(passing)
        ids = ids[np.array([self._parts.passes(context) for context in self._read(ids)], bool)]
        literal: Ids = ids[self.contain_parts(ids)]
        return literal

    def with_words(self, passing: Passing | None) -> Ids:
        """Passages with all words of an exact part, or its signs, ascending, looked up once for a query."""
        if self._looked_up is None:
            lookups = self._parts.lookups
            with_tokens = {words: self._words.with_tokens(words) for words in lookups}
            if self._parts.have_tokens and all(ids is not None for ids in with_tokens.values()):
                self._with_tokens = _union(ids for ids in with_tokens.values() if ids is not None)
            ids = [self._words.best_of(with_tokens[words], words, limit, passing) for words, limit in lookups.items()]
            if signs := self._parts.signs:
                ids.append(self._with_signs(signs.split()[0], passing))
            self._looked_up = _union(ids)
        return self._looked_up

    def can_hold(self, ids: Ids) -> Mask:
        """Whether each passage can hold an exact part, as far as an index of words tells without its text."""
        return np.ones(len(ids), bool) if self._with_tokens is None else isin_sorted(ids, self._with_tokens)

    def _with_signs(self, signs: str, passing: Passing | None) -> Ids:
        """The first passages with these signs, ascending: all texts are read, since no index of words has signs."""
        import pyarrow.compute as pc  # few searches need it

        chosen, count = [np.empty(0, np.int64)], 0
        for batch in self._snapshot.batches(["id", "text"]):
            ids = batch["id"].to_numpy()[pc.match_substring(batch["text"], signs).to_numpy(zero_copy_only=False)]
            chosen.append(ids if passing is None else ids[isin_sorted(ids, passing.chunks)])
            count += len(chosen[-1])
            if count >= _WITH_SIGNS:
                break
        return np.concatenate(chosen)[:_WITH_SIGNS]

    def _read(self, ids: Ids) -> list[str]:
        """The headings and texts of passages."""
        unread = [number for number in ids.tolist() if number not in self._contexts]
        for number, row in self._snapshot.passages.of(unread).items():
            self._contexts[number] = context_of(row["heading"], row["text"])
        return [self._contexts[number] for number in ids.tolist()]

    def _levels_of(self, ids: Ids) -> list[tuple[int, int]]:
        """How well passages hold the exact parts."""
        new = ids[[number not in self._levels for number in ids.tolist()]]
        can_hold = self.can_hold(new)
        self._levels.update(dict.fromkeys(new[~can_hold].tolist(), (0, 0)))
        new = new[can_hold]
        if len(new):
            rows = self._snapshot.passages.of(new.tolist())
            levels = self._parts.levels(self._read(new), [row["heading"] for row in rows.values()])
            self._levels.update(zip(rows, levels, strict=True))
        return [self._levels[number] for number in ids.tolist()]

    def passing(self, candidates: Candidates) -> Candidates:
        """Leave out passages that fail the exact parts."""
        if not (self._parts.required or self._parts.excluded):
            return candidates
        if self._parts.required:
            candidates = candidates.take(np.flatnonzero(self.can_hold(candidates.ids)))
        passing = np.array([self._parts.passes(context) for context in self._read(candidates.ids)], bool)
        return candidates.take(np.flatnonzero(passing))

    def levels(self, candidates: Candidates, mode: Mode) -> NDArray[np.intp]:
        """Number how well each candidate holds the exact parts, from 0. By meaning alone, all are equal."""
        if mode == "semantic" or not len(candidates.ids):
            return np.zeros(len(candidates.ids), np.intp)
        levels = self._levels_of(candidates.ids)
        order = {level: number for number, level in enumerate(sorted(set(levels)))}
        return np.array([order[level] for level in levels], np.intp)

    def contain_parts(self, ids: Ids) -> NDArray[np.bool_]:
        """Whether each passage holds some exact part."""
        return np.array([count > 0 for count, _ in self._levels_of(ids)], bool)

    def explain(self, hit: Hit) -> None:
        """Add to a hit's explanation how it holds the exact parts."""
        hit.explanation["exact"] = self._parts.matches(hit.context, hit.heading)


def _union(parts: Iterable[Ids]) -> Ids:
    """Return the ids of all parts, ascending and each once."""
    return distinct(np.concatenate([np.empty(0, np.int64), *parts]))
