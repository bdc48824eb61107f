"""Collapse copies of a passage into one hit, and limit the hits of one document.

Passages are copies if their words are the same in any case, with any white space between them. They are near copies if
nine tenths of their shingles are the same: every three words in a row (Broder 1997, "On the resemblance and containment
of documents"). One word that differs changes three shingles, so short passages are copies only when they are equal.
The best ranked passage stays and names the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ....core.arrays import Floats, Mask

PER_DOCUMENT = 3  # passages of a document, by default
_GAP = 0.2  # standard deviations of the scores of all candidates
_SHARED = 9  # tenths of the shingles of two near copies


class Marks(NamedTuple):
    """The parts of a text that find its copies."""

    words: str  # in lower case, with single spaces
    sample: tuple[int, ...]  # of the shingles: near copies have one of these in common
    size: int  # number of shingles

    @classmethod
    def of(cls, text: str) -> Marks:
        """The marks of a text."""
        words = " ".join(text.casefold().split())
        shingles = _shingles(words)
        return cls(words, _sample(shingles), len(shingles))


@dataclass(frozen=True, slots=True)
class RankedPassage:
    """A passage in the order of the search.

    :param level: the higher, the better it holds the exact parts of the query. Passages of a lower level come later,
        whatever document they are of.
    :param score: in standard deviations of the scores of all candidates.
    """

    passage: int
    document: int
    text: str
    level: int = 0
    score: float = 0.0
    marks: Marks | None = None  # of the text, if they are known

    @classmethod
    def of_rows(
        cls, rows: Mapping[int, dict[str, Any]], levels: Sequence[int], scores: Sequence[float]
    ) -> list[RankedPassage]:
        """Rows by id, best first, with their levels and scores. A row keeps its marks for the next search."""
        return [
            cls(number, row["document"], row["text"], level, score, row.get("marks") or _keep_marks(row))
            for (number, row), level, score in zip(rows.items(), levels, scores, strict=False)
        ]


@dataclass(slots=True)
class Group:
    """A passage and its copies, best first."""

    first: RankedPassage
    copies: list[RankedPassage] = field(default_factory=list)


def distinct(candidates: Iterable[RankedPassage]) -> list[Group]:
    """Group the copies; groups are in the order of their first passages."""
    marked = [(candidate, *(candidate.marks or Marks.of(candidate.text))) for candidate in candidates]
    counts = Counter(chain.from_iterable({words: sample for _, words, sample, _ in marked}.values()))
    common = {mark for mark, count in counts.items() if count > 1}  # as a rule few
    groups: list[Group] = []
    texts: dict[str, Group] = {}
    words_of: list[tuple[str, int]] = []  # of each group, with the number of their shingles
    by_shingle: dict[int, list[int]] = {}  # numbers of the groups with this shingle in their sample
    shingles = cache(_shingles)  # few are compared whole

    def is_near(number: int, words: str, size: int) -> bool:
        first_words, first_size = words_of[number]
        return _may_be_near(size, first_size) and _are_near(shingles(words), shingles(first_words))

    for candidate, words, sample, size in marked:
        group = texts.get(words) if words else None  # passages without text have only vectors, and are never copies
        if group is None:
            shared = common.intersection(sample)
            nearby = sorted({number for mark in shared for number in by_shingle.get(mark, ())})
            number = next((number for number in nearby if is_near(number, words, size)), None)
            group = texts[words] = groups[number] if number is not None else Group(candidate)
            if number is None:
                for mark in shared:
                    by_shingle.setdefault(mark, []).append(len(groups))
                groups.append(group)
                words_of.append((words, size))
                continue
        group.copies.append(candidate)
    return groups


def _keep_marks(row: dict[str, Any]) -> Marks:
    marks = row["marks"] = Marks.of(row["text"])
    return marks


def _shingles(words: str) -> frozenset[int]:
    split = words.split(" ")
    return frozenset(map(hash, zip(split, split[1:], split[2:], strict=False)))


def _sample(shingles: frozenset[int]) -> tuple[int, ...]:
    """The lowest tenth of the shingles and one more. Near copies have one of these in common.

    A near copy lacks at most a tenth of them. Chaudhuri, Ganti and Kaushik 2006, "A primitive operator for similarity
    joins in data cleaning": the prefix filter.
    """
    return tuple(sorted(shingles)[: len(shingles) * (10 - _SHARED) // 10 + 1])


def _may_be_near(size: int, other_size: int) -> bool:
    """Whether sets of shingles of these sizes can be near: they share at most the smaller size."""
    return 10 * min(size, other_size) >= _SHARED * max(size, other_size)


def _are_near(ours: frozenset[int], theirs: frozenset[int]) -> bool:
    return 10 * len(ours & theirs) >= _SHARED * len(ours | theirs)


def in_deviations(scores: Floats, levels: Sequence[int], leading: Mask | slice = slice(None)) -> Floats:
    """Divide scores by their standard deviation among candidates of the same level, shape (n,).

    :param leading: take the deviation of these candidates, by default of all.
    """
    if not len(scores):
        return scores
    numbers = np.asarray(levels, np.intp)
    means = np.bincount(numbers, scores) / np.maximum(np.bincount(numbers), 1)
    deviation = float(np.std((scores - means[numbers])[leading]))
    return (scores / max(deviation, 1e-6)).astype(np.float32)


def select(
    groups: list[Group], k: int, per_document: int | None, *, all_read: bool, pages: Sequence[int] = ()
) -> list[Group] | None:
    """The first k groups with a limit on the passages of each document; each page keeps its order.

    :param per_document: the number at most; 0 for no limit. None: each passage of a document beyond `PER_DOCUMENT`
        gives way to slightly worse passages of other documents, and each further passage to still worse ones.
    :param all_read: there are no more candidates.
    :param pages: where pages end: the number of groups up to there. Pages share no group.
    :returns: None if more candidates might change the answer.
    """
    limit = PER_DOCUMENT if per_document is None else per_document or len(groups)
    counts: dict[int, int] = {}
    keys: list[tuple[int, float, int]] = []
    for number, group in enumerate(groups):
        first = group.first
        counts[first.document] = counts.get(first.document, 0) + 1
        excess = max(0, counts[first.document] - limit)
        if per_document is None or not excess:
            keys.append((-first.level, _GAP * excess - first.score, number))
    best = sorted(keys)[:k] if per_document is None else keys[:k]
    if not all_read and (len(best) < k or (best and best[-1][:2] > (-groups[-1].first.level, -groups[-1].first.score))):
        return None
    order = [number for *_, number in best]
    bounds = pairwise([0, *pages, len(order)])
    return [groups[number] for start, end in bounds for number in sorted(order[start:end])]
