"""Train a decoder of vectors in two parts: first the bag of a text's tokens, then their order.

The bag learns the cross-entropy of the text's tokens, thousands of texts a second. The order is learned by masking. The
masked share of each text is drawn from 0 to 1: the masked diffusion objective of arXiv:2406.07524 without its weights,
which favour texts with few masks. A small share of the visible tokens is wrong, since correction asks about texts with
wrong tokens. Cross-entropy is over the batch's own tokens and a random sample of the vocabulary.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from ...core.progress import Progress, ignore
from ...retriever.inversion.decoders.text_decoder import padded
from ..runs.loop import run_loop
from .sampled_vocabulary import round_mask, sample_vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ...retriever.inversion.decoders.text_decoder import TextDecoder
    from ...retriever.models.tokens.token_ids import EncoderTokens
    from ..runs.loop import Schedule
    from ..runs.training_run import LoopResult
    from .text_batches import TextBatches


_CLASSES = 2_048  # tokens in the loss beside the batch's own
_LENGTH = 0.1  # weight of the length's loss
_WRONG = 0.08  # share of the visible tokens to replace
_BAG = 0.5  # maximum share of the time that the bag learns
_PASSES = 2.0  # maximum number of passes of the bag over the texts: with more it overfits
_SMALL = 200_000  # texts that the bag learns from in any case, however often it meets each


class BagInversion:
    """The bag of a decoder in training: its initial weights and its loss by step."""

    def __init__(self, decoder: TextDecoder, texts: TextBatches, *, batch_size: int = 512, seed: int = 0) -> None:
        self.bag, self._texts, self._batch, self._seed = decoder.bag, texts, batch_size, seed

    @torch.no_grad()
    def begin(self, vectors: Floats, limit: int = 20_000) -> None:
        """Initialise the bag with the frequency of each token, and with the vectors of tokens alone.

        :param vectors: (vocabulary, dim).
        :param limit: maximum number of texts to count tokens in.
        """
        counts = np.full(len(self.bag.bias), 0.1)
        for number in range(min(limit, len(self._texts))):
            np.add.at(counts, self._texts.ids(number), 1)
        frequencies = torch.from_numpy(np.log(counts / counts.sum())).float()
        self.bag.bias.copy_(frequencies - frequencies.mean())
        self.bag.alone.copy_(torch.from_numpy(vectors - vectors.mean(0)))

    def loss(self, step: int) -> Tensor:
        """Mean cross-entropy of a text's tokens and of its length; each text counts once."""
        numbers = self._texts.numbers(step, self._batch, self._seed)
        rows = [self._texts.ids(number) for number in numbers]
        device = self._texts.device
        lengths = np.array([len(row) for row in rows])
        ids = torch.from_numpy(np.concatenate(rows)).to(device)
        row_of = torch.from_numpy(np.repeat(np.arange(len(rows)), lengths)).to(device)
        weights = torch.from_numpy((1 / lengths / len(rows))[row_of.cpu().numpy()]).float().to(device)
        classes = sample_vocabulary(ids, torch.arange(len(self.bag.bias), device=device), _CLASSES)
        vectors = self._texts.vectors(numbers)
        likely = log_softmax(self.bag(vectors, classes).float(), -1)[row_of, torch.searchsorted(classes, ids)]
        length = cross_entropy(self.bag.lengths(vectors).float(), torch.from_numpy(lengths).to(device))
        return _LENGTH * length - (likely * weights).sum()


class TextInversion:
    """A decoder with a trained bag in training: its loss by step.

    :param special: ids (start, end, mask, pad).
    """

    def __init__(
        self,
        decoder: TextDecoder,
        texts: TextBatches,
        special: tuple[int, int, int, int],
        *,
        batch_size: int = 64,
        seed: int = 0,
    ) -> None:
        self.decoder, self._texts, self._batch, self._seed = decoder, texts, batch_size, seed
        self._start, self._end, self._mask, self._pad = special

    def loss(self, step: int) -> Tensor:
        """Mean cross-entropy of the masked tokens."""
        device = self._texts.device
        numbers = self._texts.numbers(step, self._batch, self._seed)
        rows = [self._texts.ids(number).tolist() for number in numbers]
        ids = padded([[self._start, *row, self._end] for row in rows], self._pad).to(device)
        present = padded([[1] * (len(row) + 2) for row in rows], 0).to(device) == 1
        own = present.clone()
        own[:, 0] = False
        own[torch.arange(len(rows)), present.sum(1) - 1] = False
        drawn = torch.rand(ids.shape, device=device)
        masked = own & (drawn < torch.rand(len(rows), 1, device=device))
        if not masked.any():  # nothing to learn from: mask one token
            masked = own & (drawn == drawn[own].min())
        vectors = self._texts.vectors(numbers)
        with torch.no_grad():
            bag = self.decoder.bag(vectors).float()
        classes = sample_vocabulary(ids, torch.arange(len(self.decoder.bias), device=device), _CLASSES)
        condition = self.decoder.condition(vectors, bag)
        judged = round_mask(masked)
        targets = self.decoder.targets(condition, self._inputs(ids, own, masked), present)[judged]
        row_of = torch.arange(len(rows), device=device)[:, None].expand_as(ids)[judged]
        logits = self.decoder.logits(targets, bag[:, classes][row_of], classes)
        return cross_entropy(logits.float(), torch.searchsorted(classes, ids[judged]))

    def _inputs(self, ids: Tensor, own: Tensor, masked: Tensor) -> Tensor:
        """Mask tokens, and replace a share of the visible ones by tokens from anywhere in the batch."""
        wrong = own & ~masked & (torch.rand(ids.shape, device=ids.device) < _WRONG)
        drawn = ids.flatten()[torch.randint(ids.numel(), ids.shape, device=ids.device)]  # by frequency
        return torch.where(masked, self._mask, torch.where(wrong & (drawn != self._pad), drawn, ids))


def train_decoder(
    decoder: TextDecoder,
    texts: TextBatches,
    tokens: EncoderTokens,
    schedule: Callable[[float, float, int, int], Schedule],
    *,
    ordered: TextBatches | None = None,
    words: Floats | None = None,
    batch_size: int = 128,
    seed: int = 0,
    folder: Path | None = None,
    progress: OnProgress = ignore,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
) -> LoopResult:
    """Train the bag of a decoder, then the rest.

    :param schedule: builds the schedule of a part: (share of the time, learning rate, batch size, rows).
    :param ordered: the texts that the order is learned from; all by default.
    :param words: the vectors of tokens alone (vocabulary, dim), for a decoder that has not been trained yet.
    :param report: called with each row of both parts: the bag's has a `bag_loss`, and the steps of the rest follow.
    """
    bag = BagInversion(decoder, texts, batch_size=4 * batch_size, seed=seed)
    if words is not None:
        bag.begin(words)
    plan = schedule(_BAG, 1e-3, 4 * batch_size, len(texts))
    plan = replace(plan, passes=max(_PASSES, _SMALL / len(texts)))
    bag_folder, text_folder = (folder / "bag", folder / "text") if folder else (None, None)
    first = _train_bag(bag, plan, bag_folder, progress, report)
    spent = _BAG
    if plan.steps is None and plan.seconds:  # the rest gets the time that the bag has left
        spent *= min(1.0, first.seconds / plan.seconds)
    decoder.bag.requires_grad_(requires_grad=False)
    progress(Progress("learning to put them into texts"))
    ordered = ordered or texts
    inversion = TextInversion(decoder, ordered, tokens.special, batch_size=batch_size, seed=seed)
    result = run_loop(
        decoder,
        inversion.loss,
        schedule(1 - spent, 5e-4, batch_size, len(ordered)),
        folder=text_folder,
        progress=progress,
        report=lambda row: report({**row, "step": first.steps + row["step"]}),
    )
    decoder.bag.requires_grad_(requires_grad=True)
    result.resumed_from = first.resumed_from if result.resumed_from is None else first.steps + result.resumed_from
    result.seconds += first.seconds
    result.steps += first.steps
    return result


def _train_bag(
    bag: BagInversion,
    plan: Schedule,
    folder: Path | None,
    progress: OnProgress,
    report: Callable[[dict[str, Any]], None],
) -> LoopResult:
    progress(Progress("learning which words a vector holds"))
    return run_loop(
        bag.bag,
        bag.loss,
        plan,
        folder=folder,
        progress=progress,
        report=lambda row: report({"bag_loss" if name == "loss" else name: value for name, value in row.items()}),
    )
