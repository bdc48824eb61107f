"""The operations of the server: one table for the routes and for OpenAPI, and a function for each."""

from __future__ import annotations

import dataclasses
import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .....core.errors import InputError
from ....indexing.report import DocumentError
from ....inspection.collection_map import folders
from ....search.results.snippet import highlights
from ....search.search_options import ContextOptions, SearchOptions
from ...limits import MAX_DEPTH
from ..access import filter_of
from . import answer_shapes, request_shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import BaseModel

    from ....indexing.report import Report
    from ....search.results.hit import Hit
    from ....search.results.hits import Hits
    from ....store.records import Facet, Record
    from ..caller import Caller

    Answer = Mapping[str, Any]

_WRITTEN = {"copies", "parts", "vector", "highlights", "explanation", "position"}  # by `_hit` and `_placed`
_HIT = [name for name in answer_shapes.SearchHit.model_fields if name not in _WRITTEN]
_COPY = list(answer_shapes.CopyOf.model_fields)
_WAIT = 10.0  # seconds for another process that writes
_MAP_CHARACTERS = 500_000  # of the paths of a map
_PAGE_CHARACTERS = 8_000_000  # of the texts of a page, which goes on until it has more


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path, its input and its output. The input's fields come from the path, the URL or the body."""

    method: str
    path: str
    call: Callable[[Caller, Any], Answer]
    input: type[BaseModel]
    output: type[BaseModel]
    writes: bool = False
    is_of_index: bool = True  # it is also at /indexes/{index}/…


def search(caller: Caller, request: request_shapes.SearchInput) -> Answer:
    """Find the passages that answer a query, best first."""
    hits = caller.documents.search(
        request.query, request.k, **_options(caller, request, SearchOptions.__optional_keys__)
    )
    return _answer_fields(caller, request, request.query or "", hits) | _counts(caller, request)


def search_many(caller: Caller, request: request_shapes.SearchManyInput) -> Answer:
    """Answer several queries; all are encoded together."""
    count = len(request.vectors or () if request.queries is None else request.queries)
    total = count * (request.offset + request.k)
    if total > MAX_DEPTH:
        raise InputError(
            f"{count} queries of {request.offset + request.k:,} passages are {total:,}: expected at "
            f"most {MAX_DEPTH:,}, so ask for fewer at once"
        )
    options = _options(caller, request, SearchOptions.__optional_keys__)
    lists = caller.documents.search_many(request.queries, request.k, vectors=request.vectors, **options)
    pairs, counts = zip(request.queries or [""] * count, lists, strict=True), _counts(caller, request)
    return {"results": [_answer_fields(caller, request, query, hits) | counts for query, hits in pairs]}


def similar(caller: Caller, request: request_shapes.SimilarInput) -> Answer:
    """Find passages like the one at a line of a document."""
    hits = caller.documents.similar(request.path, request.line, request.k, where=filter_of(request.where))
    rows = _placed(caller, request, hits, [_hit(hit) for hit in hits])
    return {"query": "", **_facts(caller, hits), "hits": rows}


def context(caller: Caller, request: request_shapes.ContextInput) -> Answer:
    """Pack the best passages for a question into a text for a prompt, with numbered citations."""
    packed = caller.documents.context(request.query, **_options(caller, request, ContextOptions.__optional_keys__))
    fields = [name for name in answer_shapes.SourceOfContext.model_fields if name != "citation"]
    sources = [{**_fields(passage, fields), "citation": passage.citation} for passage in packed.passages]
    counts = {"tokens": packed.tokens, "answerable": packed.answerable}
    return {"text": packed.text, **counts, "sources": sources, "messages": packed.messages}


def facets(caller: Caller, request: request_shapes.FacetsInput) -> Answer:
    """Count documents by the values under some keys."""
    return {"facets": _facets(caller, request)}


def page(caller: Caller, request: request_shapes.PageInput) -> Answer:
    """List documents, also those without text, with the reason."""
    where = filter_of(request.where)
    rows: list[dict[str, Any]] = []
    characters = 0
    for record in caller.documents.iterate(where, after=request.after, limit=request.limit + 1):
        if len(rows) == request.limit or characters > _PAGE_CHARACTERS:
            return {"documents": rows, "next_after": rows[-1]["id"]}
        caller.seconds("documents")
        rows.append(_record(record, with_text=request.text))
        characters += len(record.text) if request.text else 0
    return {"documents": rows, "next_after": None}


def count(caller: Caller, request: request_shapes.CountInput) -> Answer:
    """Count documents, also those without text."""
    return {"count": caller.documents.count(filter_of(request.where))}


def document(caller: Caller, request: request_shapes.DocumentInput) -> Answer:
    """Return a document with its text, or with some of its lines."""
    row = _record(caller.documents.get(request.id), with_text=True)
    if request.lines is not None:
        first, _, last = request.lines.partition("-")
        row["text"] = caller.documents.text(request.id, lines=(int(first), int(last)))
    return row


def add(caller: Caller, request: request_shapes.AddInput) -> Answer:
    """Add documents, or replace documents with the same id."""
    documents: list[Any] = [
        DocumentError(number, document.name, f"document {number}: {document}")
        if isinstance(document, DocumentError)
        else document.model_dump(exclude_none=True)
        for number, document in enumerate(request.documents)
    ]
    return _report(caller.documents.add(documents, if_exists=request.if_exists, on_error=request.on_error, wait=_WAIT))


def update(caller: Caller, request: request_shapes.UpdateInput) -> Answer:
    """Change the metadata of added documents."""
    where = filter_of(request.where)
    return _report(
        caller.documents.update(request.ids, metadata=request.metadata, where=where, mode=request.mode, wait=_WAIT)
    )


def delete(caller: Caller, request: request_shapes.DeleteInput) -> Answer:
    """Remove documents by id or by a filter. An id that is not there is no error."""
    where = filter_of(request.where)
    if not request.ids and where is None:
        raise InputError("nothing is chosen: give ids, or a filter as where")
    return _report(caller.documents.delete(*request.ids, where=where, erase=request.erase, wait=_WAIT))


def delete_one(caller: Caller, request: request_shapes.IdInput) -> Answer:
    """Remove a document."""
    caller.documents.get(request.id)  # raises if it is not there
    return _report(caller.documents.delete(request.id, wait=_WAIT))


def collection_map(caller: Caller, _: request_shapes.Nothing) -> Answer:
    """Place passages in a plane, near ones for texts of like meaning. It is drawn in the background: ask again."""
    drawn, snapshot, is_current = caller.map(draw=True)
    where = caller.inside(None)
    passages = len(snapshot.sorted_ids) if where is None else len(snapshot.passing(where).chunks)
    if drawn is None:
        return {"ready": False, "current": False, "passages": passages, "folders": [], "documents": [], "points": {}}
    visible = drawn.visible(snapshot, where)
    rows = drawn.rows.take(visible)
    documents, owners = np.unique(rows["document"].to_numpy(), return_inverse=True)
    known = snapshot.documents_by_id(documents.tolist(), ["path"])
    paths = [known[number]["path"] for number in documents.tolist()]
    names, folder_of = folders(paths)
    colours = np.array(folder_of, np.int64)[owners]
    counts = np.bincount(colours, minlength=len(names)).tolist()
    x, y = np.round(drawn.points[visible].T.astype(np.float64), 3).tolist()
    columns = {name: rows[name].to_pylist() for name in ("char_start", "char_end", "line_start")}
    return {
        "ready": True,
        "current": is_current,
        "passages": passages,
        "folders": [{"name": name, "shown": count} for name, count in zip(names, counts, strict=True)],
        "documents": _short(paths),
        "points": {"x": x, "y": y, "folder": colours.tolist(), "document": owners.tolist(), **columns},
    }


def _short(paths: list[str]) -> list[str | None]:
    """Leave out the paths after the first half million characters."""
    ends = itertools.accumulate(map(len, paths))
    return [path if end <= _MAP_CHARACTERS else None for path, end in zip(paths, ends, strict=True)]


def status(caller: Caller, _: request_shapes.Nothing) -> Answer:
    """Say what the index holds."""
    snapshot = caller.retriever.snapshot()
    states, passages = caller.counts(snapshot)
    answer = {
        "index": caller.index.name,
        "version": caller.version(snapshot),
        "documents": states,
        "passages": passages,
        "encoder": snapshot.head.encoder.model,
        "reranker": caller.server.reranker_name,
        "writable": caller.may_write,
        "indexes": caller.server.names(caller.token),
    }
    if caller.token.where is None:
        folder = caller.retriever.folder
        answer["folder"] = None if folder is None else str(folder)
        answer["unread_language"] = caller.index.unread_language(snapshot)
    return answer


OPERATIONS = (
    Operation("GET", "/search", search, request_shapes.SearchInput, answer_shapes.SearchOutput),
    Operation("POST", "/search", search, request_shapes.SearchInput, answer_shapes.SearchOutput),
    Operation("POST", "/search/many", search_many, request_shapes.SearchManyInput, answer_shapes.SearchManyOutput),
    Operation("GET", "/similar", similar, request_shapes.SimilarInput, answer_shapes.SearchOutput),
    Operation("POST", "/similar", similar, request_shapes.SimilarInput, answer_shapes.SearchOutput),
    Operation("GET", "/context", context, request_shapes.ContextInput, answer_shapes.ContextOutput),
    Operation("POST", "/context", context, request_shapes.ContextInput, answer_shapes.ContextOutput),
    Operation("GET", "/facets", facets, request_shapes.FacetsInput, answer_shapes.FacetsOutput),
    Operation("GET", "/count", count, request_shapes.CountInput, answer_shapes.CountOutput),
    Operation("GET", "/documents", page, request_shapes.PageInput, answer_shapes.PageOutput),
    Operation("GET", "/documents/{id}", document, request_shapes.DocumentInput, answer_shapes.DocumentOutput),
    Operation("POST", "/documents", add, request_shapes.AddInput, answer_shapes.ReportOutput, writes=True),
    Operation("PATCH", "/documents", update, request_shapes.UpdateInput, answer_shapes.ReportOutput, writes=True),
    Operation("DELETE", "/documents", delete, request_shapes.DeleteInput, answer_shapes.ReportOutput, writes=True),
    Operation("DELETE", "/documents/{id}", delete_one, request_shapes.IdInput, answer_shapes.ReportOutput, writes=True),
    Operation("GET", "/map", collection_map, request_shapes.Nothing, answer_shapes.MapOutput),
    Operation("GET", "/status", status, request_shapes.Nothing, answer_shapes.StatusOutput),
)


def _options(caller: Caller, request: request_shapes.RankingOptions, names: frozenset[str]) -> dict[str, Any]:
    """The arguments of a call of the library that takes options of these names, as far as the request has them."""
    return {name: getattr(request, name) for name in names & type(request).model_fields.keys()} | {
        "where": filter_of(request.where),
        "rerank": caller.reranker(requested=request.rerank),
        "deadline": caller.search_deadline(request.deadline),
    }


def _answer_fields(caller: Caller, request: request_shapes.SearchOptions, query: str, hits: Hits) -> dict[str, Any]:
    rows = [_hit(hit, query if request.highlights else None, explain=request.explain) for hit in hits]
    rows = _placed(caller, request, hits, rows)
    return {"query": query, **_facts(caller, hits), "hits": rows}


def _facts(caller: Caller, hits: Hits) -> dict[str, Any]:
    """The facts about a whole search. A token with a filter does not learn when others write."""
    commits = hits.version if caller.token.where is None else None
    return {"answerable": hits.answerable, "corrections": hits.corrections, "total": hits.total, "commits": commits}


def _placed(
    caller: Caller,
    request: request_shapes.SearchOptions | request_shapes.SimilarInput,
    hits: Hits,
    rows: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Add the places of hits in the map, if the request asks for them and the map is there."""
    if request.positions and hits:
        drawn, snapshot, _ = caller.map()
        if drawn is not None:
            positions = drawn.positions(snapshot, np.array([hit.best.passage for hit in hits], np.int64))
            return [row | {"position": position} for row, position in zip(rows, positions, strict=True)]
    return rows


def _counts(caller: Caller, request: request_shapes.SearchOptions) -> dict[str, Any]:
    """The part of an answer that counts documents, if the request asks for one; the query does not matter."""
    return {"facets": _facets(caller, request)} if request.facets else {}


def _hit(hit: Hit, query: str | None = None, *, explain: bool = False) -> dict[str, Any]:
    row = _fields(hit, _HIT)
    row["copies"] = [_fields(copy, _COPY) for copy in hit.copies]
    row["parts"] = [_hit(part, query, explain=explain) for part in hit.parts]
    if hit.vector is not None:
        row["vector"] = hit.vector.tolist()
    if query is not None:
        row["highlights"] = highlights(hit.text, query)
    if explain:
        row["explanation"] = hit.explanation
    return row


def _fields(thing: object, names: list[str]) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def _facets(caller: Caller, request: request_shapes.SearchOptions | request_shapes.FacetsInput) -> dict[str, Any]:
    counted = caller.documents.facets(request.facets, filter_of(request.where))
    return {key: _facet(facet) for key, facet in counted.items()}


def _facet(facet: Facet) -> dict[str, Any]:
    counts = [{"value": value, "count": count} for value, count in facet.counts]
    return {**dataclasses.asdict(facet), "counts": counts}


def _record(record: Record, *, with_text: bool) -> dict[str, Any]:
    names = [name for name in answer_shapes.DocumentOutput.model_fields if name != "text"]
    row = _fields(record, names)
    return row | {"text": record.text} if with_text else row


def _report(report: Report) -> dict[str, Any]:
    row = _fields(report, list(answer_shapes.ReportOutput.model_fields))
    return row | {"failures": [dataclasses.asdict(failure) for failure in report.failures]}


def to_json(answer: Answer) -> bytes:
    """Write an answer as JSON; characters beyond ASCII as escapes, so that every text can be written."""
    return json.dumps(answer, separators=(",", ":")).encode()
