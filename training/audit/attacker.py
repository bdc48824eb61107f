"""The attacker of an audit: what someone learns who has stolen vectors and some texts of the same kind.

He knows the public encoder, so he first learns to invert that, on his own texts: once, before any defence. Stolen
vectors he maps onto the ones the encoder gives without a defence, by least squares on his pairs (ALGEN,
arXiv:2502.11308, found a thousand pairs to do), and then teaches his decoder which words the mapped ones hold, anew for
each defence and for the same time. Without pairs to learn a rotation from he is left with the decoder as it is.
"""

from __future__ import annotations

from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runs import environment
from ..runs.progress import counted, stepping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats
    from ...retriever.models.encoder import Encoder
    from ..inversion.text import Texts
    from ..runs.loop import Schedule
    from ..runs.progress import Tell


_BASE = 4.0  # times the time for a defence that the first decoder has
_RIDGE = 1e-3  # of the mean of the squares, added to each
_THRESHOLD = 0.15  # how likely a token of the bag must be
_BATCH = 256  # texts
_AT_ONCE = 2_048


class TextAttacker:
    """Learns to recover texts from vectors: one defence after another, from the same beginning.

    :param base: where attackers of one audit keep the decoder that they all begin from.
    """

    def __init__(self, dim: int, seed: int, encoder: Encoder, base: dict[str, Any], tell: Tell) -> None:
        from ...retriever.models.token_ids import EncoderTokens

        environment.silence()
        self._dim, self._seed, self._encoder, self._base, self._tell = dim, seed, encoder, base, tell
        self._tokens = EncoderTokens(encoder)
        self._map = np.eye(dim, encoder.dim, dtype=np.float32)
        self._offset = np.zeros(encoder.dim, np.float32)

    def fit(self, vectors: Floats, texts: Sequence[str], seconds: float) -> None:
        """Learn from texts and their stolen vectors (texts, dim), for about so long beside the common beginning."""
        from ..inversion.text import BagInversion, Texts
        from ..runs.loop import run_loop

        tokens = self._tokens(texts)
        kept = np.array([place for place, ids in enumerate(tokens) if ids])
        lengths = np.array([len(tokens[place]) for place in kept])
        rows = [np.array(tokens[place], np.int64) for place in kept]
        longest = int(min(lengths.max(), self._encoder.max_tokens))
        if "decoder" not in self._base:
            self._tell("encoding the attacker's texts without a defence")
            plain = self._plain([texts[place] for place in kept])
            self._base["plain"] = plain
            self._base["decoder"] = self._begun(
                Texts(rows, lengths, plain, longest, device=environment.device()), seconds
            )
        self._learn_map(vectors[kept], self._base["plain"])
        self._decoder = _with_own_bag(self._base["decoder"])
        mapped = Texts(rows, lengths, self._mapped(vectors[kept]), longest, device=environment.device())
        bag = BagInversion(self._decoder, mapped, batch_size=_BATCH, seed=self._seed)
        plan, progress = self._plan(5e-4, _BATCH, seconds, len(rows)), stepping(self._tell, "learning")
        run_loop(self._decoder.bag, bag.loss, plan, progress=progress)

    def recover(self, vectors: Floats) -> list[str]:
        """For each vector the proposal nearest to it: encoded again, and seen through the map."""
        from ...retriever.inversion.inverter import bag_of, proposing_with
        from ..runs.loop import trim

        given = self._mapped(vectors)
        proposing = proposing_with(self._decoder, self._tokens, half=environment.has_bf16())
        shares, counts = proposing.bag(given)
        found = []
        proposed = counted(proposing.texts(given, 1), self._tell, f"choosing among texts for {len(given):,} vectors")
        for row, texts in enumerate(proposed):
            likely = bag_of(shares[row], float(counts[row]), _THRESHOLD)[: max(1, round(float(counts[row])))]
            bag = tuple(token for token, _ in likely)
            proposals = [self._tokens.text(ids) for ids in (*texts, bag) if ids]
            nearness = self._plain(proposals) @ given[row] if proposals else np.empty(0)
            found.append(proposals[int(nearness.argmax())] if proposals else "")
        trim()
        return found

    def _plain(self, texts: Sequence[str]) -> Floats:
        """What the encoder gives without a defence."""
        base = getattr(self._encoder, "base", self._encoder)
        starts = counted(range(0, len(texts), _AT_ONCE), self._tell, f"encoding {len(texts):,} texts")
        return _unit(np.concatenate([base.encode(texts[start : start + _AT_ONCE]) for start in starts]))

    def _learn_map(self, stolen: Floats, plain: Floats) -> None:
        mean, target = stolen.mean(0), plain.mean(0)
        centred = (stolen - mean).astype(np.float64)
        squares = centred.T @ centred
        squares += _RIDGE * np.trace(squares) / len(squares) * np.eye(len(squares))
        self._map = np.linalg.solve(squares, centred.T @ (plain - target)).astype(np.float32)
        self._offset = target - mean @ self._map

    def _mapped(self, stolen: Floats) -> Floats:
        return _unit(stolen @ self._map + self._offset)

    def _begun(self, texts: Texts, seconds: float) -> Any:
        """A decoder of undefended vectors, which every attacker begins from."""
        from ..inversion.text import alone, begin, learn_text

        base = getattr(self._encoder, "base", self._encoder)
        decoder = begin(base, self._tokens, int(texts.lengths.max()), self._seed).to(environment.device())
        self._tell("encoding the vocabulary")
        words = alone(base, self._tokens, decoder.settings.vocabulary, self._tell)

        def plan(share: float, rate: float, batch: int, rows: int) -> Schedule:
            return self._plan(rate, batch, _BASE * seconds * share, rows)

        told: dict[str, Any] = {"tell": self._tell, "progress": stepping(self._tell, "learning to invert")}
        learn_text(decoder, texts, self._tokens, plan, words=words, batch_size=_BATCH // 8, seed=self._seed, **told)
        return decoder

    def _plan(self, rate: float, batch: int, seconds: float, rows: int) -> Schedule:
        from ..runs.loop import Schedule

        return Schedule(rate, batch, seconds=seconds, seed=self._seed, bf16=environment.has_bf16(), rows=rows)


def _with_own_bag(decoder: Any) -> Any:
    """A decoder that shares all weights but its bag's: those are what an attacker learns anew."""
    found = copy(decoder)
    found._modules = dict(decoder._modules)  # noqa: SLF001 - nn.Module has no shallow copy of its own
    found.bag = deepcopy(decoder.bag, {id(one): one for one in decoder.bag.buffers()})
    return found


class Attackers:
    """Makes the attackers of one audit, as `audit.Factory` says."""

    def __init__(self, tell: Tell = lambda _: None) -> None:
        environment.require("attacking vectors")
        self._base: dict[str, Any] = {}
        self._tell = tell

    def __call__(self, dim: int, seed: int, encoder: Encoder) -> TextAttacker:
        return TextAttacker(dim, seed, encoder, self._base, self._tell)


def _unit(vectors: Floats) -> Floats:
    unit: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit.astype(np.float32)
