"""Train a decoder of hidden states: the encoder stays frozen, the decoder learns to name its tokens.

The loss is cross-entropy on the original tokens (InvBERT, arXiv:2109.10104). On a CPU it is over the batch's own tokens
and a random sample of the vocabulary: the whole vocabulary would be most of the work. A share of each text's tokens is
replaced at random. No text collection holds a whole vocabulary, and the decoder must read all of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...retriever.inversion.decoders.token_decoder import TokenDecoder
from ..pretraining.data.masked_batches import by_length
from .sampled_vocabulary import round_mask, sample_vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ...retriever.inversion.decoders.decoder_settings import TokenDecoderSettings
    from ...retriever.inversion.hidden_states import HiddenStates
    from ..data.tokenized import TokenRows

_CLASSES = 4_096  # tokens in the loss on a CPU, beside the batch's own; a GPU compares with the whole vocabulary
_REPLACED = 0.15  # share of tokens replaced by random ones
_REPLACED_MASKED = 0.05  # the same if states are masked: those are recovered from true neighbours
_MASKED = 2  # factor of the masked share in training, up to half: so each step teaches more
_VISIBLE = 0.25  # weight of the visible states beside masked ones, and the share of them in the loss
_FIT_ROWS = 1_200  # that the initial linear map is fitted on
_COUNT_ROWS = 20_000  # that token frequencies are counted in
_SCALE = 20.0  # of the initial linear map: the logit of a cosine of 1


class TokenInversion:
    """A decoder of hidden states in training: its loss by step, and its accuracy.

    :param masked: share of the states that the decoder must recover from their neighbours.
    """

    def __init__(
        self,
        states: HiddenStates,
        settings: TokenDecoderSettings,
        rows: TokenRows,
        *,
        layer: int,
        batch_size: int = 32,
        masked: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.states, self.rows, self.layer, self.masked = states, rows, layer, max(masked, min(0.5, _MASKED * masked))
        self._batch, self._seed = batch_size, seed
        self._epoch: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, np.int64))
        special = set(states.tokenizer.all_special_ids)
        names = states.tokenizer.get_vocab()
        own = sorted(token for name, token in names.items() if token not in special and not name.startswith("[unused"))
        self.vocabulary = torch.tensor(own, device=states.device)
        self.sampled = states.device == "cpu"  # whether the loss compares with a part of the vocabulary
        words = states.words
        centred = words - words.mean(0)
        torch.manual_seed(seed)
        self.decoder = TokenDecoder(settings, centred / centred.norm(dim=1, keepdim=True).clamp(min=1e-9))
        self.decoder.to(states.device)

    def numbers(self, step: int) -> NDArray[np.int64]:
        """The rows of a step."""
        epoch, batch = divmod(step, max(1, math.ceil(len(self.rows) / self._batch)))
        if self._epoch[0] != epoch:
            random = np.random.default_rng((self._seed, epoch))
            self._epoch = epoch, by_length(self.rows.lengths, self._batch, random)
        return self._epoch[1][batch * self._batch : (batch + 1) * self._batch]

    def loss(self, step: int) -> Tensor:
        """Mean cross-entropy of a step's tokens; with masked states, mainly of the tokens behind those."""
        ids, mask = self.states.frame([self.rows[number].tokens.tolist() for number in self.numbers(step)])
        if not self.masked:
            ids = self._replace(ids, mask, _REPLACED)
            targets = self.decoder.targets(self.states.at(ids, mask, self.layer), mask)
            return self._cross_entropy(targets, ids, mask == 1)
        own = self.states.inside(ids, mask)
        hidden = own & (torch.rand(ids.shape, device=ids.device) < self.masked)
        ids = torch.where(hidden, ids, self._replace(ids, mask, _REPLACED_MASKED))
        targets = self.decoder.targets(self.states.at(ids, mask, self.layer), mask, hidden)
        visible = own & ~hidden & (torch.rand(ids.shape, device=ids.device) < _VISIBLE)
        loss = self._cross_entropy(targets, ids, hidden, hidden=True)
        return loss + _VISIBLE * self._cross_entropy(targets, ids, visible)

    def _cross_entropy(self, targets: Tensor, ids: Tensor, positions: Tensor, *, hidden: bool = False) -> Tensor:
        """Mean cross-entropy at the positions of a mask; 0 if it is empty."""
        positions = round_mask(positions) if self.sampled else positions
        tokens = ids[positions]
        classes = sample_vocabulary(tokens, self.vocabulary, _CLASSES) if self.sampled else None
        all_hidden = torch.ones(len(tokens), dtype=torch.bool, device=ids.device) if hidden else None
        logits = self.decoder.logits(targets[positions], classes, all_hidden).float()
        numbers = tokens if classes is None else torch.searchsorted(classes, tokens)
        return cross_entropy(logits, numbers, reduction="sum") / max(1, len(tokens))

    def _replace(self, ids: Tensor, mask: Tensor, share: float) -> Tensor:
        """Replace a share of the texts' own tokens by random ones."""
        noise = (torch.rand(ids.shape, device=ids.device) < share) & self.states.inside(ids, mask)
        drawn = self.vocabulary[torch.randint(len(self.vocabulary), ids.shape, device=ids.device)]
        return torch.where(noise, drawn, ids)

    @torch.no_grad()
    def begin(self) -> None:
        """Initialise the decoder as well as it can be without training.

        Least squares fits the linear map to the word embeddings. The layers of a Transformer are copied from a BERT
        encoder, and their input is fitted too. Behind masked states, tokens start out with their frequency.
        """
        decoder = self.decoder
        counts = np.full(len(decoder.bias), 0.1)
        for number in range(min(_COUNT_ROWS, len(self.rows))):
            np.add.at(counts, self.rows[number].tokens, 1)
        frequencies = torch.from_numpy(np.log(counts / counts.sum())).float()
        decoder.common.copy_(frequencies - frequencies.mean())
        words = _SCALE * decoder.words.detach()
        if decoder.settings.kind == "transformer" and self.states.model.config.model_type == "bert":
            decoder.copy_bert(self.states.model, self.states.tokenizer.mask_token_id)
        weights = self._fit(torch.cat([words, self.states.words], 1))
        _set(decoder.linear, weights[:, : words.shape[1]])
        if decoder.settings.kind == "transformer":
            _set(decoder.into, weights[:, words.shape[1] :])

    def _fit(self, words: Tensor) -> Tensor:
        """Fit a linear map (width + 1, target width) from states, with a 1 appended, to the vectors of their tokens."""
        torch.manual_seed(self._seed)
        squares, products = torch.zeros(0), torch.zeros(0)
        for start in range(0, min(_FIT_ROWS, len(self.rows)), self._batch):
            rows = [self.rows[n].tokens.tolist() for n in range(start, min(start + self._batch, len(self.rows)))]
            ids, mask = self.states.frame(rows)
            ids = self._replace(ids, mask, _REPLACED)
            present = mask == 1
            states = self.states.at(ids, mask, self.layer)[present]
            states = torch.cat([states, torch.ones(len(states), 1, device=states.device)], 1).double()
            targets = words[ids[present]].double()
            squares = squares + states.T @ states if len(squares) else states.T @ states
            products = products + states.T @ targets if len(products) else states.T @ targets
        ridge = 1e-4 * squares.diag().mean() * torch.eye(len(squares), device=squares.device)
        weights: Tensor = torch.linalg.solve(squares + ridge, products).float()
        return weights

    def accuracy(self, rows: TokenRows | Sequence[Sequence[int]], *, limit: int = 100) -> float:
        """The share of tokens that are named right."""
        correct = self.correct(rows, limit=limit)
        return float(np.concatenate(correct).mean()) if correct else 0.0

    def correct(
        self, rows: TokenRows | Sequence[Sequence[int]], *, limit: int | None = None, masked: float = 0.0
    ) -> list[NDArray[np.bool_]]:
        """Whether each token is named right, for each row of `predict`."""
        predicted = self.predict(rows, limit=limit, masked=masked)
        return [(logits.argmax(-1) == tokens).cpu().numpy() for logits, tokens in predicted]

    @torch.no_grad()
    def predict(
        self, rows: TokenRows | Sequence[Sequence[int]], *, limit: int | None = None, masked: float = 0.0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the logits (tokens, vocabulary) and the true tokens of each row, the shortest first.

        :param limit: maximum number of rows, taken evenly from all.
        :param masked: share of the states to hide; only their tokens then count.
        """
        count = len(rows) if limit is None else min(limit, len(rows))
        numbers = np.unique(np.linspace(0, len(rows) - 1, count).astype(np.int64)) if count else np.empty(0, np.int64)
        sample = sorted((_tokens(rows[int(number)]) for number in numbers), key=len)
        random = torch.Generator().manual_seed(self._seed)
        for start in range(0, len(sample), 16):
            ids, mask = self.states.frame(sample[start : start + 16])
            own = self.states.inside(ids, mask)
            hidden = own & (torch.rand(ids.shape, generator=random).to(ids.device) < masked) if masked else None
            targets = self.decoder.targets(self.states.at(ids, mask, self.layer), mask, hidden)
            judged = own if hidden is None else hidden
            for row in range(len(ids)):
                if judged[row].any():
                    row_hidden = None if hidden is None else hidden[row][judged[row]]
                    logits = self.decoder.logits(targets[row][judged[row]], hidden=row_hidden)
                    yield logits, ids[row][judged[row]]


def _set(layer: nn.Linear, weights: Tensor) -> None:
    """Set a linear layer to weights (inputs + 1, outputs); the last row is the bias."""
    layer.weight.copy_(weights[:-1].T)
    layer.bias.copy_(weights[-1])


def _tokens(row: Any) -> list[int]:
    return row.tokens.tolist() if hasattr(row, "tokens") else list(row)
