"""One hit for one thing: copies of a passage are collapsed, and one document does not fill the page.

Passages are copies if their words are the same in any case, with any white space between them. They are near copies if
nine tenths of their shingles are the same: every three words in a row (Broder 1997, "On the resemblance and containment
of documents"). One word that differs changes three shingles, so short passages are copies only when they are equal.
The best ranked passage stays and names the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PER_DOCUMENT = 3  # passages of a document, by default
_WORDS = 3  # in a shingle
_SHARED = 9  # tenths of the shingles of two near copies


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage in the order of the search.

    :param level: the higher, the better it holds the exact parts of the query. Passages of a lower level come later,
        whatever document they are of.
    """

    passage: int
    document: int
    text: str
    level: int = 0


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
    by_shingle: dict[int, list[int]] = {}  # numbers of the groups with this shingle
    for candidate in candidates:
        words = candidate.text.casefold().split()
        text = " ".join(words)
        group = texts.get(text) if text else None  # passages without text have nothing but their vectors
        if group is None:
            marks = frozenset(_shingles(words))
            number = _near(marks, shingles, by_shingle)
            group = texts[text] = groups[number] if number is not None else Group(candidate)
            if number is None:
                for mark in marks:
                    by_shingle.setdefault(mark, []).append(len(groups))
                groups.append(group)
                shingles.append(marks)
                continue
        group.copies.append(candidate)
    return groups


def _shingles(words: list[str]) -> Iterator[int]:
    return (hash(tuple(words[start : start + _WORDS])) for start in range(len(words) - _WORDS + 1))


def _near(marks: frozenset[int], shingles: list[frozenset[int]], by_shingle: dict[int, list[int]]) -> int | None:
    """The number of the first group with nearly the same shingles; None if there is none.

    Near copies differ in at most a tenth of their shingles, so one of any tenth more is in both.
    """
    sample = sorted(marks)[: len(marks) * (10 - _SHARED) // 10 + 1]
    for number in sorted({number for mark in sample for number in by_shingle.get(mark, ())}):
        theirs = shingles[number]
        if 10 * len(marks & theirs) >= _SHARED * len(marks | theirs):
            return number
    return None


def select(groups: list[Group], k: int, per_document: int | None, *, all_read: bool) -> list[Group] | None:
    """The first k groups with a limit on the passages of each document, in their order.

    :param per_document: the number at most; 0 for no limit. None: `PER_DOCUMENT`, and more where other documents have
        no passages on the same level.
    :param all_read: there are no more candidates.
    :returns: None if more candidates might change the answer.
    """
    limit = PER_DOCUMENT if per_document is None else per_document or len(groups)
    counts: dict[int, int] = {}
    within: list[int] = []
    beyond: list[int] = []
    for number, group in enumerate(groups):
        document = group.first.document
        counts[document] = counts.get(document, 0) + 1
        (within if counts[document] <= limit else beyond).append(number)
    if len(within) < k and not all_read:
        return None
    order = sorted(within + beyond, key=lambda number: -groups[number].first.level) if per_document is None else within
    return [groups[number] for number in sorted(order[:k])]
