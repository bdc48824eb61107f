"""The attacker of an audit: a thief of vectors who also has texts of the same kind.

He knows the public encoder, so he first learns to invert it on his own texts, once before any defence. For each defence
he then maps stolen vectors onto undefended ones by least squares on his pairs. ALGEN (arXiv:2502.11308) found that a
thousand pairs suffice. If the map fails, he retrains the part of his decoder that predicts words, for the same number
of steps with each defence. Without pairs he aligns the stolen vectors first (`alignment`), and uses the decoder
unchanged. For a text of more than 64 tokens he gives only its likeliest tokens, in no order.
"""

from __future__ import annotations

import math
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.progress import Progress, counted, ignore
from ....indexes.metric import cosines, normalized
from ...runs import environment
from ...runs.run_progress import stepping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ....core.arrays import Floats
    from ....core.progress import OnProgress
    from ....retriever.inversion.correction import Change, Ids, Proposer
    from ....retriever.inversion.decoders.text_decoder import TextDecoder
    from ....retriever.inversion.proposals import TokenProposer
    from ....retriever.models.encoder import Encoder
    from ...inversion.text_batches import TextBatches
    from ...runs.loop import Schedule
    from .candidates import AttackerSpace


_FIRST_DECODER = 4.0  # times the steps and seconds of a defence
_ROUNDS = 10  # of correction, as many as `invert --seconds 5` makes on two cores
_ORDERED = 64  # maximum tokens of a text that is put into order; of a longer one the answer is its likeliest tokens
_UNCHANGED = 0.99  # mean cosine of mapped vectors with undefended ones: nothing is left to learn anew
_RIDGE = 1e-3  # of the mean of the squares, added to each
_TRAINING_BATCH = 256  # texts
_ENCODING_BATCH = 2_048  # texts
_PROPOSING_BATCH = 512  # vectors: their bags, as wide as the vocabulary, are in memory together


class TextAttacker:
    """Learns to recover texts from vectors: one defence after another, from the same decoder.

    :param base: a cache that the attackers of one audit share, with their first decoder.
    """

    def __init__(self, dim: int, seed: int, encoder: Encoder, base: dict[str, Any], on_progress: OnProgress) -> None:
        from ....retriever.models.tokens.token_ids import EncoderTokens

        environment.silence()
        self._dim, self._seed, self._encoder, self._base, self._on_progress = dim, seed, encoder, base, on_progress
        self._tokens = EncoderTokens.of(encoder)
        self._map = np.eye(dim, encoder.dim, dtype=np.float32)
        self._offset = np.zeros(encoder.dim, np.float32)

    def fit(self, vectors: Floats, texts: Sequence[str], steps: int, seconds: float = math.inf) -> bool:
        """Learn from texts and their stolen vectors (texts, dim); return whether the limit of time stopped it.

        The first of an audit's attackers learns from the vectors as they are stored.

        :param steps: the steps of a decoder; the first decoder takes four times as many.
        :param seconds: the time limit of a decoder; the first decoder has four times as much.
        """
        from ...inversion.text import BagInversion
        from ...inversion.text_batches import TextBatches
        from ...runs.loop import run_loop

        tokens = self._tokens(texts)
        positions = np.array([position for position, ids in enumerate(tokens) if ids])
        lengths = np.array([len(tokens[position]) for position in positions])
        rows = [np.array(tokens[position], np.int64) for position in positions]
        longest = int(min(lengths.max(), self._encoder.max_tokens))
        if "decoder" not in self._base:
            plain = self._base["plain"] = self._first_vectors(vectors[positions], [texts[row] for row in positions])
            undefended = TextBatches(rows, lengths, plain, longest, device=environment.device())
            self._base["decoder"] = self._first_decoder(undefended, steps, seconds)
        self._learn_map(vectors[positions], self._base["plain"])
        self._decoder = self._base["decoder"]
        mapped = self._mapped(vectors[positions])
        if float(cosines(mapped, self._base["plain"]).mean()) > _UNCHANGED:
            return bool(self._base["cut_off"])
        self._decoder = _with_own_bag(self._base["decoder"])
        texts_of_bag = TextBatches(rows, lengths, mapped, longest, device=environment.device())
        bag = BagInversion(self._decoder, texts_of_bag, batch_size=_TRAINING_BATCH, seed=self._seed)
        schedule = self._schedule(5e-4, _TRAINING_BATCH, steps, seconds, len(rows))
        learned = run_loop(self._decoder.bag, bag.loss, schedule, progress=stepping(self._report, "learning"))
        self._base["cut_off"] |= learned.steps < learned.planned
        return bool(self._base["cut_off"])

    def recover(self, vectors: Floats) -> list[str]:
        """Return for each vector the nearest proposal, encoded again and compared in the mapped space."""
        from ....retriever.inversion.proposals import TokenProposer
        from ...runs.loop import trim

        mapped = self._mapped(vectors)
        proposer = TokenProposer.of(self._decoder, self._tokens, half=environment.has_bf16())
        self._on_progress(Progress(f"proposing texts for {len(mapped):,} vectors"))
        rows: list[list[str]] = []
        for start in range(0, len(mapped), _PROPOSING_BATCH):
            rows += self._proposed(proposer, mapped[start : start + _PROPOSING_BATCH])
        trim()
        return self._nearest(mapped, rows)

    def _proposed(self, proposer: TokenProposer, mapped: Floats) -> list[list[str]]:
        """Propose up to two texts for each vector: the bag's tokens, and unless it is long the decoder's text."""
        bags = proposer.bags(mapped, self._embed)
        rows = [[self._tokens.text(bag)] if bag else [] for bag in bags.tokens]
        ordered = np.flatnonzero(bags.counts <= _ORDERED)
        for row, texts in zip(ordered.tolist(), proposer.texts(mapped[ordered], bags[ordered], 1), strict=True):
            rows[row] += [self._tokens.text(ids) for ids in texts if ids]
        return rows

    def _nearest(self, mapped: Floats, rows: Sequence[Sequence[str]]) -> list[str]:
        """The text of each row that is nearest to its vector; "" of an empty row."""
        texts = list(dict.fromkeys(text for row in rows for text in row))
        self._on_progress(Progress(f"choosing among {len(texts):,} texts"))
        vectors = dict(zip(texts, self._undefended(texts), strict=True)) if texts else {}
        return [
            row[int((np.array([vectors[text] for text in row]) @ target).argmax())] if row else ""
            for row, target in zip(rows, mapped, strict=True)
        ]

    def correct(self, vectors: Floats, comparison: AttackerSpace, extra: Sequence[Sequence[int]]) -> list[str]:
        """Search for the nearest text of each vector, from the decoder's texts and the extra ones."""
        from ....retriever.inversion.correction import correct
        from ....retriever.inversion.proposals import TokenProposer

        mapped = self._mapped(vectors)
        targets = normalized(comparison.stolen(vectors)) if comparison.defended else mapped
        proposer = TokenProposer.of(self._decoder, self._tokens, half=environment.has_bf16())

        def embed(texts: Sequence[Ids]) -> Floats:
            spelled = [self._tokens.text(ids) for ids in texts]
            return normalized(comparison.texts(self._undefended(spelled), spelled))

        recovered = []
        bags = proposer.bags(mapped, self._embed)
        for row, texts in enumerate(zip(proposer.texts(mapped, bags), bags.tokens, strict=True)):
            own: Proposer = proposer.for_vector(mapped[row], bags[row : row + 1])
            own = _MappedProposer(own, self._mapped) if comparison.defended else own
            starts = [ids for ids in (*texts[0], texts[1], tuple(extra[row])) if ids]
            longest = self._decoder.settings.longest
            nearest = correct(
                targets[row], starts, own, embed, seconds=math.inf, seed=self._seed, longest=longest, rounds=_ROUNDS
            )
            recovered.append(self._tokens.text(nearest.ids))
        return recovered

    def _report(self, stage: str) -> None:
        self._on_progress(Progress(stage))

    def _first_vectors(self, stored: Floats, texts: Sequence[str]) -> Floats:
        """Undefended vectors: those of the first fit, unless the index's encoder has a defence of its own."""
        if not hasattr(self._encoder, "base"):
            return normalized(stored)
        self._report("encoding the attacker's texts without a defence")
        return self._undefended(texts)

    def _undefended(self, texts: Sequence[str]) -> Floats:
        """Encode texts without a defence, as unit vectors."""
        base = getattr(self._encoder, "base", self._encoder)
        on_progress = self._on_progress if len(texts) > _ENCODING_BATCH else ignore
        starts = counted(range(0, len(texts), _ENCODING_BATCH), on_progress, f"encoding {len(texts):,} texts")
        return normalized(np.concatenate([base.encode(texts[start : start + _ENCODING_BATCH]) for start in starts]))

    def _embed(self, texts: Sequence[Ids]) -> Floats:
        return self._undefended([self._tokens.text(ids) for ids in texts])

    def _learn_map(self, stolen: Floats, plain: Floats) -> None:
        """Fit the map from stolen to undefended vectors by ridge regression."""
        mean, target = stolen.mean(0), plain.mean(0)
        centred = (stolen - mean).astype(np.float64)
        squares = centred.T @ centred
        squares += _RIDGE * np.trace(squares) / len(squares) * np.eye(len(squares))
        self._map = np.linalg.solve(squares, centred.T @ (plain - target)).astype(np.float32)
        self._offset = target - mean @ self._map

    def _mapped(self, stolen: Floats) -> Floats:
        return normalized(stolen @ self._map + self._offset)

    def _first_decoder(self, texts: TextBatches, steps: int, seconds: float) -> TextDecoder:
        """Train the decoder of undefended vectors that every attacker starts from."""
        from ...inversion.text import train_decoder
        from ...inversion.untrained_decoder import new_decoder, token_vectors

        base = getattr(self._encoder, "base", self._encoder)
        decoder = new_decoder(base, self._tokens, int(texts.lengths.max()), self._seed).to(environment.device())
        words = token_vectors(base, self._tokens, decoder.settings.vocabulary, self._on_progress)

        def schedule(share: float, rate: float, batch: int, rows: int) -> Schedule:
            part = _FIRST_DECODER * share
            return self._schedule(rate, batch, max(1, round(steps * part)), seconds * part, rows)

        report_step = stepping(self._report, "learning to invert")
        learned = train_decoder(
            decoder,
            texts,
            self._tokens,
            schedule,
            ordered=texts.up_to(_ORDERED),
            words=words,
            batch_size=_TRAINING_BATCH // 8,
            seed=self._seed,
            progress=lambda event: (report_step if event.total else self._on_progress)(event),
        )
        self._base["cut_off"] = learned.steps < learned.planned
        return decoder

    def _schedule(self, rate: float, batch: int, steps: int, seconds: float, rows: int) -> Schedule:
        from ...runs.loop import Schedule

        return Schedule(rate, batch, steps, limit=seconds, seed=self._seed, bf16=environment.has_bf16(), rows=rows)


def _with_own_bag(decoder: TextDecoder) -> TextDecoder:
    """Copy a decoder. The copy owns the maps of its bag, for retraining; it shares the words and the other layers."""
    twin = copy(decoder)
    twin._modules = dict(decoder._modules)  # noqa: SLF001 - nn.Module has no shallow copy of its own
    shared = [*decoder.bag.buffers(), decoder.bag.words]
    twin.bag = deepcopy(decoder.bag, {id(tensor): tensor for tensor in shared})
    twin.bag.words.requires_grad = False
    return twin


@dataclass(frozen=True, slots=True)
class _MappedProposer:
    """A proposer that judges texts by undefended vectors, while correction compares defended ones."""

    proposer: Proposer
    to_undefended: Callable[[Floats], Floats]

    def changes(self, ids: Ids, own: Floats) -> list[tuple[float, Change]]:
        """Changes worth trying, as `Proposer.changes`."""
        return self.proposer.changes(ids, self.to_undefended(own[None])[0])

    def likelihood(self, ids: Ids) -> float:
        """Score a text's tokens, as `Proposer.likelihood`."""
        return self.proposer.likelihood(ids)


class TextAttackers:
    """Creates the attackers of one audit: an `audit.AttackerFactory`."""

    def __init__(self, on_progress: OnProgress = ignore) -> None:
        environment.require("attacking vectors")
        self._base: dict[str, Any] = {}
        self._on_progress = on_progress

    def __call__(self, dim: int, seed: int, encoder: Encoder) -> TextAttacker:
        """Create an attacker; all share one base decoder, which the first to learn trains."""
        return TextAttacker(dim, seed, encoder, self._base, self._on_progress)
