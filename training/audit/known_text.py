"""Measure how much of an index's text an attacker has before any attack: boilerplate, and copies between documents.

The attacks do not count such text: they leave out texts that repeat the attacker's own. It leaks all the same. He has
it, and its vector tells him that the index holds it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.progress import Progress
from ..data import source_documents as corpus
from ..inversion.metrics import mean_value
from ..inversion.overlap import RepeatedTexts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...core.progress import OnProgress
    from ...retriever.models.tokens.token_ids import EncoderTokens
    from ..data.source_documents import Source
    from ..inversion.metrics import Value

_PASSAGES = 2_000  # compared with the attacker's documents, at most
_BATCH_SIZE = 512  # passages tokenized together


@dataclass(frozen=True, slots=True)
class KnownText:
    """How many stored passages repeat text that the attacker has, without their headings."""

    passages: int  # compared
    copies: Value  # share with more than half of their runs of five tokens in the attacker's documents
    sharing: Value  # share that are copies, or repeat `overlap.LONG_RUN` tokens in a row from those documents

    @classmethod
    def measure(
        cls,
        own: Iterable[Source],
        attacked: Iterable[Source],
        tokens: EncoderTokens,
        seed: int,
        on_progress: OnProgress,
    ) -> KnownText:
        """Compare a sample of the attacked documents' passages with all of the attacker's documents."""
        on_progress(Progress("looking for text that the attacker has"))
        sample = _sample(attacked, seed)
        repeated = RepeatedTexts(tokens(sample))
        for texts in _batches(own):
            repeated.meet(tokens(texts))
        copies = repeated.copies()
        sharing = [copy or shares for copy, shares in zip(copies, repeated.sharing(), strict=True)]
        return cls(len(sample), mean_value(copies, seed), mean_value(sharing, seed))

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def _sample(documents: Iterable[Source], seed: int) -> list[str]:
    """Choose passages from as many documents as needed. Equal passages are counted separately."""
    texts = [passage.text for source in corpus.sample(documents, _PASSAGES, seed) for passage in source.passages]
    sample = np.random.default_rng(seed).permutation(len(texts))[:_PASSAGES]
    return [texts[number] for number in sample]


def _batches(documents: Iterable[Source]) -> Iterator[Sequence[str]]:
    batch: list[str] = []
    for source in documents:
        for passage in source.passages:
            batch.append(passage.text)
            if len(batch) == _BATCH_SIZE:
                yield batch
                batch = []
    yield batch
