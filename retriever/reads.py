"""Reads of stored documents that an index and a scope of it share: by id, by filter, by page, counts and facets.

`records` is imported when it is first used: a search from the command line needs none of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..core.checks import check_flags, is_whole
from ..core.errors import InputError
from .store import documents as stored_documents
from .store.filters.fields import shown
from .store.filters.filter import Filter, Within
from .store.filters.where import Where, parse

if TYPE_CHECKING:
    from .open_index import OpenIndex
    from .search.grep import DocumentMatches
    from .store.records import Facet, Id, Record
    from .store.snapshot import Snapshot

_T = TypeVar("_T")


class DocumentReads:
    """The documents of an index, or of the part of it that passes a filter."""

    _index: OpenIndex
    _inside: Filter | None = None  # documents that fail this filter count as missing

    def _where(self, where: Where) -> Filter | None:
        """Read a caller's filter, which can only narrow the scope."""
        conditions = parse(where)
        return conditions if self._inside is None else Within(self._inside, conditions)

    @overload
    def get(self, ids: Id, *, vectors: bool = False) -> Record: ...  # type: ignore[overload-overlap]

    @overload
    def get(self, ids: Iterable[Id], *, vectors: bool = False) -> list[Record]: ...

    def get(self, ids: Id | Iterable[Id], *, vectors: bool = False) -> Record | list[Record]:
        """Return a document by its id or path, or several in the order of their ids.

        >>> Retriever.open("docs").get("faq-1").metadata  # doctest: +SKIP

        :param vectors: also return the vectors of its passages, shape (passages, dim).
        :raises NotFoundError: naming the first id that is not there.
        """
        if not isinstance(ids, (str, os.PathLike)) and (isinstance(ids, bytes) or not isinstance(ids, Iterable)):
            raise InputError(f"documents are named by an id or a list of ids, not by {shown(ids)}")
        check_flags(vectors=vectors)
        names = [ids] if isinstance(ids, (str, os.PathLike)) else list(ids)
        from .store import records

        result = self._index.read(lambda snapshot: records.get(snapshot, names, vectors=vectors, inside=self._inside))
        return result[0] if isinstance(ids, (str, os.PathLike)) else result

    def __contains__(self, name: object) -> bool:
        from .store import records

        return self._index.read(lambda snapshot: records.contains(snapshot, name, self._inside))

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # an index without documents is an index

    def grep(
        self,
        pattern: str,
        *,
        fixed: bool = False,
        ignore_case: bool = False,
        word: bool = False,
        where: Where = None,
        before: int = 0,
        after: int = 0,
        lines: bool = True,
    ) -> Iterator[DocumentMatches]:
        """Find the lines of all texts that match a regular expression, by document, in order of path.

        The texts are as the readers extracted them, also from PDF and office files. Patterns have the syntax of RE2,
        without look-around and back-references, so that no pattern takes long.

        :param fixed: find `pattern` itself.
        :param ignore_case: let capitals match small letters.
        :param word: find whole words only.
        :param where: read only documents that pass this filter.
        :param before: the number of lines to return before each match.
        :param after: the number of lines to return after each match.
        :param lines: False only counts the lines of each document.
        :raises InputError: when `pattern` is no regular expression.
        """
        from .search.grep import LinePattern, check_context, grep

        check_flags(fixed=fixed, ignore_case=ignore_case, word=word, lines=lines)
        checked = LinePattern.parse(pattern, fixed=fixed, ignore_case=ignore_case, word=word)
        check_context(before, after)
        conditions = self._where(where)
        return grep(self._index.snapshot(), checked, conditions, before=before, after=after, lines=lines)

    def text(self, path: Id, *, lines: tuple[int, int] | None = None, hidden: bool = True) -> str:
        """Return the text that was read from a document.

        :param lines: the first and the last line to return, from 1, as citations count them.
        :param hidden: with text that a person does not see in the document, such as white letters on white.
        :raises NotFoundError: when the document is not there.
        :raises InputError: when it has no text, with the reason, or not these lines.
        """
        check_flags(hidden=hidden)
        if lines is None:
            return self._read_document(path, lambda snapshot: stored_documents.text(snapshot, path, hidden=hidden))
        first, last = first_and_last(lines)
        return self._read_document(
            path, lambda snapshot: stored_documents.lines(snapshot, path, first, last, hidden=hidden)
        )

    def line_range(self, path: Id) -> tuple[int, int]:
        """Return the first and the last line of a document, counted as citations count them.

        :raises NotFoundError: when the document is not there.
        :raises InputError: when it has no text, with the reason.
        """
        return self._read_document(path, lambda snapshot: stored_documents.line_range(snapshot, path))

    def _read_document(self, path: Id, answer: Callable[[Snapshot], _T]) -> _T:
        """Read a document, unless it is outside."""
        from .store import records

        records.name_of(path)  # raises if it is none

        def checked(snapshot: Snapshot) -> _T:
            if self._inside is not None:
                records.check_inside(snapshot, path, self._inside)
            return answer(snapshot)

        return self._index.read(checked)

    def count(self, where: Where = None) -> int:
        """Count the documents, or only documents that pass a filter."""
        conditions = self._where(where)
        from .store import records

        return self._index.read(lambda snapshot: records.count(snapshot, conditions))

    def iterate(
        self, where: Where = None, *, after: str | None = None, limit: int | None = None, vectors: bool = False
    ) -> Iterator[Record]:
        """Yield the documents that pass a filter, in order of id. One page of them at a time is in memory.

        Each page is read from the newest state of the index. To go on later, pass the last id as `after`.

        :param after: begin after this id.
        :param limit: the number of documents at most.
        :param vectors: also return the vectors of their passages, shape (passages, dim).
        """
        if limit is not None and not is_whole(limit, 0):
            raise InputError(f"limit is the number of documents, a whole number of at least 0, not {shown(limit)}")
        if after is not None and not isinstance(after, str):
            raise InputError(f"after is the id of a document, not {shown(after)}")
        check_flags(vectors=vectors)
        from .store import records

        return records.pages(self._index.read, self._where(where), after, limit, vectors=vectors)

    def facets(self, fields: str | Iterable[str], where: Where = None, *, limit: int = 100) -> dict[str, Facet]:
        """Return the values that documents have under some keys, with counts, the least and the greatest.

        >>> Retriever.open("docs").facets(["team", "year"])["team"].counts  # doctest: +SKIP
        (('billing', 12), ('shipping', 5))

        :param fields: keys of metadata, or fields of filters such as `type`; `modified` is in seconds since 1970.
        :param where: count only documents that pass this filter.
        :param limit: the number of values of a key, the most frequent first.
        :raises InputError: when no document has a key.
        """
        keys = facet_keys(fields)
        if not is_whole(limit, 0):
            raise InputError(f"limit is the number of values, a whole number of at least 0, not {shown(limit)}")
        conditions = self._where(where)
        from .store import records

        return self._index.read(lambda snapshot: records.facets(snapshot, keys, conditions, limit, self._inside))


def first_and_last(lines: object) -> tuple[Any, Any]:
    """Return the first and the last line that a caller asks for.

    :raises InputError: when there are not two.
    """
    if not isinstance(lines, (tuple, list)) or len(lines) != 2:
        raise InputError(f"lines are the first and the last one, such as (3, 5), not {shown(lines)}")
    return lines[0], lines[1]


def facet_keys(fields: object) -> list[str]:
    """Return the keys of facets.

    :raises InputError: when one is no key.
    """
    keys: list[Any] = list(fields) if isinstance(fields, Iterable) and not isinstance(fields, str) else [fields]
    if not all(isinstance(key, str) and key for key in keys):
        raise InputError(f"facets are named by keys, such as 'type', not by {shown(fields)}")
    return keys
