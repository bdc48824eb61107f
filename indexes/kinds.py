"""The table of kinds of vector index: exact for now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .flat import FlatKind

if TYPE_CHECKING:
    from .vector_index import VectorIndexKind

KINDS: dict[str, VectorIndexKind] = {"flat": FlatKind()}
