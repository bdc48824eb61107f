"""The results of `Retriever`, from the JSON of a server's answers; another shape raises KeyError or the like."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...indexing.report import FILE_STATES, Failure, Report
from ...search.context import Context
from ...search.results.hit import Copy, Hit
from ...search.results.hits import Hits
from ...search.results.passage import Passage
from ...store.records import Facet, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNKNOWN = -1  # the row ids of a hit, which a server keeps to itself


def hits(answer: Mapping[str, Any]) -> Hits:
    """The hits of a search."""
    return Hits(
        [_hit(row) for row in answer["hits"]],
        answerable=answer["answerable"],
        corrections=answer["corrections"],
        version=answer["commits"] or 0,
        total=answer["total"],
    )


def all_hits(answer: Mapping[str, Any]) -> list[Hits]:
    """The hits of each query."""
    return list(map(hits, answer["results"]))


def joined(report: Report, part: Report, sent: int) -> Report:
    """Return the report of several requests.

    :param part: of the last one.
    :param sent: the documents before it.
    """
    counts = (*FILE_STATES, "in_part", "embedded", "reused", "chunks_removed", "code", "seconds")
    return Report(
        **{name: getattr(report, name) + getattr(part, name) for name in counts},
        chunks_total=part.chunks_total,
        ids=[*report.ids, *part.ids],
        failures=[*report.failures, *(_moved(failure, sent) for failure in part.failures)],
        note=part.note,
    )


def _moved(failure: Failure, sent: int) -> Failure:
    """Return a failure with the number of its document among all documents, also in the reason."""
    number = failure.number + sent
    reason = failure.reason.replace(f"document {failure.number}", f"document {number}", 1)
    return replace(failure, number=number, reason=reason)


def _hit(row: Mapping[str, Any]) -> Hit:
    copies = tuple(Copy(**{**copy, "heading": tuple(copy["heading"])}, passage=_UNKNOWN) for copy in row["copies"])
    tuples = {name: tuple(row[name]) for name in ("heading", "symbols")}
    tuples |= {"hidden": tuple(map(tuple, row["hidden"])), "copies": copies, "parts": tuple(map(_hit, row["parts"]))}
    fields = {name: value for name, value in row.items() if name != "highlights"} | tuples
    if row.get("vector") is not None:
        fields["vector"] = np.array(row["vector"], np.float32)
    return Hit(**{**fields, "explanation": row.get("explanation") or {}}, document_row=_UNKNOWN, passage=_UNKNOWN)


def _passage(source: Mapping[str, Any]) -> Passage:
    fields = {name: value for name, value in source.items() if name != "citation"}
    tuples = {"heading": tuple(source["heading"]), "hidden": tuple(map(tuple, source["hidden"]))}
    return Passage(**fields | tuples, hits=())


def context(answer: Mapping[str, Any], query: str) -> Context:
    """The context for a query; its passages do not name their hits."""
    passages = tuple(map(_passage, answer["sources"]))
    return Context(answer["text"], passages, answer["tokens"], query, answer.get("answerable"))


def page(answer: Mapping[str, Any]) -> tuple[list[Record], str | None]:
    """The documents of a page, and the id after which the next page begins; None after the last one."""
    return [record(row) for row in answer["documents"]], answer["next_after"]


def facets(answer: Mapping[str, Any]) -> dict[str, Facet]:
    """The facet of each key."""
    return {key: _facet(facet) for key, facet in answer["facets"].items()}


def record(row: Mapping[str, Any]) -> Record:
    """A document; without its text, the text is empty."""
    return Record(**{**row, "text": row.get("text") or ""})


def _facet(row: Mapping[str, Any]) -> Facet:
    return Facet(**{**row, "counts": tuple((count["value"], count["count"]) for count in row["counts"])})


def report(row: Mapping[str, Any]) -> Report:
    """The report of a write."""
    return Report(**{**row, "failures": [Failure(**failure) for failure in row["failures"]]})
