"""Plain BERT cross-encoders, computed by numpy for a few pairs and by OpenVINO for many; no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..models import settings as model_settings
from .bert.model import BertModel
from .bert.numpy import BertConfig
from .reranker import Reranker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ...core.arrays import Floats
    from .reranker import Pairs
    from .settings import CrossEncoderSettings


# Pairs of fewer tokens in all than this are scored in numpy before a graph would be imported and compiled.
_SMALL = 2_048


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
