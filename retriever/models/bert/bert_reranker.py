"""Cross-encoders of the BERT family without torch: OpenVINO scores the pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import settings as model_settings
from ..model_files import INT8
from ..reranker import Reranker
from .model import BertModel
from .weights import BertConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ....core.arrays import Floats
    from ..reranker import Pairs
    from ..settings import CrossEncoderSettings


class BertReranker(Reranker):
    """A model of the BERT family with a classifier of one label, computed by OpenVINO.

    The score of a pair does not depend on the other pairs. In float32 it agrees with that of transformers to 1e-5, in
    bf16 to about two digits.

    :param int8: score in int8. The name then ends in @int8, and the fingerprint is another one.
    """

    def __init__(
        self,
        name: str,
        fingerprint: str,
        model: BertModel,
        first_stage_weight: float,
        *,
        int8: bool = False,
    ) -> None:
        self.name = name + INT8 if int8 else name
        self.fingerprint = model_settings.int8_fingerprint(fingerprint) if int8 else fingerprint
        self.first_stage_weight = first_stage_weight
        self._model, self._int8 = model, int8
        self.max_tokens = model.limit - model.tokenizer(truncated=False).num_special_tokens_to_add(is_pair=True)

    def __reduce__(self) -> tuple[Callable[[str], Reranker], tuple[str]]:
        from ..load import load_reranker  # which imports this module

        return load_reranker, (self.name,)  # another process loads the model for itself

    @classmethod
    def load(
        cls, name: str, folder: Path, settings: CrossEncoderSettings, config: BertConfig, *, int8: bool = False
    ) -> BertReranker:
        """Load the model from a folder.

        :raises InputError: when it is damaged.
        """
        fingerprint = model_settings.fingerprint(folder, settings)
        pooling = config.rotary.pooling if config.rotary else None
        model = BertModel.load(
            folder, config, fingerprint, max_tokens=settings.max_tokens, classifier=True, pooling=pooling
        )
        return cls(name, fingerprint, model, model_settings.first_stage_weight(folder), int8=int8)

    @staticmethod
    def config_of(folder: Path, settings: CrossEncoderSettings) -> BertConfig | None:
        """Return the configuration if this class can compute the model in the folder, else None."""
        config = model_settings.read_config(folder)
        native = (
            settings.modules == ("Transformer",)
            and settings.plain
            and not settings.prompt
            and (folder / "model.safetensors").is_file()
            and (folder / "tokenizer.json").is_file()
            and not model_settings.tokenizer_overrides(folder)
        )
        return BertConfig.from_json(config, folder / "config.json", task="SequenceClassification") if native else None

    def _batch_scorer(self, pairs: Pairs) -> Callable[[int, int], Floats]:
        encodings = self._model.tokenizer(truncated=True).encode_batch_fast(pairs)
        self._model.compiled(int8=self._int8)

        def scores(start: int, stop: int) -> Floats:
            batch_scores = np.empty(stop - start, np.float32)
            for positions, logits, _ in self._model.run(encodings[start:stop], int8=self._int8):
                batch_scores[positions] = logits[:, 0]
            return batch_scores

        return scores
