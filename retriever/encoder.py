"""Encoder: texts to unit vectors, with the encoder's own tokens to count by."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np

from ..indexes.errors import InputError
from . import model_folder, model_settings
from .bert import BertConfig
from .bert_model import BertModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Integers = NDArray[np.int64]

Kind = Literal["query", "document"]

# Texts of fewer tokens in all than this are encoded at once in numpy; more are worth a compiled graph.
_SMALL = 1_024
# So are queries, unless there are as many as mining encodes at a time.
_MANY_QUERIES = 64


class Encoder(Protocol):
    """What the engine needs of an encoder. `load` gives one; anything with these members will do."""

    name: str
    dim: int
    max_tokens: int  # of a text, special tokens and prompt left out
    fingerprint: str  # equal fingerprints give equal vectors

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        """Float32, C-contiguous, shape (len(texts), dim); of length 1 unless the model is made for dot products."""
        ...

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """For each text its tokens as (start, end) characters, in order, without special tokens, not truncated."""
        ...


def load(name: str | os.PathLike[str] = model_folder.DEFAULT_MODEL) -> Encoder:
    """Load an encoder by folder or name, without torch where the model is a plain BERT.

    :raises ModelNotFoundError: when the weights are neither here nor to be had.
    :raises MissingExtraError: when the model needs torch and it is not installed.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise InputError(f"{name!r} is not a model: expected a folder or a name on the hub")
    name = os.fspath(name)
    folder = model_folder.find(name)
    if Path(name).expanduser().is_dir():
        name = str(folder)  # an index remembers it, and is searched from anywhere
    if (folder / model_folder.DEFENCE).is_file():
        from .defended_encoder import DefendedEncoder

        return DefendedEncoder.load(folder)
    settings = model_settings.ModelSettings.read(folder)
    config = BertEncoder.config_of(folder, settings)
    if config:
        return BertEncoder(name, folder, settings, config)
    from .static_encoder import StaticEncoder

    if StaticEncoder.fits(folder, settings):
        return StaticEncoder(name, folder, settings)
    from .torch_encoder import TorchEncoder

    return TorchEncoder(name, folder, settings)


class BertEncoder:
    """A sentence-transformers folder of a plain BERT with pooling, computed by numpy or OpenVINO."""

    def __init__(self, name: str, folder: Path, settings: model_settings.ModelSettings, config: BertConfig) -> None:
        self.name = name
        self.fingerprint = model_settings.fingerprint(folder, settings)
        self._settings = settings
        self._model = BertModel(folder, config, max_tokens=settings.max_tokens)
        self.dim = self._model.dim * len(settings.pooling)
        self.max_tokens = self._model.limit - 2 - self._prompt_tokens()  # [CLS] and [SEP]
        self._many: set[Kind] = set()

    def expect_many(self, kind: Kind = "document") -> None:
        """Encode every text of this kind from now on as those of a large batch: by the compiled graph, made now."""
        self._model.compiled()
        self._many.add(kind)

    @staticmethod
    def config_of(folder: Path, settings: model_settings.ModelSettings) -> BertConfig | None:
        """The configuration if this class can compute the model in that folder."""
        native = (
            settings.modules in (("Transformer", "Pooling", "Normalize"), ("Transformer", "Pooling"))
            and set(settings.pooling) <= _POOLING.keys()
            and (folder / "model.safetensors").is_file()
            and (folder / "tokenizer.json").is_file()
            and (settings.include_prompt or not (settings.query_prompt or settings.document_prompt))
            and not model_settings.overruled(folder)
        )
        return BertConfig.from_json(model_settings.config(folder), folder / "config.json") if native else None

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        if kind not in get_args(Kind):
            raise InputError(f"texts are encoded as 'query' or 'document', not as {kind!r}")
        prompt = self._settings.query_prompt if kind == "query" else self._settings.document_prompt
        prepared = [self._prepared(prompt + text) for text in checked(texts)]
        encodings = self._model.tokenizer(truncated=True).encode_batch_fast(prepared)
        tokens = sum(len(encoding.ids) for encoding in encodings)
        few = tokens < _SMALL or (kind == "query" and len(prepared) < _MANY_QUERIES)
        vectors = np.empty((len(prepared), self.dim), np.float32)
        for places, hidden, mask in self._model.run(encodings, small=few and kind not in self._many):
            pooled = np.concatenate([_POOLING[mode](hidden, mask) for mode in self._settings.pooling], axis=1)
            if self._settings.unit:
                pooled /= np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
            vectors[places] = pooled
        return vectors

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        prepared = [self._prepared(text) for text in checked(texts)]
        encodings = self._model.tokenizer(truncated=False).encode_batch(prepared, add_special_tokens=False)
        return [encoding.offsets for encoding in encodings]

    def _prompt_tokens(self) -> int:
        prompt = self._settings.document_prompt
        return len(self.offsets([prompt])[0]) if prompt else 0

    def _prepared(self, text: str) -> str:
        """The text as the tokenizer gets it: of the same length, so that offsets are those of the text."""
        return lowered(text) if self._settings.lowercase else text


def encoded(encoder: Encoder, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
    """The vectors of texts, to be stored or searched with.

    :raises InputError: when one is not finite: nothing can be compared with it.
    """
    vectors = encoder.encode(texts, kind=kind)
    if not np.isfinite(vectors).all():
        raise InputError(f"{encoder.name} gives vectors that are not finite: its weights are damaged")
    return vectors


def expect_many(encoder: Encoder, kind: Kind = "document") -> None:
    """Say that a long run begins: which texts come together will then make no difference to their vectors."""
    if isinstance(encoder, BertEncoder):
        encoder.expect_many(kind)


def checked(texts: Sequence[str]) -> list[str]:
    """A list of texts that can be tokenized, or an error that says what came instead."""
    if isinstance(texts, str):
        raise InputError("expected a list of texts, but one text came: put it in a list")
    given = list(texts)
    for text in given:
        if not isinstance(text, str):
            raise InputError(f"expected a list of texts, but one of them is of type {type(text).__name__}")
    return [text.encode("utf-8", "replace").decode() for text in given]  # half a surrogate pair is no character


def lowered(text: str) -> str:
    """A text in lower case, with every character at the place it had."""
    made = text.lower()
    return made if len(made) == len(text) else "".join(character.lower()[:1] for character in text)


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


# Pooling of hidden states (texts, tokens, dim) under a mask (texts, tokens) to (texts, dim), by
# sentence-transformers' names: Reimers and Gurevych 2019, arXiv:1908.10084, section 3.
_POOLING = {"cls": _cls, "mean": _mean, "max": _max, "mean_sqrt_len_tokens": _mean_sqrt_len}
