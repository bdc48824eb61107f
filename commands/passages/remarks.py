"""Notes of `binocle search` on stderr: on the query's length, language and words, and on a lack of answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.printable import printable, printable_path
from ...core.units import count_of
from ..output import echo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...retriever.retriever import Retriever
    from ...retriever.search.results.hits import Hits
    from ...retriever.store.filters.filter import Filter

_NAMED = 3  # documents in a note


def corrected(query: str, hits: Hits) -> str:
    """Return the query with its corrected words, and print a note on each."""
    from ...retriever.search.words.corrections import replace_words

    for typed, correction in hits.corrections.items():
        echo(
            f"binocle: searched for '{printable(correction)}' instead of '{printable(typed)}': "
            "put it in quotes to search it as it is",
            err=True,
        )
    return replace_words(query, hits.corrections)


def say_language(query: str, retriever: Retriever) -> None:
    """Name an encoder for the language of the query, if the index has the default encoder and that is not for it."""
    from ...retriever.search.words.documents_language import MULTILINGUAL_MODEL, is_for_english
    from ...retriever.search.words.text_language import foreign_language

    language = foreign_language(query)
    if language and is_for_english(retriever.snapshot().head.encoder):
        echo(
            f"binocle: the query seems to be in {language}, but the encoder of this index is for English: "
            f"index with --model {MULTILINGUAL_MODEL} to search by meaning in other languages",
            err=True,
        )


def say_nothing(hits: Hits, from_here: Callable[[str], str], *, is_shown: bool) -> None:
    """Say that the index has no answer, and cite its nearest passage.

    :param is_shown: whether the passage was printed all the same.
    """
    hit = hits[0].best
    path = printable_path(from_here(hit.path) if hit.source == "file" else hit.path)
    echo(
        f"binocle: nothing here answers this; the nearest is {path}:{hit.line_start} (relevance {hit.relevance:.2f})"
        + ": --min-relevance 0 shows it" * (not is_shown),
        err=True,
    )


def say_named(
    query: str, retriever: Retriever, filters: Sequence[str | Filter], from_here: Callable[[str], str]
) -> None:
    """Name documents that have the words of the query in their paths."""
    from ...retriever.store.documents import with_name

    documents = with_name(retriever.snapshot(), query, list(filters))
    if documents:
        paths = [from_here(row["path"]) if row["source"] == "file" else row["path"] for row in documents[:_NAMED]]
        rest = f" and {count_of(len(documents) - _NAMED, 'other')}" * (len(documents) > _NAMED)
        echo(f"binocle: the words are in the name of {', '.join(map(printable_path, paths))}{rest}", err=True)


def say_too_long(query: str, retriever: Retriever) -> None:
    """Warn of a query with more tokens than the encoder reads."""
    limit = retriever.encoder.max_tokens
    if len(query) > limit and (count := len(retriever.encoder.offsets([query])[0])) > limit:
        echo(
            f"binocle: the encoder reads only the first {limit:,} of the query's {count:,} tokens; "
            "modes hybrid and lexical look for all its words",
            err=True,
        )
