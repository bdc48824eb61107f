"""Encoders of the BERT family: OpenVINO computes documents and many queries, numpy few queries, torch on GPUs."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, get_args

import numpy as np

from ....core.errors import InputError, first_line
from ....core.runtime.blas import one_thread
from ....core.runtime.device import gpus
from ....core.runtime.threads import Threads
from .. import settings as model_settings
from ..encoder import Encoder, Kind, check_texts, lower_case
from ..model_files import INT8
from .dense import dense_folders, load_layers
from .model import BertModel
from .weights import BertConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from tokenizers import Encoding

    from ....core.arrays import Floats, Integers
    from ..encoders.torch_encoder import TorchEncoder
    from .dense import Dense
    from .inputs import Pooling
    from .torch_gpu import BertGpu


# Numpy encodes a call with fewer tokens or fewer queries than these; more are worth a compiled graph. Mining has more.
_NUMPY_TOKENS = 1_024
_NUMPY_QUERIES = 64
_NUMPY_LONGEST = 1_024  # tokens of a query: numpy holds the attention of all heads
_GPU_TEXTS = 8_192  # tokenized at a time, while a GPU computes those before


class BertEncoder:
    """A sentence-transformers folder of a BERT family model with pooling, computed by numpy or OpenVINO.

    :param dense: the layers behind the pooling, in order.
    :param int8: encode documents in int8. The name then ends in @int8, and the fingerprint is another one.
    """

    def __init__(
        self,
        name: str,
        fingerprint: str,
        settings: model_settings.ModelSettings,
        model: BertModel,
        dense: Sequence[Dense] = (),
        *,
        int8: bool = False,
    ) -> None:
        self.name = name + INT8 if int8 else name
        self.fingerprint = model_settings.int8_fingerprint(fingerprint) if int8 else fingerprint
        self._settings, self._model, self._dense, self._int8 = settings, model, dense, int8
        self._pooled_dim = model.dim * len(settings.pooling)
        self.dim = dense[-1].dim if dense else self._pooled_dim
        special = model.tokenizer(truncated=False).num_special_tokens_to_add(is_pair=False)
        self.max_tokens = model.limit - special - self._prompt_tokens()
        self._expects_queries = False
        self._gpu: BertGpu | None = None
        self._torch: TorchEncoder | None = None  # on a GPU, for models without a `BertGpu`

    def __reduce__(self) -> tuple[Callable[[str], Encoder], tuple[str]]:
        from ..load import load_encoder  # which imports this module

        return load_encoder, (self.name,)  # another process loads the model for itself

    @classmethod
    def load(
        cls,
        name: str,
        folder: Path,
        settings: model_settings.ModelSettings,
        config: BertConfig,
        *,
        int8: bool = False,
    ) -> BertEncoder:
        """Load the model from a folder.

        :raises InputError: when it is damaged.
        """
        fingerprint = model_settings.fingerprint(folder, settings)
        pooling = _POOLED_BY_GRAPH.get(settings.pooling)
        model = BertModel.load(folder, config, fingerprint, max_tokens=settings.max_tokens, pooling=pooling)
        dense = load_layers(dense_folders(folder, settings.modules) or (), model.dim * len(settings.pooling))
        return cls(name, fingerprint, settings, model, dense, int8=int8)

    def expect_queries(self) -> None:
        """Compile a graph for queries now, and use it for few at a time from now on."""
        self._model.compiled(one_by_one=True)
        self._expects_queries = True

    def use_gpus(self) -> str:
        """Compute documents on the GPUs of this machine from now on: in half precision, ModernBERT in float32 on one.

        :returns: what computes them, for messages: the CPU if there is no GPU, or for int8.
        """
        if self._int8:
            return "the CPU: int8 is computed there alone"
        devices, by = gpus()
        if devices and self._model.is_rotary:
            from ..encoders.torch_encoder import TorchEncoder

            self._torch = self._torch or TorchEncoder.load(self.name, self._model.folder, self._settings)
            return "1 GPU"
        if devices and self._gpu is None:
            with self._gpu_errors():
                self._gpu = self._model.on_gpus(devices)
        return by

    @staticmethod
    def config_of(folder: Path, settings: model_settings.ModelSettings) -> BertConfig | None:
        """Return the configuration if this class can compute the model in the folder, else None."""
        native = (
            dense_folders(folder, settings.modules) is not None
            and set(settings.pooling) <= _POOLING.keys()
            and (folder / "model.safetensors").is_file()
            and (folder / "tokenizer.json").is_file()
            and (settings.include_prompt or not (settings.query_prompt or settings.document_prompt))
            and not model_settings.tokenizer_overrides(folder)
        )
        return BertConfig.from_json(model_settings.read_config(folder), folder / "config.json") if native else None

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        """Compute documents by a compiled graph, and a few queries in numpy, which needs no compilation.

        The graph computes every document, so that its vector does not depend on the others in the call.
        Texts beyond `max_tokens` are truncated. After `expect_queries`, a graph of their own computes few queries.
        Queries are never computed in int8, and never on a GPU.

        :raises InputError: for an unknown kind, when `texts` is no list of texts, or when half precision overflows.
        """
        if kind not in get_args(Kind):
            raise InputError(f"texts are encoded as 'query' or 'document', not as {kind!r}")
        prompt = self._settings.query_prompt if kind == "query" else self._settings.document_prompt
        inputs = [self._normalize(prompt + text) for text in check_texts(texts)]
        if kind == "document" and self._torch is not None:
            return self._torch.encode(texts)
        if kind == "document" and self._gpu is not None:
            return self._finished(self._gpu_vectors(self._gpu, inputs))
        encodings = self._model.tokenize(inputs)
        is_small = kind == "query" and _are_few(encodings)
        vectors = np.empty((len(inputs), self.dim), np.float32)
        int8 = self._int8 and kind == "document"
        if is_small and not self._expects_queries:
            batches, is_pooled = self._model.run_uncompiled(encodings), False
        else:
            batches = self._model.run(encodings, int8=int8, one_by_one=is_small)
            is_pooled = self._model.pooling is not None
        for positions, hidden, mask in batches:
            vectors[positions] = self._finished(hidden[:, 0].copy() if is_pooled else self._pooled(hidden, mask))
        return vectors

    def _pooled(self, hidden: Floats, mask: Integers) -> Floats:
        """Pool hidden states (texts, tokens, dim) to (texts, dim), by each kind of pooling that the model has."""
        with one_thread:
            return np.concatenate([_POOLING[mode](hidden, mask) for mode in self._settings.pooling], axis=1)

    def _gpu_vectors(self, gpu: BertGpu, inputs: list[str]) -> Floats:
        with self._gpu_errors():
            parts = [gpu.vectors(encodings, self._settings.pooling) for encodings in self._tokenized_ahead(inputs)]
        vectors: Floats = np.concatenate(parts) if parts else np.empty((0, self._pooled_dim), np.float32)
        if not np.isfinite(vectors).all():
            raise InputError(f"{self.name} overflows half precision on a GPU: set BINOCLE_PRECISION=bfloat16")
        return vectors

    @contextmanager
    def _gpu_errors(self) -> Iterator[None]:
        """Report torch's errors in one line, such as too little memory."""
        try:
            yield
        except RuntimeError as error:
            raise InputError(f"{self.name} does not run on the GPU ({first_line(error)}): leave the GPU out") from error

    def _tokenized_ahead(self, inputs: list[str]) -> Iterator[list[Encoding]]:
        """Tokenize some thousands of texts at a time, and the next of them while the caller works."""
        with Threads(1) as thread:
            waiting: deque[Future[list[Encoding]]] = deque()
            for start in range(0, len(inputs), _GPU_TEXTS):
                waiting.append(thread.submit(self._model.tokenize, inputs[start : start + _GPU_TEXTS]))
                if len(waiting) > 1:
                    yield waiting.popleft().result()
            yield from (part.result() for part in waiting)

    def _finished(self, pooled: Floats) -> Floats:
        """Compute the layers behind the pooling, and scale vectors to unit length, if the model does."""
        for layer in self._dense:
            pooled = layer(pooled)
        if self._settings.unit:
            pooled /= np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
        return pooled

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Tokenize without truncation, so a long text costs time in proportion to its length."""
        inputs = [self._normalize(text) for text in check_texts(texts)]
        encodings = self._model.tokenizer(truncated=False).encode_batch(inputs, add_special_tokens=False)
        return [encoding.offsets for encoding in encodings]

    @property
    def splits_at_white_space(self) -> bool:
        """Whether the tokens of every text are the tokens of its words, as with BERT's own tokenizer."""
        from tokenizers.normalizers import BertNormalizer
        from tokenizers.pre_tokenizers import BertPreTokenizer

        tokenizer = self._model.tokenizer(truncated=False)
        is_berts = isinstance(tokenizer.normalizer, BertNormalizer) and isinstance(
            tokenizer.pre_tokenizer, BertPreTokenizer
        )
        added = tokenizer.get_added_tokens_decoder().values()
        return is_berts and all(len(token.content.split()) == 1 for token in added)

    def _prompt_tokens(self) -> int:
        prompt = self._settings.document_prompt
        return len(self.offsets([prompt])[0]) if prompt else 0

    def _normalize(self, text: str) -> str:
        """Return the text for the tokenizer. Its length stays the same, so offsets in it are offsets in the text."""
        return lower_case(text) if self._settings.lowercase else text


def expect_queries(encoder: Encoder) -> None:
    """Announce many queries, one by one: each then takes a fraction of the time."""
    base = getattr(encoder, "base", encoder)  # of an adapter or a defence
    if isinstance(base, BertEncoder):
        base.expect_queries()


def use_gpus(encoder: Encoder) -> str:
    """Let an encoder compute documents on the GPUs of this machine from now on.

    :returns: what computes them, for messages.
    """
    base = getattr(encoder, "base", encoder)  # of an adapter or a defence
    if isinstance(base, BertEncoder):
        return base.use_gpus()
    device = getattr(base, "device", "cpu")  # torch's name: other models are on a GPU if there is one
    return "1 GPU" if device.startswith("cuda") else "the CPU"


def _are_few(encodings: Sequence[Encoding]) -> bool:
    lengths = [len(encoding.ids) for encoding in encodings]
    return max(lengths, default=0) <= _NUMPY_LONGEST and (len(lengths) < _NUMPY_QUERIES or sum(lengths) < _NUMPY_TOKENS)


def _mean(hidden: Floats, mask: Integers) -> Floats:
    mean: Floats = _sum(hidden, mask) / mask.sum(1, keepdims=True, dtype=np.float32)
    return mean


def _mean_sqrt_len(hidden: Floats, mask: Integers) -> Floats:
    mean: Floats = _sum(hidden, mask) / np.sqrt(mask.sum(1, keepdims=True, dtype=np.float32))
    return mean


def _sum(hidden: Floats, mask: Integers) -> Floats:
    weights = mask[:, None, :].astype(np.float32)  # (texts, 1, tokens) @ (texts, tokens, dim)
    return (weights @ hidden)[:, 0]


def _cls(hidden: Floats, mask: Integers) -> Floats:  # noqa: ARG001 - one signature in the table
    return hidden[:, 0].copy()


def _max(hidden: Floats, mask: Integers) -> Floats:
    highest: Floats = np.where(mask[:, :, None] == 0, np.float32(-np.inf), hidden).max(1)
    return highest


# Pooling: hidden states (texts, tokens, dim) and a mask (texts, tokens) to (texts, dim), under the names of
# sentence-transformers. Reimers and Gurevych 2019, arXiv:1908.10084, section 3.
_POOLING = {"cls": _cls, "mean": _mean, "max": _max, "mean_sqrt_len_tokens": _mean_sqrt_len}

# The kinds of pooling that a compiled graph does itself.
_POOLED_BY_GRAPH: dict[tuple[str, ...], Pooling] = {("cls",): "cls", ("mean",): "mean"}
