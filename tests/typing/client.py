"""An example for type checkers: a program that asks a server, and one that gets the answers themselves."""

from __future__ import annotations

from pathlib import Path

from binocle import Answer, Context, F, Hits, Record, RemoteRetriever, Retriever


def prompt(server: RemoteRetriever, question: str, documents: list[Path]) -> str:
    """Return what a model reads: different passages of some documents, and a context."""
    hits: Hits = server.search(question, 5, where=F.year >= 2020, ids=documents, mmr=0.5, rerank=True, deadline=2.0)
    many: list[Hits] = server.search_many([question], vectors=[[0.1, 0.2]], group_by="document", with_vectors=True)
    context: Context = server.context(question, max_tokens=500, siblings=0, order="best_last", deadline=2.0)
    return "\n".join([*(hit.text for page in (hits, *many) for hit in page), context.text])


async def answer(server: RemoteRetriever, question: str, names: list[str]) -> str:
    """Return the context of a question, or the first of some documents."""
    hits: Hits = await server.asearch(question, 3, where=F.year >= 2020, mmr=0.5, rerank=True, deadline=2.0)
    context: Context = await server.acontext(question, max_tokens=500, rerank=True, deadline=2.0)
    records: list[Record] = server.get(names) if server.count(F.year >= 2020) else []
    return context.text if hits else records[0].text


def spans(retriever: Retriever, question: str) -> list[tuple[str, float]]:
    """Return answers with their probabilities."""
    answers: list[Answer] = retriever.answer(question, reader="my-reader", k=3)
    return [(answer.text, answer.probability) for answer in answers]
