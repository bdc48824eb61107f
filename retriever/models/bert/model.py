"""A model of the BERT family, for an encoder or a reranker: its tokenizer, and its weights on two backends."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import InputError, first_line, panics_as_errors
from ....core.runtime import forking as forked
from .numpy import BertNumpy
from .weight_names import TYPES, WORDS
from .weights import check_weights, load_bert

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tokenizers import Encoding, Tokenizer

    from ....core.arrays import Floats, Integers, Positions
    from .inputs import Pooling, Tokens
    from .openvino import BertOpenVINO
    from .torch_gpu import BertGpu
    from .weights import BertConfig


# Tokens in a batch, padding included: with more, hidden states no longer fit the caches.
_BATCH_TOKENS = 2_048
# Fewer tokens are not worth a batch of their own, even if a processor idles without one.
_MIN_BATCH_TOKENS = 256
_SMALL_BATCH = 16  # texts
# Texts are padded to a multiple of this, the rows of an AMX tile, and only texts of one padded length share a batch.
# Rows left over, or more padding, may be computed in another order. Then a text's vector would depend on the texts
# beside it, in the third digit of bf16.
_TILE = 16

_PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}  # BINOCLE_PRECISION: OpenVINO's names

# The compiled graphs in use, by fingerprint, precision, int8 and purpose: several loads of one model share a graph.
_graphs: weakref.WeakValueDictionary[tuple[str, str | None, bool, bool], BertOpenVINO] = weakref.WeakValueDictionary()
_graphs_lock = threading.Lock()


class BertModel:
    """Run a BERT on encodings of its tokenizer: hidden states of texts or, for a classifier, logits of pairs.

    :param fingerprint: of the encoder or reranker: equal ones share a compiled graph.
    :param max_tokens: of a text or pair, special tokens included; the model's own limit holds too.
    :param types: whether hidden states are of pairs too, with a token type for the second text.
    :param pooling: `run` pools the hidden states to (texts, 1, dim): "cls" is that of the first token, and the last
        layer computes no other; "mean" is the mean of all.
    """

    def __init__(
        self,
        folder: Path,
        config: BertConfig,
        fingerprint: str,
        weights: dict[str, Floats],
        *,
        max_tokens: int | None = None,
        classifier: bool = False,
        types: bool = False,
        pooling: Pooling | None = None,
    ) -> None:
        self.folder, self._config, self._fingerprint, self._weights = folder, config, fingerprint, weights
        self.is_rotary = config.rotary is not None
        self._precision = _precision()
        self._classifier, self._types, self.pooling = classifier, types, pooling
        self._numpy = BertNumpy(config, weights)
        self._compiled: dict[tuple[bool, bool], BertOpenVINO] = {}  # by whether in int8, and for batches one by one
        self._folded: dict[str, Floats] = {}  # weights that the compiled graphs share
        self._tokenizers: dict[bool, Tokenizer] = {}
        self.dim = weights[WORDS].shape[1]
        self.limit = min(max_tokens or config.max_positions, config.max_positions)

    @classmethod
    def load(
        cls,
        folder: Path,
        config: BertConfig,
        fingerprint: str,
        *,
        max_tokens: int | None = None,
        classifier: bool = False,
        types: bool = False,
        pooling: Pooling | None = None,
    ) -> BertModel:
        """Load weights and tokenizer from a folder.

        :raises InputError: when they are damaged.
        """
        file = folder / "model.safetensors"
        weights, types = load_bert(file, config), not config.rotary and (types or classifier)
        check_weights(file, config, weights, classifier=classifier, types=types)
        model = cls(
            folder,
            config,
            fingerprint,
            weights,
            max_tokens=max_tokens,
            classifier=classifier,
            types=types,
            pooling=pooling,
        )
        model.tokenizer(truncated=False)  # now, so that a damaged one is reported early
        return model

    def tokenizer(self, *, truncated: bool) -> Tokenizer:
        """Return the folder's tokenizer, which truncates at the limit (in a pair the longer text first) or never."""
        if truncated not in self._tokenizers:
            from tokenizers import Tokenizer

            try:
                with panics_as_errors():
                    tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
                    tokenizer.no_padding()
                    tokenizer.no_truncation()
                    tokenizer.encode("a", "b")  # some damage shows only now
            except Exception as error:  # noqa: BLE001 - tokenizers raises no narrower one
                reason = first_line(error, 120)
                raise InputError(f"{self.folder / 'tokenizer.json'} is not a tokenizer ({reason})") from None
            if truncated:
                tokenizer.enable_truncation(self.limit)
            self._tokenizers[truncated] = tokenizer
        return self._tokenizers[truncated]

    def tokenize(self, inputs: Sequence[str]) -> list[Encoding]:
        """Tokenize texts, truncated at the limit; for a few short ones the truncating tokenizer need not be loaded."""
        if True not in self._tokenizers and len(inputs) <= _SMALL_BATCH:
            encodings = self.tokenizer(truncated=False).encode_batch_fast(inputs)
            if all(len(encoding.ids) <= self.limit for encoding in encodings):
                return encodings
        return self.tokenizer(truncated=True).encode_batch_fast(inputs)

    def run(
        self, encodings: Sequence[Tokens], *, int8: bool = False, one_by_one: bool = False
    ) -> Iterator[tuple[Positions, Floats, Integers]]:
        """Yield batches by length: positions among the encodings, the model's output for them, and their mask.

        The arrays are valid until the next batch. The output for a text does not depend on the other texts.

        :param int8: compute the dense layers in int8.
        :param one_by_one: use the graph that answers a call with few texts fastest.
        """
        graph = self.compiled(int8=int8, one_by_one=one_by_one)
        lengths = np.array([len(encoding.ids) for encoding in encodings], np.int64)
        lengths = np.minimum(-(-lengths // _TILE) * _TILE, self._config.max_positions)
        budget = min(_BATCH_TOKENS, max(_MIN_BATCH_TOKENS, int(lengths.sum()) // (2 * graph.streams)))
        groups = list(_groups(lengths, budget))
        batches = [self._batch(encodings, positions, int(lengths[positions[0]])) for positions in groups]
        with graph.lock:
            for positions, batch, output in zip(groups, batches, graph.map(batches), strict=True):
                yield positions, output, batch[1]

    def run_uncompiled(self, encodings: Sequence[Tokens]) -> Iterator[tuple[Positions, Floats, Integers]]:
        """Yield the hidden states in float32 like `run`, by numpy: for texts too few for a compiled graph."""
        lengths = np.array([len(encoding.ids) for encoding in encodings], np.int64)
        for positions in _groups(lengths, _MIN_BATCH_TOKENS):  # without padding, and small enough for the caches
            batch = self._batch(encodings, positions, int(lengths[positions[0]]))
            yield positions, self._numpy.forward(*batch), batch[1]

    def on_gpus(self, devices: Sequence[str]) -> BertGpu:
        """Copy the weights to GPUs.

        :param devices: torch's names for them.
        """
        from .torch_gpu import BertGpu

        precision = {None: "float16", "f32": "float32", "bf16": "bfloat16"}[self._precision]
        return BertGpu(self._config, self._weights, devices, precision)

    def layers(self, encoding: Encoding) -> Iterator[tuple[Floats, Floats | None]]:
        """Yield the states (tokens, dim) of the embeddings and of each layer, with its attention, by numpy.

        The attention has shape (heads, tokens, tokens); the embeddings have none. A pair's second text has a type of
        its own, if the model has a second type.
        """
        ids = np.array([encoding.ids], np.int64)
        types = None
        if TYPES in self._weights:
            types = np.minimum(np.array([encoding.type_ids], np.int64), len(self._weights[TYPES]) - 1)
        for hidden, attention in self._numpy.layers(ids, np.ones_like(ids), types):
            yield hidden[0], None if attention is None else attention[0]

    def compiled(self, *, int8: bool = False, one_by_one: bool = False) -> BertOpenVINO:
        """Return the compiled graph; the first call compiles it, unless another load of this model has."""
        forked.check()
        kind = int8, one_by_one
        with _graphs_lock:
            if kind not in self._compiled:
                key = (self._fingerprint, self._precision, *kind)
                self._compiled[kind] = _graphs[key] = _graphs.get(key) or self._compile(*kind)
            return self._compiled[kind]

    def _compile(self, int8: bool, one_by_one: bool) -> BertOpenVINO:
        from .openvino import BertOpenVINO

        layers = None
        if int8:
            from .int8 import calibration_ids, quantize

            layers = quantize(self._config, self._weights, calibration_ids(self.tokenizer(truncated=False), self.limit))
        return BertOpenVINO(
            self._config,
            self._weights,
            classifier=self._classifier,
            types=self._types,
            pooling=self.pooling,
            precision=self._precision,
            int8=layers,
            one_by_one=one_by_one,
            folded=self._folded,
        )

    def _batch(self, encodings: Sequence[Tokens], positions: Positions, tokens: int) -> tuple[Integers, ...]:
        """Return ids and mask, and types if the model has them, each (texts, tokens), padded with 0."""
        batch = [encodings[position] for position in positions]
        ids = _padded([encoding.ids for encoding in batch], tokens)
        mask = _padded([[1] * len(encoding.ids) for encoding in batch], tokens)
        if not self._types:
            return ids, mask
        return ids, mask, _padded([encoding.type_ids for encoding in batch], tokens)


def _precision() -> str | None:
    """Return OpenVINO's name of the precision that the environment asks for, or None for the processor's own.

    :raises InputError: when the environment asks for another one.
    """
    name = os.environ.get("BINOCLE_PRECISION", "")
    if name and name not in _PRECISIONS:
        expected = " or ".join(_PRECISIONS)
        raise InputError(f"BINOCLE_PRECISION is {name!r}: expected {expected}, or unset it for the processor's own")
    return _PRECISIONS[name] if name else None


def _groups(lengths: Integers, budget: int) -> Iterator[Positions]:
    """Yield the positions of each batch: texts of one length, the longest first, as many as fit the budget."""
    for length in sorted(set(lengths.tolist()), reverse=True):  # np.unique alone would import numpy.ma
        positions, count = np.flatnonzero(lengths == length), max(1, budget // max(1, length))
        yield from (positions[start : start + count] for start in range(0, len(positions), count))


def _padded(rows: list[list[int]], tokens: int) -> Integers:
    padded = np.zeros((len(rows), tokens), np.int64)
    for row, values in enumerate(rows):
        padded[row, : len(values)] = values
    return padded
