"""The candidates of a query, by words and by meaning, fused."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ....core.arrays import isin_sorted
from ....core.errors import DamagedError
from ....core.runtime.blas import one_thread
from ....core.runtime.threads import Threads
from ..ranking.fusion import Candidates, fuse
from ..ranking.neighbours import Ranking
from .word_search import MAX_TERMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....core.arrays import Floats, Ids
    from ...store.snapshot import Passing, Snapshot
    from ..deadline import StageTimes
    from ..mode import Mode
    from .exact_matches import ExactMatches
    from .word_search import WordSearch

_THREADS = 32  # searches by words at once


class FirstStage:
    """Takes the candidates of one query from one snapshot.

    :param words: searches by the words of the query.
    :param exact: finds its exact parts, None if it has none.
    :param vector: returns the vector of the query, shape (1, dim), the same at each call.
    :param nearest: cosines and ids of the passages nearest to the vector, best first, if the caller knows them. Used
            only without a filter, and only if they are as many as this stage takes.
    :param timed: times the parts of this stage.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        words: WordSearch,
        exact: ExactMatches | None,
        vector: Callable[[], Floats],
        nearest: tuple[Floats, Ids] | None,
        timed: StageTimes,
    ) -> None:
        self._snapshot = snapshot
        self._words = words
        self._exact = exact
        self._vector = vector
        self._nearest = nearest
        self._timed = timed

    def candidates(self, depth: int, mode: Mode, passing: Passing | None) -> Candidates:
        """At least `depth` candidates if the index has as many, best first."""
        depth = min(self._snapshot.passage_count, depth)
        search = {"hybrid": self._hybrid, "semantic": self._semantic_exact, "lexical": self._lexical}[mode]
        return search(depth, passing).best_first()

    def _hybrid(self, depth: int, passing: Passing | None) -> Candidates:
        self._encode()  # it uses all cores: a search by words at the same time would slow it down by as much
        if self._known(depth, passing):  # so nothing is left to do meanwhile
            by_meaning, by_words = self._semantic(depth, passing), self._lexical(depth, passing)
        else:
            words = _threads().submit(self._lexical, depth, passing)
            by_meaning, by_words = self._semantic(depth, passing), words.result()
        lexical, neighbourhood = self._snapshot.lexical, self._snapshot.neighbourhood
        if lexical is not None and neighbourhood is not None:
            with self._timed("neighbours"), contextlib.suppress(DamagedError), one_thread:
                ranking = Ranking(lexical, neighbourhood, self._snapshot.index.reconstruct)
                return ranking.fuse(by_words, by_meaning, self._words.stems[:MAX_TERMS], self._vector()[0])
        return fuse(by_words, by_meaning, self._cosines)

    def _lexical(self, depth: int, passing: Passing | None) -> Candidates:
        with self._timed("lexical"):
            scores, ids = self._words.best(depth, passing)
            best = np.lexsort((ids, -scores))[:depth]
            ids, scores = ids[best], scores[best]
        if self._exact:
            with self._timed("exact"):
                if len(missing := without(self._exact.look_up(passing), ids)):
                    more_scores, more_ids = self._words.scores(missing)
                    rest = without(missing, more_ids)  # passages with stop words alone
                    ids = np.concatenate([ids, more_ids, rest])
                    scores = np.concatenate([scores, more_scores, np.zeros(len(rest), np.float32)])
        return Candidates.by_words(ids, scores)

    def _semantic_exact(self, depth: int, passing: Passing | None) -> Candidates:
        """The candidates by meaning, and passages with all required words."""
        candidates = self._semantic(depth, passing)
        if not self._exact or not self._exact.required:
            return candidates
        with self._timed("exact"):
            missing = without(self._exact.look_up(passing), candidates.ids)
        ids = np.concatenate([candidates.ids, missing])
        return Candidates.by_meaning(ids, np.concatenate([candidates.semantic, self._cosines(missing)]))

    def _semantic(self, depth: int, passing: Passing | None) -> Candidates:
        vector = self._encode()
        with self._timed("semantic"):
            if known := self._known(depth, passing):
                cosines, ids = known
            else:
                allowed = None if passing is None else passing.chunks
                cosines, ids = (row[0] for row in self._snapshot.index.search(vector, depth, allowed=allowed))
            exists = ids >= 0  # an index fills up with -1
            return Candidates.by_meaning(ids[exists], cosines[exists])

    def _known(self, depth: int, passing: Passing | None) -> tuple[Floats, Ids] | None:
        """The cosines and ids of the nearest passages, if they were found together with those of other searches."""
        return self._nearest if passing is None and self._nearest and len(self._nearest[1]) == depth else None

    def _encode(self) -> Floats:
        """The vector of the query, shape (1, dim)."""
        with self._timed("encoding"):
            return self._vector()

    def _cosines(self, ids: Ids) -> Floats:
        vector = self._vector()[0]
        with one_thread:
            cosines: Floats = self._snapshot.index.reconstruct(ids) @ vector
        return cosines


@cache
def _threads() -> Threads:
    """Threads that search by words while the threads of the callers search by meaning."""
    return Threads(_THREADS, "binocle-words")


def without(ids: Ids, excluded_ids: Ids) -> Ids:
    """The ids that are not among the excluded ones, in their order."""
    return ids[~isin_sorted(ids, np.sort(excluded_ids))]
