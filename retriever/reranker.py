"""Reranker: how well each passage answers a query, by a model that reads the two together.

Reference: Nogueira and Cho 2019, arXiv:1901.04085.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..indexes.errors import InputError
from . import model_folder, model_settings
from .bert import BertConfig
from .bert_model import BertModel
from .encoder import checked
from .model_folder import RERANKER
from .model_settings import CrossEncoderSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Pairs = list[tuple[str, str]]

# Pairs of fewer tokens in all than this are scored in numpy before a graph would be imported and compiled.
_SMALL = 2_048
# Pairs tokenized and sorted by length at a time.
_PIECE = 8_192
# Passages scored before it is known how many fit into the time left, and the fewest worth a look at the clock.
_SLICE = 4


class Reranker(ABC):
    """A cross-encoder with one score: `load` gives one."""

    name: str
    max_tokens: int  # of query and passage together, special tokens left out
    fingerprint: str  # equal fingerprints give equal scores
    first_stage_weight: float = 0.0  # share of the first stage in the final order, from the folder's binocle.json

    @staticmethod
    def load(name: str | os.PathLike[str] | Reranker) -> Reranker:
        """Load a cross-encoder by folder or name, without torch where the model is a plain BERT; one loaded is itself.

        Found as encoders are: a folder, the Hugging Face cache, the hub; a single word is one of `cross-encoder/`.

        :raises ModelNotFoundError: when the weights are neither here nor to be had.
        :raises InputError: when the model is no cross-encoder, gives several scores, or is damaged.
        :raises MissingExtraError: when the model needs torch and it is not installed.
        """
        if isinstance(name, Reranker):
            return name
        if not isinstance(name, (str, os.PathLike)):
            raise InputError(f"{name!r} is not a reranker: expected a folder, a name on the hub, or a Reranker")
        folder = model_folder.find(os.fspath(name), RERANKER)
        name = str(folder) if Path(name).expanduser().is_dir() else os.fspath(name)
        settings = CrossEncoderSettings.read(folder)
        if settings.labels != 1 and settings.modules == ("Transformer",):
            raise InputError(f"{folder} gives {settings.labels} scores a pair: expected a cross-encoder with one")
        config = BertReranker.config_of(folder, settings)
        if config:
            return BertReranker(name, folder, settings, config)
        from .torch_reranker import TorchReranker

        return TorchReranker(name, folder, settings)

    def score(self, query: str, passages: Sequence[str]) -> Floats:
        """The model's logit for each passage, shape (passages,): higher is better.

        Logits are what `CrossEncoder.predict` gives before its activation.
        """
        return self._score(_paired(query, passages))

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """The logits of many pairs of a query and a passage, shape (pairs,)."""
        return self._score(_checked(pairs))

    def _score(self, pairs: Pairs) -> Floats:
        pieces = [pairs[start : start + _PIECE] for start in range(0, len(pairs), _PIECE)]
        scores = [self._scorer(piece)(0, len(piece)) for piece in pieces]
        return self._sound(np.concatenate(scores)) if scores else np.empty(0, np.float32)

    def _sound(self, scores: Floats) -> Floats:
        if not np.isfinite(scores).all():
            raise InputError(f"the reranker {self.name} gives scores that are no numbers: its weights are damaged")
        return scores

    def score_within(self, seconds: float, query: str, passages: Sequence[str]) -> Floats:
        """The logits of as many of the passages, from the first on, as can be scored in that time.

        Four at first, then as many as fit into half of the time left at the rate of those before. What is done once
        a process, such as compiling the model's graph, does not count.
        """
        pairs = _paired(query, passages)
        scorer = self._scorer(pairs)
        began, scores = time.perf_counter(), np.empty(0, np.float32)
        count = _SLICE if seconds > 0 else 0
        while count and len(scores) < len(pairs):
            scores = np.concatenate([scores, scorer(len(scores), min(len(pairs), len(scores) + count))])
            spent = time.perf_counter() - began
            fitting = int(min(len(pairs), (seconds - spent) * len(scores) / spent))
            count = max(0, fitting if fitting <= _SLICE else max(_SLICE, fitting // 2))
        return self._sound(scores)

    @abstractmethod
    def _scorer(self, pairs: Pairs) -> Callable[[int, int], Floats]:
        """What gives the logits of pairs[start:stop], with all that can be done beforehand done."""


class BertReranker(Reranker):
    """A plain BERT with a classifier of one label, computed by numpy or OpenVINO.

    Numpy's scores are transformers' to 1e-5; OpenVINO's, where it computes in bf16, to about two digits.
    """

    def __init__(self, name: str, folder: Path, settings: CrossEncoderSettings, config: BertConfig) -> None:
        self.name = name
        self.fingerprint = model_settings.fingerprint(folder, settings)
        self.first_stage_weight = model_settings.first_stage_weight(folder)
        self._model = BertModel(folder, config, max_tokens=settings.max_tokens, classifier=True)
        self.max_tokens = self._model.limit - 3  # [CLS] query [SEP] passage [SEP]

    @staticmethod
    def config_of(folder: Path, settings: CrossEncoderSettings) -> BertConfig | None:
        """The configuration if this class can compute the model in that folder."""
        config = model_settings.config(folder)
        native = (
            settings.modules == ("Transformer",)
            and settings.plain
            and not settings.prompt
            and config.get("type_vocab_size", 2) == 2
            and (folder / "model.safetensors").is_file()
            and (folder / "tokenizer.json").is_file()
            and not model_settings.overruled(folder)
        )
        return BertConfig.from_json(config, folder / "config.json") if native else None

    def _scorer(self, pairs: Pairs) -> Callable[[int, int], Floats]:
        encodings = self._model.tokenizer(truncated=True).encode_batch_fast(pairs)
        small = sum(len(encoding.ids) for encoding in encodings) < _SMALL
        if not small:
            self._model.compiled()

        def scores(start: int, stop: int) -> Floats:
            found = np.empty(stop - start, np.float32)
            for places, logits, _ in self._model.run(encodings[start:stop], small=small):
                found[places] = logits[:, 0]
            return found

        return scores


def _paired(query: str, passages: Sequence[str]) -> Pairs:
    if not isinstance(query, str):
        raise InputError(f"a query is a text, but this one is of type {type(query).__name__}")
    (query,) = checked([query])
    return [(query, passage) for passage in checked(passages)]


def _checked(pairs: Sequence[tuple[str, str]]) -> Pairs:
    """Pairs of texts that can be tokenized, or an error that says what came instead."""
    for number, pair in enumerate(pairs, 1):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"pair {number} is {pair!r}: expected a query and a passage")
    queries, passages = checked([pair[0] for pair in pairs]), checked([pair[1] for pair in pairs])
    return list(zip(queries, passages, strict=True))
