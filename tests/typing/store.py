"""An example for type checkers: a store of records with their metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from binocle import Batch, F, Failure, Filter, NotFoundError, Record, Report, Retriever


def replace_all(retriever: Retriever, records: Mapping[str, str], old: list[str]) -> Report | None:
    """Put records in place of others, in one commit."""
    with retriever.batch(wait=10, on_error="skip") as batch:
        fill(batch, records)
        batch.delete(*old)
    return batch.report


def fill(batch: Batch, records: Mapping[str, str]) -> None:
    """Add records to a batch."""
    batch.add({"id": name, "text": text} for name, text in records.items())


def tag(retriever: Retriever, where: Filter, values: Mapping[str, Any]) -> int:
    """Give documents more metadata; return how many changed."""
    return retriever.update(where=where & F.locked.exists(), metadata=values, mode="merge").indexed


def reasons(failures: list[Failure]) -> list[str]:
    """Say why documents were not added."""
    return [f"{failure.number}: {failure.reason}" for failure in failures]


def find(retriever: Retriever, name: str) -> Record | None:
    """Return a record, if it is there."""
    try:
        return retriever.get(name)
    except NotFoundError:
        return None


def of_tenant(retriever: Retriever, tenant: str) -> Iterator[Record]:
    """Yield the records of a tenant."""
    yield from retriever.scope(F.tenant == tenant).iterate()
