"""`binocle search --explain --inverter`: the words that vectors keep and lose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..options import is_typed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ...retriever.inversion.facts import RetainedFacts
    from ...retriever.models.encoder import Kind
    from ...retriever.retriever import Retriever
    from ...retriever.search.results.hit import Hit


def recovery(
    inverter: Path | None, retriever: Retriever, *, explain: bool
) -> Callable[[str, Kind], RetainedFacts] | None:
    """A function that recovers the words of a text from its vector; None without --inverter or --explain."""
    if inverter is not None and not explain and is_typed("inverter"):
        raise click.UsageError("--inverter goes with --explain")
    if inverter is None or not explain:
        return None
    from functools import cache

    from ...retriever.inversion.facts import retained_facts
    from ...retriever.inversion.inverter import EmbeddingInverter

    loaded = EmbeddingInverter.load(inverter, encoder=retriever.encoder)
    return cache(lambda text, kind: retained_facts(text, loaded, kind=kind))


def embedded_text(hit: Hit) -> str:
    """The text that the encoder embedded for the best passage of a hit: its heading and the passage."""
    from ...retriever.documents.document import context_of

    return context_of(hit.best.heading, hit.best.text)


def recovered(facts: RetainedFacts) -> str:
    """Name the words and facts that can be read from a vector, and the facts that are not among its likeliest words."""
    missing = f"; not among its likeliest words: {', '.join(facts.missing)}" if facts.missing else ""
    retained = f"; read back: {', '.join(facts.retained)}" if facts.retained else ""
    return f"its vector still says: {', '.join(facts.words) or 'nothing'}{retained}{missing}"
