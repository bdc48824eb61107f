"""The names of definitions in passages of source code, for filters on passages.

They stand in a column of the chunks. Indexes of earlier versions lack it: there a passage has the name in its heading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...documents.sections import qualified_name
from ..tables import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ....core.arrays import Ids, Positions
    from ..committed_rows import CommittedRows
    from ..filters.sorted_values import Column


def symbols_of(chunks: Iterable[Mapping[str, Any]], formats: Iterable[str]) -> list[tuple[str, ...]]:
    """The qualified names of the definitions in each passage; of an index without them, the name in its heading.

    :param chunks: the rows of passages, with `symbols` if the table has them, or else with `heading`.
    :param formats: of their documents.
    """
    return [_symbols_of(chunk, format_name) for chunk, format_name in zip(chunks, formats, strict=True)]


def _symbols_of(chunk: Mapping[str, Any], format_name: str) -> tuple[str, ...]:
    if SYMBOLS in chunk:
        return tuple(name for name in chunk[SYMBOLS] or () if name)
    from ...readers.plain_text.definitions import GRAMMARS

    return (qualified_name(chunk["heading"]),) if chunk["heading"] and format_name in GRAMMARS else ()


class PassageSymbols:
    """The symbols of all passages of a state.

    :ivar owners: shape (passages,), the position of each passage's document among the documents of the state.
    :ivar column: the names with the passages of each. A method has two names, Box.open and open.
    """

    def __init__(self, ids: Ids, owners: Positions, column: Column) -> None:
        self.ids, self.owners, self.column = ids, owners, column

    @classmethod
    def read(cls, state: CommittedRows) -> PassageSymbols:
        """Read the symbols of a state."""
        from ..filters.sorted_values import Column, encode

        names = SYMBOLS if state.has_symbols else "heading"
        rows = state.read("chunks", ["id", "document", names]).sort_by("id")
        documents = state.document_rows
        document_ids = documents["id"].to_numpy()
        order = np.argsort(document_ids)
        ids = rows["id"].to_numpy()
        positions: Positions = order[np.searchsorted(document_ids, rows["document"].to_numpy(), sorter=order)]
        formats = documents["format"].take(positions).to_pylist()
        chunks = [{names: value} for value in rows[names].to_pylist()]
        values, codes, owners = encode(_names(chunks, formats))
        return cls(ids, positions, Column.of(values, codes, owners, len(ids)))


def _names(chunks: Sequence[Mapping[str, Any]], formats: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the position of a passage with each of its names, whole and without those around it."""
    for number, symbols in enumerate(symbols_of(chunks, formats)):
        for symbol in symbols:
            yield number, symbol
            if "." in symbol:
                yield number, symbol.rpartition(".")[2]
