"""The JSON of a request: documents, filters, and the queries of one request after another."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ....core.checks import is_whole
from ....core.errors import InputError
from ....core.words import encodable
from ...documents.metadata import plain
from ...search.deadline import Deadline
from ...store.filters.where import among, parse
from ..limits import MAX_BODY, MAX_BODY_OF_DOCUMENTS, MAX_DEPTH, MAX_DOCUMENTS, MAX_QUERIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...search.search_options import ChoiceOptions
    from ...store.filters.where import Where


def document_fields(number: int, document: object) -> dict[str, Any]:
    """Return a document as JSON has it: dates as texts. The id stays: another one might be that of a document."""
    if not isinstance(document, Mapping):
        raise InputError(f"document {number} is of type {type(document).__name__}: expected a mapping with 'text'")
    fields = {name: value if name == "id" else encodable_values(value) for name, value in document.items()}
    metadata = document.get("metadata")
    return fields | ({"metadata": metadata_fields(metadata)} if isinstance(metadata, Mapping) else {})


def metadata_fields(metadata: Any) -> dict[str, Any]:
    """Return metadata as JSON has them: dates as texts.

    :raises InputError: when they are no mapping with texts as keys.
    """
    if not isinstance(metadata, Mapping):
        raise InputError(f"metadata is a mapping of keys to values, not {metadata!r:.80}")
    for key in metadata:
        if not isinstance(key, str):
            raise InputError(f"metadata has the key {key!r:.80}: expected texts as keys")
    return {encodable(key): encodable_values(plain(value)) for key, value in metadata.items()}


def encodable_values(value: Any) -> Any:
    """Replace half characters in a text or a list of texts, as `Retriever` does; return any other value unchanged."""
    if isinstance(value, list):
        return [encodable_values(member) for member in value]
    return encodable(value) if isinstance(value, str) else value


def quoted(text: str) -> str:
    """A text as a part of a URL."""
    return quote(text, safe="", errors="surrogatepass")


def search_body(
    k: int,
    where: Where,
    ids: Iterable[str | os.PathLike[str]] | None,
    rerank: bool,
    deadline: float | None,
    options: ChoiceOptions,
) -> dict[str, Any]:
    """The body of a search, or the fields that several searches share."""
    fields = {"k": k, "where": filter_fields(among(where, ids)), "rerank": rerank, "explain": True}
    return {**fields, **options, "deadline": seconds_left(deadline)}


def seconds_left(deadline: float | Deadline | None) -> float | None:
    """Return the seconds to send.

    :raises DeadlineError: when they are over, because the call waited for a thread or for other requests.
    """
    if not isinstance(deadline, Deadline):
        return deadline
    deadline.check("request")
    return deadline.remaining


def batches(
    pairs: Sequence[tuple[str | None, Any]], body: Mapping[str, Any]
) -> Iterator[tuple[list[Any] | None, list[Any] | None]]:
    """Yield the texts and the vectors of one request after another, as many as a server takes at once.

    :param body: the other fields of each request.
    """
    depths: list[Any] = [body["k"], body.get("offset")]
    depth = sum(number for number in depths if is_whole(number, 1))
    limit = max(1, min(MAX_QUERIES, MAX_DEPTH // max(1, depth)))
    room = MAX_BODY - len(json_text(body)) - 1_000  # of the names of fields
    batch: list[tuple[Any, Any]] = []
    size = 0
    for text, vector in pairs:
        pair = encodable_values(text), vector
        characters = len(json_text(pair))
        if batch and (len(batch) == limit or size + characters > room):
            yield _columns(batch)
            batch, size = [], 0
        batch.append(pair)
        size += characters
    if batch:
        yield _columns(batch)


def document_batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the documents of one request after another, as many as a server takes at once."""
    batch: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        characters = len(json_text(row)) + 2  # ASCII, and the comma
        if batch and (len(batch) == MAX_DOCUMENTS or size + characters > MAX_BODY_OF_DOCUMENTS - 1_000):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += characters
    if batch:
        yield batch


def _columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any] | None, list[Any] | None]:
    """The texts and the vectors, or None for a column that has none."""
    texts, vectors = ([pair[column] for pair in pairs] for column in (0, 1))
    return (
        None if all(text is None for text in texts) else texts,
        None if all(vector is None for vector in vectors) else vectors,
    )


def json_text(value: object) -> str:
    """:raises InputError: when a value cannot be written as JSON."""
    try:
        return json.dumps(value, default=_plain_value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the request cannot be written as JSON: {error}") from None


def _plain_value(value: Any) -> Any:
    """Return a path, or a number or an array of numpy or of a library like it, as JSON has it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if not hasattr(value, "tolist"):
        raise TypeError(f"it has a value of type {type(value).__name__}")
    return value.tolist()


def filter_fields(where: Where) -> dict[str, Any] | None:
    """A filter as an object of JSON; None for no filter."""
    conditions = parse(where)
    return None if conditions is None else conditions.to_json()


def filter_in_url(where: Where) -> str | None:
    """A filter as a parameter of a URL; None for no filter."""
    value = filter_fields(where)
    return None if value is None else json.dumps(value)


def url_values(value: Any) -> list[str]:
    """The values of a parameter in a URL; none for None."""
    return [] if value is None else list(value) if isinstance(value, list) else [str(value)]
