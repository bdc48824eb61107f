"""A plain BERT in a folder, for an encoder or a reranker: its tokenizer, and its weights on the faster backend."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from ....core import forking as forked
from ....core.errors import InputError, first_line
from .numpy import BertNumpy
from .weights import WORDS, check_weights, load_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tokenizers import Encoding, Tokenizer

    from ....core.arrays import Floats, Integers, Positions
    from .openvino import BertOpenVINO
    from .weights import BertConfig


# Tokens in a batch, padding included: the rate rises no further on the machines measured.
_BATCH_TOKENS = 4_096
# Fewer tokens are not worth a batch of their own, even if a processor idles without one.
_MIN_BATCH_TOKENS = 256
# Batches are padded to a multiple of this, the rows of an AMX tile. Rows left over would be computed in another way.
# Then a text's vector would depend on the texts beside it, in the third digit of bf16.
_TILE = 16


class BertModel:
    """Run a BERT on encodings of its tokenizer: hidden states of texts or, for a classifier, logits of pairs.

    :param max_tokens: of a text or pair, special tokens included; the model's own limit holds too.
    """

    def __init__(
        self, folder: Path, config: BertConfig, *, max_tokens: int | None = None, classifier: bool = False
    ) -> None:
        file = folder / "model.safetensors"
        self._folder = folder
        self._config = config
        self._classifier = classifier
        self._weights = load_weights(file)
        check_weights(file, config, self._weights, classifier=classifier)
        self._numpy = BertNumpy(config, self._weights)
        self._bulk: BertOpenVINO | None = None
        self._bulk_lock = threading.Lock()
        self._tokenizers: dict[bool, Tokenizer] = {}
        self.dim = self._weights[WORDS].shape[1]
        self.limit = min(max_tokens or config.max_positions, config.max_positions)
        self.tokenizer(truncated=False)  # now, so that a damaged one is reported early

    def tokenizer(self, *, truncated: bool) -> Tokenizer:
        """Return the folder's tokenizer, which truncates at the limit (in a pair the longer text first) or never."""
        if truncated not in self._tokenizers:
            from tokenizers import Tokenizer

            try:
                tokenizer = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
            except Exception as error:  # noqa: BLE001 - tokenizers raises no narrower one
                reason = first_line(error, 120)
                raise InputError(f"{self._folder / 'tokenizer.json'} is not a tokenizer ({reason})") from None
            tokenizer.no_padding()
            tokenizer.no_truncation()
            if truncated:
                tokenizer.enable_truncation(self.limit)
            self._tokenizers[truncated] = tokenizer
        return self._tokenizers[truncated]

    def run(self, encodings: Sequence[Encoding], *, small: bool) -> Iterator[tuple[Positions, Floats, Integers]]:
        """Yield batches by length: positions among the encodings, the model's output for them, and their mask.

        The arrays are valid until the next batch.

        :param small: use numpy, because the texts are too few for a compiled graph.
        """
        lengths = np.array([len(encoding.ids) for encoding in encodings], np.int64)
        if small:
            compute: Callable[..., Floats] = self._numpy.classify if self._classifier else self._numpy.forward
            for positions in _groups(lengths, _BATCH_TOKENS):
                batch = self._batch(encodings, positions)
                yield positions, compute(*batch), batch[1]
            return
        bulk = self.compiled()
        lengths = np.minimum(-(-lengths // _TILE) * _TILE, self._config.max_positions)
        budget = min(_BATCH_TOKENS, max(_MIN_BATCH_TOKENS, int(lengths.sum()) // (2 * bulk.streams)))
        groups = list(_groups(lengths, budget))
        batches = [self._batch(encodings, positions, int(lengths[positions].max())) for positions in groups]
        with self._bulk_lock:  # callers share its requests; OpenVINO uses every core for one caller
            for positions, batch, output in zip(groups, batches, bulk.map(batches), strict=True):
                yield positions, output, batch[1]

    def compiled(self) -> BertOpenVINO:
        """Return the compiled graph; the first call compiles it."""
        forked.check()
        with self._bulk_lock:
            if self._bulk is None:
                from .openvino import BertOpenVINO

                self._bulk = BertOpenVINO(self._config, self._weights, classifier=self._classifier)
            return self._bulk

    def _batch(self, encodings: Sequence[Encoding], positions: Positions, tokens: int = 0) -> tuple[Integers, ...]:
        """Return ids and mask, and types for a classifier, each (texts, tokens), padded with 0 to at least `tokens`."""
        chosen = [encodings[position] for position in positions]
        tokens = max(tokens, *(len(encoding.ids) for encoding in chosen))
        ids = _padded([encoding.ids for encoding in chosen], tokens)
        mask = _padded([[1] * len(encoding.ids) for encoding in chosen], tokens)
        if not self._classifier:
            return ids, mask
        return ids, mask, _padded([encoding.type_ids for encoding in chosen], tokens)


def _groups(lengths: Integers, budget: int) -> Iterator[Positions]:
    """Yield the positions of each batch: longest texts first, as many as fit the budget of tokens when padded."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        count = max(1, budget // max(1, int(lengths[order[start]])))
        yield order[start : start + count]
        start += count


def _padded(rows: list[list[int]], tokens: int) -> Integers:
    padded = np.zeros((len(rows), tokens), np.int64)
    for row, values in enumerate(rows):
        padded[row, : len(values)] = values
    return padded
