"""An example for type checkers: passages for a prompt, and citations that are checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from binocle import Context, InputError, Mode, NoIndexError, Passage, Retriever, Where

Message = dict[str, str]


def answer(
    retriever: Retriever,
    question: str,
    complete: Callable[[Sequence[Message]], str],
    tokenizer: Callable[[str], list[int]],
    where: Where = None,
    mode: Mode = "hybrid",
) -> tuple[str, list[str]]:
    """Ask a model, and return its answer with the citations that still hold."""
    context: Context = retriever.context(question, max_tokens=1_000, tokenizer=tokenizer, where=where, mode=mode)
    return complete(context.messages), [passage.citation for passage in context.passages if holds(retriever, passage)]


def holds(retriever: Retriever, passage: Passage) -> bool:
    """Tell whether a passage is still in its document."""
    return retriever.check(passage) in ("exact", "moved")


def open_index(path: str) -> Retriever | None:
    """Open an index that exists."""
    try:
        with Retriever.open(path) as retriever:
            retriever.status()
    except (NoIndexError, InputError):
        return None
    return Retriever.open(path)
