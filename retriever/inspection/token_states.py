"""Run an encoder on one text or pair, and keep its tokens, states and attention, which it usually drops."""

from __future__ import annotations

import os
import unicodedata
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...core.errors import InputError
from ..models import model_files
from ..models import settings as model_settings
from ..models.bert.model import BertModel
from ..models.bert.weights import BertConfig
from ..models.encoder import check_texts, lower_case

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokenizers import Encoding, Tokenizer

    from ...core.arrays import Floats
    from ..models.encoder import Kind


@dataclass(frozen=True, slots=True, eq=False)
class TokenStates:
    """The tokens of a text or pair, special tokens included, and what each layer made of them.

    `states` has shape (layers + 1, tokens, dim): first the embeddings, then each layer. `attention` has shape
    (layers, heads, tokens, tokens): how much each token takes from each; a row sums to 1.
    """

    texts: tuple[str, ...]  # one, or the two of a pair, with the prompt
    ids: tuple[int, ...]
    pieces: tuple[str, ...]  # as the vocabulary writes them; in WordPiece "##" continues a word
    spans: tuple[tuple[int, int], ...]  # characters of each token in its text; (0, 0) for special tokens
    segments: tuple[int, ...]  # 0, or 1 for tokens of the second text of a pair
    word_numbers: tuple[int | None, ...]  # in its text, from 0; None for special tokens
    states: Floats
    attention: Floats
    pooling: tuple[str, ...]  # how the encoder makes one vector of the last states
    truncated: bool  # whether the text was longer than the encoder reads

    def words(self) -> list[tuple[str, list[int]]]:
        """Return each word of the text and the positions of its tokens; special tokens belong to no word."""
        numbered = zip(self.segments, self.word_numbers, strict=True)
        keys = [None if word is None else (segment, word) for segment, word in numbered]
        words = []
        for key, group in groupby(range(len(keys)), keys.__getitem__):
            positions = list(group)
            if key is not None:
                text, start, end = self.texts[key[0]], self.spans[positions[0]][0], self.spans[positions[-1]][1]
                while unicodedata.combining(text[end : end + 1] or " "):
                    end += 1  # an accent that is a character of its own, which the tokenizer drops
                words.append((text[start:end], positions))
        return words


class _Backend(Protocol):
    """A model that gives its layers one by one."""

    tokenizer: Tokenizer

    def encoding(self, text: str, pair: str | None) -> Encoding: ...

    def layers(self, encoding: Encoding) -> Iterator[tuple[Floats, Floats | None]]: ...


class Inspector:
    """An encoder with open layers.

    The BERT family is computed by numpy in float32, without torch, also a reranker or a masked language model.

    >>> Inspector.load("all-MiniLM-L6-v2").read("tokenization").pieces  # doctest: +SKIP
    ('[CLS]', 'token', '##ization', '[SEP]')
    """

    def __init__(self, name: str, settings: model_settings.ModelSettings, backend: _Backend) -> None:
        self.name = name
        self._settings = settings
        self._backend = backend
        self.tokenizer = backend.tokenizer

    @classmethod
    def load(cls, name: str | os.PathLike[str] = model_files.DEFAULT_MODEL) -> Inspector:
        """Load a model by folder or name.

        :raises ModelNotFoundError: when the weights are neither on this machine nor on the hub.
        :raises InputError: when the model has no attention, such as a table of static vectors.
        :raises MissingExtraError: when the model needs torch and it is not installed.
        """
        name = os.fspath(name)
        folder = model_files.find(name)
        for file, noun in ((model_files.DEFENCE, "defended encoder"), (model_files.ADAPTER, "encoder with an adapter")):
            if (folder / file).is_file():
                raise InputError(f"{name} is a {noun}: look at its base instead")
        if model_files.split_length(name)[1] is not None:
            raise InputError(f"{name} has shortened vectors: look at the whole encoder instead")
        settings = model_settings.ModelSettings.read(folder)
        if "StaticEmbedding" in settings.modules:
            raise InputError(f"{name} is a table of vectors: it has no layers to look into")
        return cls(name, settings, _backend(name, folder, settings))

    def read(self, text: str, pair: str | None = None, *, kind: Kind = "document") -> TokenStates:
        """Compute a text, or a text and its pair in one pass as a cross-encoder reads them.

        A text longer than the encoder reads is truncated, as it is for its vector.

        :param kind: decides the prompt of a single text.
        """
        prompt = self._settings.query_prompt if kind == "query" else self._settings.document_prompt
        texts = check_texts([prompt + text] if pair is None else [text, pair])
        if self._settings.lowercase:
            texts = [lower_case(text) for text in texts]
        encoding = self._backend.encoding(texts[0], texts[1] if pair is not None else None)
        hidden, attention = zip(*self._backend.layers(encoding), strict=True)
        ends = zip(encoding.special_tokens_mask, encoding.word_ids, strict=True)
        return TokenStates(
            texts=tuple(texts),
            ids=tuple(encoding.ids),
            pieces=tuple(encoding.tokens),
            spans=tuple(encoding.offsets),
            segments=tuple(segment or 0 for segment in encoding.sequence_ids),
            word_numbers=tuple(None if special else word for special, word in ends),
            states=np.stack(hidden),
            attention=np.stack([weights for weights in attention if weights is not None]),
            pooling=self._pooling(),
            truncated=bool(encoding.overflowing),
        )

    def _pooling(self) -> tuple[str, ...]:
        """Return the pooling, or nothing if a vector is more than the pooled states."""
        modules = set(self._settings.modules)
        return self._settings.pooling if modules <= {"Transformer", "Pooling", "Normalize"} else ()


class _NumpyBackend:
    """The BERT family: its encoder's layers alone."""

    def __init__(self, model: BertModel) -> None:
        self._model = model
        self.tokenizer = model.tokenizer(truncated=True)

    def encoding(self, text: str, pair: str | None) -> Encoding:
        return self.tokenizer.encode(text, pair)

    def layers(self, encoding: Encoding) -> Iterator[tuple[Floats, Floats | None]]:
        return self._model.layers(encoding)


def _backend(name: str, folder: Path, settings: model_settings.ModelSettings) -> _Backend:
    files = ("model.safetensors", "tokenizer.json")
    if all((folder / file).is_file() for file in files) and not model_settings.tokenizer_overrides(folder):
        config = BertConfig.from_json(model_settings.read_config(folder), folder / "config.json")
        if config:
            return _NumpyBackend(BertModel.load(folder, config, "", max_tokens=settings.max_tokens))
    from .torch_layers import TorchLayers

    return TorchLayers.load(name, folder, settings)
