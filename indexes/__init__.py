"""Vector indexes: exact for now; the table of kinds grows here.

An index is a cache of the store: `published` writes one beside the store's tables with the store version it covers.
"""

from .flat import FlatIndex, FlatKind
from .published import Published, publish
from .vector_index import VectorIndex, VectorIndexKind

KINDS: dict[str, VectorIndexKind] = {"flat": FlatKind()}

__all__ = ["KINDS", "FlatIndex", "FlatKind", "Published", "VectorIndex", "VectorIndexKind", "publish"]
