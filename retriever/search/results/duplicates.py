"""One hit for one thing: copies of a passage are collapsed, and one document does not fill the page.

Passages are copies if their words are the same in any case, with any white space between them. They are near copies if
nine tenths of their shingles are the same: every three words in a row (Broder 1997, "On the resemblance and containment
of documents"). One word that differs changes three shingles, so short passages are copies only when they are equal.
The best ranked passage stays and names the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ....core.arrays import Floats

PER_DOCUMENT = 3  # passages of a document, by default
_GAP = 0.2  # standard deviations of the scores of all candidates
_SHARED = 9  # tenths of the shingles of two near copies


@dataclass(frozen=True, slots=True)
class Passage:
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


@dataclass(slots=True)
class Group:
    """A passage and its copies, best first."""

    first: Passage
    copies: list[Passage] = field(default_factory=list)


def distinct(candidates: Iterable[Passage]) -> list[Group]:
    """Group the copies; groups are in the order of their first passages."""
    groups: list[Group] = []
    texts: dict[str, Group] = {}
    shingles: list[frozenset[int]] = []  # of each group
    by_shingle: dict[int, list[int]] = {}  # numbers of the groups with this shingle in their sample
    for candidate in candidates:
        words = candidate.text.casefold().split()
        text = " ".join(words)
        group = texts.get(text) if text else None  # passages without text have only their vectors, and are never copies
        if group is None:
            marks = frozenset(map(hash, zip(words, words[1:], words[2:], strict=False)))
            sample = _sample(marks)
            number = _near(marks, sample, shingles, by_shingle)
            group = texts[text] = groups[number] if number is not None else Group(candidate)
            if number is None:
                for mark in sample:
                    by_shingle.setdefault(mark, []).append(len(groups))
                groups.append(group)
                shingles.append(marks)
                continue
        group.copies.append(candidate)
    return groups


def _sample(marks: frozenset[int]) -> list[int]:
    """The lowest tenth of the shingles and one more. Near copies have one of these in common.

    A near copy lacks at most a tenth of them. Chaudhuri, Ganti and Kaushik 2006, "A primitive operator for similarity
    joins in data cleaning": the prefix filter.
    """
    return sorted(marks)[: len(marks) * (10 - _SHARED) // 10 + 1]


def _near(
    marks: frozenset[int], sample: list[int], shingles: list[frozenset[int]], by_shingle: dict[int, list[int]]
) -> int | None:
    """The number of the first group with nearly the same shingles; None if there is none."""
    for number in sorted({number for mark in sample for number in by_shingle.get(mark, ())}):
        theirs = shingles[number]
        if 10 * len(marks & theirs) >= _SHARED * len(marks | theirs):
            return number
    return None


def in_deviations(scores: Floats, levels: Sequence[int]) -> Floats:
    """Divide scores by their standard deviation among candidates of the same level, shape (n,)."""
    if not len(scores):
        return scores
    numbers = np.asarray(levels, np.intp)
    means = np.bincount(numbers, scores) / np.maximum(np.bincount(numbers), 1)
    return (scores / max(float(np.std(scores - means[numbers])), 1e-6)).astype(np.float32)


def select(
    groups: list[Group], k: int, per_document: int | None, *, all_read: bool, offset: int = 0
) -> list[Group] | None:
    """The first k groups with a limit on the passages of each document; each page keeps its order.

    :param per_document: the number at most; 0 for no limit. None: each passage of a document beyond `PER_DOCUMENT`
        gives way to slightly worse passages of other documents, and each further passage to still worse ones.
    :param all_read: there are no more candidates.
    :param offset: the number of groups on earlier pages. A group is on one page, whatever page is asked for.
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
    return [groups[number] for number in sorted(order[:offset]) + sorted(order[offset:])]
