"""An example for type checkers: an asynchronous service that shows each tenant its own documents."""

from __future__ import annotations

from binocle import BinocleError, F, Hit, Hits, LockedError, Report, Retriever, SearchEvent


class Service:
    """Search and feed one index for many tenants."""

    def __init__(self, path: str) -> None:
        self.retriever = Retriever.open(path)
        self.retriever.on_search = self.observe
        self.seconds: list[float] = []

    def observe(self, event: SearchEvent) -> None:
        """Keep how long each search took."""
        self.seconds.append(event.seconds)

    async def search(self, tenant: str, query: str) -> list[dict[str, str | int | float]]:
        """Answer a request."""
        hits: Hits = await self.retriever.asearch(query, 5, where=F.tenant == tenant)
        return [row(hit) for hit in hits]

    async def feed(self, tenant: str, texts: dict[str, str]) -> list[str]:
        """Add documents, and return their ids."""
        documents = [{"id": name, "text": text, "metadata": {"tenant": tenant}} for name, text in texts.items()]
        try:
            report: Report = await self.retriever.aadd(documents, on_error="skip", wait=5)
        except LockedError:
            return []
        return report.ids


def row(hit: Hit) -> dict[str, str | int | float]:
    """Return a hit as JSON has it."""
    return {"path": hit.path, "line": hit.line_start, "score": hit.score, "text": hit.text}


def is_healthy(service: Service) -> bool:
    """Tell whether the index answers."""
    try:
        return service.retriever.status().chunks > 0
    except BinocleError:
        return False
