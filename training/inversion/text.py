"""A decoder from a text's vector to its words, and from both to the text, trained one after the other.

The bag learns the cross-entropy of the text's tokens, thousands of texts a second. The text is learned by masking: the
masked share is drawn from 0 to 1 for each text (the masked diffusion objective of arXiv:2406.07524 without its weights,
which favour texts with few masks), and some of the tokens that are seen are wrong ones, since a corrector asks about
texts that have some. Cross-entropy is over the batch's own tokens and a random sample of the others.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...indexes.metric import normalized
from ...retriever.inversion.hidden_states import transformer_folder
from ...retriever.inversion.text_decoder import TextDecoderSettings, padded, settings_of, text_decoder
from ..pretraining.batches import by_length
from ..runs.loop import run_loop
from ..runs.progress import counted
from .sampled_vocabulary import round_mask, sample_vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ...retriever.models.encoder import Encoder
    from ...retriever.models.token_ids import EncoderTokens
    from ..runs.loop import Schedule
    from ..runs.progress import Tell
    from ..runs.training_run import LoopResult


_CLASSES = 2_048  # tokens beside the batch's own that the right one is told from
_LENGTH = 0.1  # weight of the length's loss
_WRONG = 0.08  # share of the tokens seen that are other ones
_BAG = 0.5  # share of the time of learning that the bag has, at most
_PASSES = 2.0  # over the texts that it makes, at most: with more it learns them by heart, and others the less
_FEW = 200_000  # texts that it learns from in any case, however often it meets each


class Texts:
    """Texts as token ids with their vectors, in batches by step.

    :param tokens: for each text its token ids, by number; `lengths` says how many there are of each.
    :param vectors: (texts, dim).
    """

    def __init__(
        self, tokens: Any, lengths: NDArray[np.int64], vectors: Floats, longest: int, *, device: str = "cpu"
    ) -> None:
        self._tokens, self._vectors, self._longest = tokens, vectors, longest
        self.lengths, self.device = np.minimum(lengths, longest), device
        self._epoch: tuple[tuple[int, int, int], NDArray[np.int64]] = ((-1, 0, 0), np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.lengths)

    def numbers(self, step: int, batch: int, seed: int) -> NDArray[np.int64]:
        """The texts of a step."""
        epoch, place = divmod(step, max(1, math.ceil(len(self) / batch)))
        if self._epoch[0] != (epoch, batch, seed):
            order = by_length(self.lengths, batch, np.random.default_rng((seed, epoch)))
            self._epoch = (epoch, batch, seed), order
        return self._epoch[1][place * batch : (place + 1) * batch]

    def ids(self, number: int) -> NDArray[np.int64]:
        row = self._tokens[number]
        found: NDArray[np.int64] = getattr(row, "tokens", row)
        return np.asarray(found, np.int64)[: self._longest]

    def vectors(self, numbers: NDArray[np.int64]) -> Any:
        import torch

        order = np.argsort(numbers)  # in the order of the file, which may be on disk
        back = np.argsort(order)
        return torch.from_numpy(np.asarray(self._vectors[numbers[order]], np.float32)[back]).to(self.device)


class BagInversion:
    """What the bag learns."""

    def __init__(self, decoder: Any, texts: Texts, *, batch_size: int = 512, seed: int = 0) -> None:
        self.bag, self._texts, self._batch, self._seed = decoder.bag, texts, batch_size, seed

    def begin(self, alone: Floats, most: int = 20_000) -> None:
        """Begin with how frequent each token is, and with the vectors of tokens alone.

        :param alone: (vocabulary, dim).
        """
        import torch

        counts = np.full(len(self.bag.bias), 0.1)
        for number in range(min(most, len(self._texts))):
            np.add.at(counts, self._texts.ids(number), 1)
        frequent = torch.from_numpy(np.log(counts / counts.sum())).float()
        with torch.no_grad():
            self.bag.bias.copy_(frequent - frequent.mean())
            self.bag.alone.copy_(torch.from_numpy(alone - alone.mean(0)))

    def loss(self, step: int) -> Any:
        """Mean cross-entropy of a text's tokens, each text counting once."""
        import torch
        from torch.nn.functional import cross_entropy, log_softmax

        numbers = self._texts.numbers(step, self._batch, self._seed)
        rows = [self._texts.ids(number) for number in numbers]
        device = self._texts.device
        lengths = np.array([len(row) for row in rows])
        ids = torch.from_numpy(np.concatenate(rows)).to(device)
        of = torch.from_numpy(np.repeat(np.arange(len(rows)), lengths)).to(device)
        weights = torch.from_numpy((1 / lengths / len(rows))[of.cpu().numpy()]).float().to(device)
        classes = sample_vocabulary(ids, torch.arange(len(self.bag.bias), device=device), _CLASSES)
        vectors = self._texts.vectors(numbers)
        drawn = log_softmax(self.bag(vectors, classes).float(), -1)[of, torch.searchsorted(classes, ids)]
        length = cross_entropy(self.bag.lengths(vectors).float(), torch.from_numpy(lengths).to(device))
        return _LENGTH * length - (drawn * weights).sum()


class TextInversion:
    """What the rest of the decoder learns, once the bag has.

    :param special: ids (start, end, mask, pad).
    """

    def __init__(
        self,
        decoder: Any,
        texts: Texts,
        special: tuple[int, int, int, int],
        *,
        batch_size: int = 64,
        seed: int = 0,
    ) -> None:
        self.decoder, self._texts, self._batch, self._seed = decoder, texts, batch_size, seed
        self._start, self._end, self._mask, self._pad = special

    def loss(self, step: int) -> Any:
        """Mean cross-entropy of the masked tokens."""
        import torch
        from torch.nn.functional import cross_entropy

        device = self._texts.device
        numbers = self._texts.numbers(step, self._batch, self._seed)
        rows = [self._texts.ids(number).tolist() for number in numbers]
        ids = padded([[self._start, *row, self._end] for row in rows], self._pad).to(device)
        there = padded([[1] * (len(row) + 2) for row in rows], 0).to(device) == 1
        own = there.clone()
        own[:, 0] = False
        own[torch.arange(len(rows)), there.sum(1) - 1] = False
        drawn = torch.rand(ids.shape, device=device)
        masked = own & (drawn < torch.rand(len(rows), 1, device=device))
        if not masked.any():  # there would be nothing to learn
            masked = own & (drawn == drawn[own].min())
        vectors = self._texts.vectors(numbers)
        with torch.no_grad():
            bag = self.decoder.bag(vectors).float()
        classes = sample_vocabulary(ids, torch.arange(len(self.decoder.bias), device=device), _CLASSES)
        before = self.decoder.before(vectors, bag)
        judged = round_mask(masked)
        targets = self.decoder.targets(before, self._seen(ids, own, masked), there)[judged]
        row_of = torch.arange(len(rows), device=device)[:, None].expand_as(ids)[judged]
        logits = self.decoder.logits(targets, bag[:, classes][row_of], classes)
        return cross_entropy(logits.float(), torch.searchsorted(classes, ids[judged]))

    def _seen(self, ids: Any, own: Any, masked: Any) -> Any:
        import torch

        wrong = own & ~masked & (torch.rand(ids.shape, device=ids.device) < _WRONG)
        other = ids.flatten()[torch.randint(ids.numel(), ids.shape, device=ids.device)]  # as frequent as they are
        return torch.where(masked, self._mask, torch.where(wrong & (other != self._pad), other, ids))


def begin(encoder: Encoder, tokens: EncoderTokens, longest: int, seed: int) -> Any:
    """An untrained `TextDecoder` for an encoder: a copy of its lower layers where it is a BERT."""
    import torch

    torch.manual_seed(seed)
    bert = _bert(getattr(encoder, "base", encoder).name)
    if bert is None:
        return text_decoder(TextDecoderSettings(encoder.dim, tokens.size, longest))
    sizes = settings_of(bert.config, encoder.dim, longest)
    sizes = TextDecoderSettings(**{**asdict(sizes), "vocabulary": max(sizes.vocabulary, tokens.size)})
    return text_decoder(sizes, bert)


def _bert(name: str) -> Any:
    """transformers' BertModel of an encoder, or None where it is another kind of model."""
    from transformers import BertModel

    from ...retriever.models.files import find
    from ...retriever.models.settings import read_config
    from ...retriever.models.torch_loading import quiet_transformers

    folder = transformer_folder(find(name))
    if read_config(folder).get("model_type") != "bert" or not (folder / "model.safetensors").is_file():
        return None
    with quiet_transformers():
        found: Any = BertModel.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    return found.float()


def alone(encoder: Encoder, tokens: EncoderTokens, vocabulary: int, tell: Tell = lambda _: None) -> Floats:
    """The vectors that the encoder gives each token of its vocabulary alone (vocabulary, dim), of length 1."""
    found = np.zeros((vocabulary, encoder.dim), np.float32)
    names = [(token, tokens.text([token]).removeprefix("##")) for token in range(min(vocabulary, tokens.size))]
    named = [(token, name) for token, name in names if name.strip()]
    for start in counted(range(0, len(named), 4_096), tell, f"encoding {len(named):,} words"):
        some = named[start : start + 4_096]
        found[[token for token, _ in some]] = normalized(encoder.encode([name for _, name in some]))
    return found


def learn_text(
    decoder: Any,
    texts: Texts,
    tokens: EncoderTokens,
    plan: Callable[[float, float, int, int], Schedule],
    *,
    words: Floats | None = None,
    batch_size: int = 128,
    seed: int = 0,
    folder: Path | None = None,
    progress: OnProgress | None = None,
    tell: Tell | None = None,
) -> LoopResult:
    """Teach a `TextDecoder` its bag, then its texts.

    :param plan: what to plan for a share of the time: (share, learning rate, batch size, rows).
    :param words: the vectors of tokens alone (vocabulary, dim), for a decoder that has learned nothing yet.
    """
    tell = tell or (lambda _: None)
    bag = BagInversion(decoder, texts, batch_size=4 * batch_size, seed=seed)
    places = (folder / "bag", folder / "text") if folder else (None, None)
    if words is not None:
        bag.begin(words)
    tell("learning which words a vector holds")
    planned = replace(plan(_BAG, 1e-3, 4 * batch_size, len(texts)), passes=max(_PASSES, _FEW / len(texts)))
    first = run_loop(decoder.bag, bag.loss, planned, folder=places[0], progress=progress)
    spent = _BAG
    if planned.steps is None and planned.seconds:  # the text has what the bag left of its time
        spent *= min(1.0, first.seconds / planned.seconds)
    decoder.bag.requires_grad_(requires_grad=False)
    tell("learning to put them into texts")
    inversion = TextInversion(decoder, texts, tokens.special, batch_size=batch_size, seed=seed)
    rest = plan(1 - spent, 5e-4, batch_size, len(texts))
    made = run_loop(decoder, inversion.loss, rest, folder=places[1], progress=progress)
    decoder.bag.requires_grad_(requires_grad=True)
    made.resumed_from = first.resumed_from if made.resumed_from is None else first.steps + made.resumed_from
    made.seconds += first.seconds
    made.steps += first.steps
    return made
