"""The heads that fill keys of the documents' metadata: a small file beside the index.

A document that a head has labelled has the head's keys, with an empty list where no label fits. So the rows themselves
say which documents are not labelled yet, and a killed run goes on with those.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from ...core.checks import is_real
from ...core.words import encodable
from .locations.location import ANY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...core.arrays import Ids, Mask
    from .locations.location import Location
    from .snapshot import Snapshot

_FILE = "heads.json"
_MAX_HEADS = 1_000  # heads, and keys of one: a file from a stranger may have more


@dataclass(frozen=True, slots=True)
class StoredHead:
    """A head, and the keys that it fills."""

    key: str
    keys: tuple[str, ...]  # that key; of a tagger with several labels, KEY.LABEL for each
    model: str = ""  # the folder or name of a classifier or tagger; "" for names
    names: tuple[str, ...] = ()  # of labels that the encoder alone gives
    precision: float | None = None  # promised share of right labels
    fingerprint: str = ""  # of the model, or of the names
    is_removed: bool = False  # its values are being taken out of the documents
    earlier_keys: tuple[
        str, ...
    ] = ()  # of the head that it replaces: their values are taken out before it fills its own

    def is_valid(self) -> bool:
        """Whether the values are possible ones: the file may come from a stranger."""
        keys = (*self.keys, *self.earlier_keys)
        texts = (self.key, self.model, self.fingerprint, *keys, *self.names)
        return (
            all(isinstance(text, str) for text in texts)
            and all(key == encodable(key) for key in keys)
            and bool(self.model) != bool(self.names)
            and 0 < len(self.keys) <= len(keys) <= _MAX_HEADS
            and isinstance(self.is_removed, bool)
            and (self.precision is None or (is_real(self.precision) and 0 < self.precision < 1))
        )


def read_heads(location: Location) -> dict[str, StoredHead]:
    """Return the heads of an index by their keys; none if the file is damaged."""
    try:
        rows = json.loads(location.read(_FILE)[0])
        heads = [_head(**row) for row in rows]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}
    return {head.key: head for head in heads[:_MAX_HEADS] if head.is_valid()}


def _head(*, keys: Sequence[str], names: Sequence[str], earlier_keys: Sequence[str] = (), **facts: Any) -> StoredHead:
    return StoredHead(keys=tuple(keys), names=tuple(names), earlier_keys=tuple(earlier_keys), **facts)


def store_heads(location: Location, heads: Mapping[str, StoredHead]) -> None:
    """Write the heads of an index over earlier ones."""
    rows = [asdict(head) for head in heads.values()]
    for row in rows:
        if not row["earlier_keys"]:  # a program of before would not read the file
            del row["earlier_keys"]
    location.write(_FILE, json.dumps(rows).encode(), over=ANY)


def keys_of(location: Location) -> frozenset[str]:
    """Return all keys that the heads of an index fill."""
    return frozenset(key for head in read_heads(location).values() for key in head.keys)


def with_keys(snapshot: Snapshot, keys: Sequence[str]) -> Mask:
    """Return which of `document_rows` have any of these keys in their metadata."""
    column = snapshot.document_rows["metadata"]
    mask = np.zeros(len(column), np.bool_)
    for key in keys:  # in JSON a quote within a text has a backslash, so that this is no value
        written = json.dumps(key, ensure_ascii=False) + ": "
        mask |= np.asarray(pc.match_substring(column, written).to_pylist(), np.bool_)
    return mask


def unlabelled(snapshot: Snapshot, head: StoredHead) -> Ids:
    """Return the ids of the documents with passages that a head has not labelled yet."""
    rows = snapshot.document_rows
    waiting = (rows["chunks"].to_numpy() > 0) & ~with_keys(snapshot, head.keys)
    ids: Ids = rows["id"].to_numpy()[waiting]
    return ids
