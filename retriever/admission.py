"""The values that a scope demands of a document: fill them in, and refuse a document that would lie outside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..core.errors import InputError
from .documents.metadata import plain
from .indexing.add import Addition, check_document
from .store.filters import fields
from .store.filters.condition_masks import evaluate
from .store.filters.fields import shown
from .store.filters.filter import Condition, Junction, Negation, Within
from .store.filters.sorted_values import DocumentColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .indexing.update import Change
    from .store.filters.filter import Filter


def completed_document(number: int, document: Mapping[str, Any], inside: Filter) -> Mapping[str, Any]:
    """Complete a document with the values that a scope demands; other values under these keys stay.

    :raises InputError: when it is no document, or has several values under a key that the scope compares.
    """
    if not hasattr(document, "keys"):
        raise InputError(f"document {number} is of type {type(document).__name__}: expected a mapping with 'text'")
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InputError(f"document {number} has metadata of type {type(metadata).__name__}: expected a mapping")
    _check_single(f"document {number}", metadata, inside)
    demanded = {key: value for key, value in _equalities(inside) if metadata.get(key) is None}
    return {**document, "metadata": {**metadata, **demanded}}


def completed_change(metadata: Mapping[str, Any], mode: Change, inside: Filter) -> dict[str, Any]:
    """Complete new metadata with the values that a scope demands; other values under these keys stay.

    :raises InputError: when they are no mapping, or have several values under a key that the scope compares.
    """
    if not isinstance(metadata, Mapping):
        raise InputError(f"metadata is a mapping of keys to values, not {shown(metadata)}")
    _check_single("the change", metadata, inside)
    demanded = {key: value for key, value in _equalities(inside) if metadata.get(key) is None}
    if mode == "merge":  # keys that the change does not name keep their values
        demanded = {key: value for key, value in demanded.items() if key in metadata}
    return {**metadata, **demanded}


def faults_outside(labels: Sequence[str], rows: Sequence[dict[str, Any]], inside: Filter) -> list[str]:
    """Say of each document why it does not pass the filter of a scope; "" if it does.

    :param labels: the names of the documents in messages.
    :param rows: the columns of the documents.
    """
    if not rows:
        return []
    mask = evaluate(inside, DocumentColumns(pa.Table.from_pylist(list(rows))))
    expected = f"expected one that passes {inside!r}"
    return [
        "" if passes else f"document {label} is outside of this scope: {expected}"
        for label, passes in zip(labels, mask.tolist(), strict=True)
    ]


def stored_columns(number: int, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that filters read, with the values that the document will have in the store."""
    metadata = {key: plain(value) for key, value in document["metadata"].items() if value is not None}
    try:
        encoded = json.dumps(metadata)
    except (TypeError, ValueError):
        raise InputError(f"document {number} has metadata that cannot be kept: {shown(metadata)}") from None
    text, title, name = (str(document.get(key) or "") for key in ("text", "title", "id"))
    is_markdown = document.get("format") == "markdown"
    addition = check_document(number, document) if is_markdown else None
    if isinstance(addition, Addition):
        title = addition.document.title
    size = len(text.encode("utf-8", "replace"))
    row = {
        "path": name,
        "source": "added",
        "size": size,
        "mtime_ns": 0,
        "format": "markdown" if is_markdown else "text",
    }
    return row | {"title": title, "metadata": encoded}


def _check_single(subject: str, metadata: Mapping[str, Any], inside: Filter) -> None:
    """Refuse several values under a key that a scope compares.

    A list passes a filter if one of its values does. Another value could put the document into another scope too.
    """
    for key in _compared(inside):
        values = metadata.get(key)
        if isinstance(values, (list, tuple, set, frozenset)) and len(values) > 1:
            raise InputError(
                f"{subject} has {len(values)} values under {key!r}, which this scope compares: expected one"
            )


def _compared(inside: Filter) -> Iterator[str]:
    """Yield the metadata keys that a filter compares."""
    if isinstance(inside, Condition) and inside.operator != "exists" and inside.key not in fields.BUILT_IN:
        yield inside.key.removeprefix(fields.METADATA)
    elif isinstance(inside, Junction):
        for part in inside.parts:
            yield from _compared(part)
    elif isinstance(inside, Negation):
        yield from _compared(inside.part)
    elif isinstance(inside, Within):
        yield from _compared(inside.scope)


def _equalities(inside: Filter) -> Iterator[tuple[str, Any]]:
    """Yield the keys of metadata and their values that a filter demands."""
    if isinstance(inside, Condition) and inside.key not in fields.BUILT_IN:
        key, value = inside.key.removeprefix(fields.METADATA), inside.value
        if inside.operator in ("eq", "same"):
            yield key, value
        elif inside.operator == "like" and not fields.GLOB_SIGNS.intersection(value):
            number = fields.number(value)
            yield key, value if number is None else number
    if isinstance(inside, Junction) and inside.operator == "and":
        for part in inside.parts:
            yield from _equalities(part)
    if isinstance(inside, Within):
        yield from _equalities(inside.scope)
