"""Neighbouring passages of a document are one hit: the text from the first to the last, with the scores of the best."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from ....core.errors import InputError
from .hit import CitedText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...store.snapshot import Snapshot
    from .hit import Hit
    from .hits import Hits


def check_join(*, join: bool, collapse: bool, by_document: bool) -> None:
    """Refuse to join neighbours when the caller wants each passage by itself, or one of each document."""
    if join and not collapse:
        raise InputError("join=True makes one hit of several passages, but collapse=False keeps each: choose one")
    if join and by_document:
        raise InputError("group_by='document' gives one passage of each document: leave join=True out")


def with_neighbours_joined(hits: Hits, snapshot: Snapshot, offset: int = 0) -> Hits:
    """Join the neighbours among the hits of a page, and leave the hits of earlier pages alone.

    A joined hit has the place of its best passage. Joining moves no passage to another page. The ranks in `parts` count
    passages.

    :param offset: the number of hits on earlier pages.
    """
    runs = list(runs_of(hits[offset:]))
    owners = sorted({run[0].document_row for run in runs if len(run) > 1})
    texts = snapshot.documents_by_id(owners, ["text"]) if owners else {}
    page = [_joined(run, texts[run[0].document_row]["text"]) if len(run) > 1 else run[0] for run in runs]
    page.sort(key=lambda hit: hit.rank)
    return hits.replaced_by([*hits[:offset], *(replace(hit, rank=rank) for rank, hit in enumerate(page, offset + 1))])


def runs_of(hits: Iterable[Hit]) -> Iterator[list[Hit]]:
    """Group passages that follow each other on one page of a document; the passages of one have consecutive ids."""
    ordered = enumerate(sorted(hits, key=lambda hit: hit.passage))
    for _, run in groupby(ordered, key=lambda item: (item[1].document_row, item[1].page, item[1].passage - item[0])):
        yield [hit for _, hit in run]


def _joined(run: Sequence[Hit], text: str) -> Hit:
    """Make one hit of neighbours in the order of their document."""
    best = min(run, key=lambda hit: hit.rank)
    between = text[run[0].char_start : run[-1].char_end]
    copies = tuple(copy for hit in sorted(run, key=lambda hit: hit.rank) for copy in hit.copies)
    symbols = tuple(dict.fromkeys(symbol for hit in run for symbol in hit.symbols))
    fields = CitedText.joined_fields(run, between)
    return replace(best, **fields, parts=tuple(run), copies=copies, symbols=symbols)
