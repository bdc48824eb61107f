"""A decoder from hidden states to tokens, trained: the encoder stays as it is, the decoder learns to read it.

The loss is cross-entropy on the original tokens (as in InvBERT, arXiv:2109.10104), over the batch's own tokens and a
random sample of the others: the whole vocabulary would be most of the work. Some tokens of each text are replaced at
random, since a text collection never holds all of a vocabulary and the decoder is to read all of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...retriever.inversion.token_decoder import TokenDecoderSettings, token_decoder
from ..pretraining.batches import by_length
from .sampled_vocabulary import round_mask, sample_vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...retriever.inversion.hidden_states import HiddenStates
    from ..data.tokenized import Rows

_CLASSES = 4_096  # tokens beside the batch's own that the right one is told from
_REPLACED = 0.15  # share of tokens replaced by random ones
_REPLACED_MASKED = 0.05  # the same where some states are masked: those are told from true neighbours
_HIDDEN = 2  # times the share asked for, up to half, is masked while it learns: a step then tells more
_SEEN = 0.25  # what the states that are seen count beside the masked ones; so many of them are judged
_FIT = 1_200  # rows that the linear start is fitted on
_COUNTED = 20_000  # rows whose tokens are counted
_SHARP = 20.0  # of the linear start: what a cosine of 1 counts among the logits


class TokenInversion:
    """What is learned from which rows: gives `learn` its loss, step by step, and measures.

    :param masked: share of the states that the decoder is to do without, told by their neighbours.
    """

    def __init__(
        self,
        states: HiddenStates,
        settings: TokenDecoderSettings,
        rows: Rows,
        *,
        layer: int,
        batch_size: int = 32,
        masked: float = 0.0,
        seed: int = 0,
    ) -> None:
        import torch

        self.states, self.rows, self.layer, self.masked = states, rows, layer, max(masked, min(0.5, _HIDDEN * masked))
        self._batch, self._seed = batch_size, seed
        self._epoch: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, np.int64))
        special = set(states.tokenizer.all_special_ids)
        names = states.tokenizer.get_vocab()
        self._vocabulary = torch.tensor(
            sorted(place for name, place in names.items() if place not in special and not name.startswith("[unused"))
        )
        words = states.words
        centred = words - words.mean(0)
        torch.manual_seed(seed)
        self.decoder = token_decoder(settings, centred / centred.norm(dim=1, keepdim=True).clamp(min=1e-9))
        self.decoder.to(states.device)

    def numbers(self, step: int) -> NDArray[np.int64]:
        """The rows of a step."""
        each = max(1, math.ceil(len(self.rows) / self._batch))
        epoch, place = divmod(step, each)
        if self._epoch[0] != epoch:
            random = np.random.default_rng((self._seed, epoch))
            self._epoch = epoch, by_length(self.rows.lengths, self._batch, random)
        return self._epoch[1][place * self._batch : (place + 1) * self._batch]

    def loss(self, step: int) -> Any:
        """Mean cross-entropy of a step's tokens; where states are masked, above all of the tokens behind those."""
        import torch

        ids, mask = self.states.frame([self.rows[number].tokens.tolist() for number in self.numbers(step)])
        if not self.masked:
            ids = self._replaced(ids, mask, _REPLACED)
            targets = self.decoder.targets(self.states.at(ids, mask, self.layer), mask)
            return self._judged(targets, ids, mask == 1)
        own = self.states.own(ids, mask)
        unseen = own & (torch.rand(ids.shape, device=ids.device) < self.masked)
        ids = torch.where(unseen, ids, self._replaced(ids, mask, _REPLACED_MASKED))
        targets = self.decoder.targets(self.states.at(ids, mask, self.layer), mask, unseen)
        seen = own & ~unseen & (torch.rand(ids.shape, device=ids.device) < _SEEN)
        return self._judged(targets, ids, unseen, unseen=True) + _SEEN * self._judged(targets, ids, seen)

    def _judged(self, targets: Any, ids: Any, places: Any, *, unseen: bool = False) -> Any:
        """Mean cross-entropy at some places; 0 of none."""
        import torch
        from torch.nn.functional import cross_entropy

        places = round_mask(places)
        asked = ids[places]
        classes = sample_vocabulary(asked, self._vocabulary.to(ids.device), _CLASSES)
        behind = torch.ones(len(asked), dtype=torch.bool, device=ids.device) if unseen else None
        logits = self.decoder.logits(targets[places], classes, behind).float()
        return cross_entropy(logits, torch.searchsorted(classes, asked), reduction="sum") / max(1, len(asked))

    def _replaced(self, ids: Any, mask: Any, share: float) -> Any:
        import torch

        chosen = (torch.rand(ids.shape, device=ids.device) < share) & self.states.own(ids, mask)
        drawn = self._vocabulary[torch.randint(len(self._vocabulary), ids.shape)].to(ids.device)
        return torch.where(chosen, drawn, ids)

    def begin(self) -> None:
        """Begin with what can be had without a step.

        The linear part is fitted to the word embeddings by least squares; so is what the layers of a Transformer read,
        which begin as the encoder's own where that is a BERT. Behind masked states tokens begin as likely as they are
        frequent.
        """
        import torch

        decoder = self.decoder
        counts = np.full(len(decoder.bias), 0.1)
        for number in range(min(_COUNTED, len(self.rows))):
            np.add.at(counts, self.rows[number].tokens, 1)
        with torch.no_grad():
            frequent = torch.from_numpy(np.log(counts / counts.sum())).float()
            decoder.common.copy_(frequent - frequent.mean())
            words = _SHARP * decoder.words.detach()
            if decoder.settings.kind == "transformer" and self.states.model.config.model_type == "bert":
                decoder.begin_as(self.states.model, self.states.tokenizer.mask_token_id)
            fitted = self._fitted(torch.cat([words, self.states.words], 1))
            _set(decoder.linear, fitted[:, : words.shape[1]])
            if decoder.settings.kind == "transformer":
                _set(decoder.into, fitted[:, words.shape[1] :])

    def _fitted(self, words: Any) -> Any:
        """The linear map (width + 1, target width) from states and a one to the vectors of their tokens."""
        import torch

        torch.manual_seed(self._seed)
        squares, products = torch.zeros(0), torch.zeros(0)
        for start in range(0, min(_FIT, len(self.rows)), self._batch):
            rows = [self.rows[n].tokens.tolist() for n in range(start, min(start + self._batch, len(self.rows)))]
            ids, mask = self.states.frame(rows)
            ids = self._replaced(ids, mask, _REPLACED)
            there = mask == 1
            states = self.states.at(ids, mask, self.layer)[there]
            states = torch.cat([states, torch.ones(len(states), 1, device=states.device)], 1).double()
            targets = words[ids[there]].double()
            squares = squares + states.T @ states if len(squares) else states.T @ states
            products = products + states.T @ targets if len(products) else states.T @ targets
        ridge = 1e-4 * squares.diag().mean() * torch.eye(len(squares), device=squares.device)
        return torch.linalg.solve(squares + ridge, products).float()

    def accuracy(self, rows: Rows | Sequence[Sequence[int]], *, most: int = 100) -> float:
        """The share of tokens named right."""
        found = self.right(rows, most=most)
        return float(np.concatenate(found).mean()) if found else 0.0

    def right(
        self, rows: Rows | Sequence[Sequence[int]], *, most: int | None = None, masked: float = 0.0
    ) -> list[NDArray[np.bool_]]:
        """For each row, in the order of length, whether each of its tokens is named right."""
        import torch

        count = len(rows) if most is None else min(most, len(rows))
        numbers = np.unique(np.linspace(0, len(rows) - 1, count).astype(np.int64)) if count else np.empty(0, np.int64)
        chosen = sorted((_tokens(rows[int(number)]) for number in numbers), key=len)
        found: list[NDArray[np.bool_]] = []
        random = torch.Generator().manual_seed(self._seed)
        with torch.no_grad():
            for start in range(0, len(chosen), 16):
                ids, mask = self.states.frame(chosen[start : start + 16])
                own = self.states.own(ids, mask)
                unseen = own & (torch.rand(ids.shape, generator=random).to(ids.device) < masked) if masked else None
                targets = self.decoder.targets(self.states.at(ids, mask, self.layer), mask, unseen)
                counted = own if unseen is None else unseen
                for row in range(len(ids)):
                    if counted[row].any():
                        behind = None if unseen is None else unseen[row][counted[row]]
                        named = self.decoder.logits(targets[row][counted[row]], unseen=behind).argmax(-1)
                        found.append((named == ids[row][counted[row]]).cpu().numpy())
        return found


def _set(layer: Any, fitted: Any) -> None:
    layer.weight.copy_(fitted[:-1].T)
    layer.bias.copy_(fitted[-1])


def _tokens(row: Any) -> list[int]:
    return row.tokens.tolist() if hasattr(row, "tokens") else list(row)
