"""Any other cross-encoder, through torch: on a GPU if there is one, else on the CPU."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError, MissingExtraError
from .bert.weights import load_weights
from .reranker import Reranker
from .settings import CrossEncoderSettings, fingerprint, first_stage_weight
from .torch_loading import check_vocabulary, loading, refuse_pickles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ...core.arrays import Floats
    from .reranker import Pairs


class TorchReranker(Reranker):
    """`sentence_transformers.CrossEncoder` as a `Reranker`."""

    def __init__(self, name: str, model: Any, fingerprint: str, first_stage_weight: float) -> None:
        self.name, self.fingerprint, self.first_stage_weight = name, fingerprint, first_stage_weight
        self._model = model
        self.device = str(model.device)
        limit = model.max_seq_length or 512
        self.max_tokens = int(limit) - model.tokenizer.num_special_tokens_to_add(pair=True)
        self._lock = threading.Lock()  # a tokenizer of transformers serves one thread at a time

    @classmethod
    def load(cls, name: str, folder: Path, settings: CrossEncoderSettings) -> TorchReranker:
        """Load the model from a folder.

        :raises InputError: when it does not load, or does not give one score a pair.
        """
        refuse_pickles(folder)
        try:
            from sentence_transformers import CrossEncoder
            from torch.nn import Identity
        except ImportError:
            raise MissingExtraError("sentence-transformers", "torch", f"the reranker {name}") from None
        with loading(folder, "a cross-encoder"):
            model = CrossEncoder(
                str(folder),
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
                activation_fn=Identity(),
            )
        if model.num_labels != 1:
            raise InputError(f"{folder} gives {model.num_labels} scores a pair: expected a cross-encoder with one")
        check_vocabulary(folder, model.tokenizer, model.transformers_model)
        _check_head(folder, model.model)
        return cls(name, model, fingerprint(folder, settings), first_stage_weight(folder))

    def _batch_scorer(self, pairs: Pairs) -> Callable[[int, int], Floats]:
        def scores(start: int, stop: int) -> Floats:
            with self._lock:
                logits = self._model.predict(pairs[start:stop], show_progress_bar=False)
            return np.asarray(logits, np.float32).reshape(stop - start)

        return scores


def _check_head(folder: Path, model: Any) -> None:
    """Check that the folder has the classifier's weights: transformers would fill in random ones."""
    if not type(model).__name__.endswith("ForSequenceClassification"):
        return
    present = {name for file in folder.glob("*.safetensors") for name in load_weights(file)}
    head = [name for name, _ in model.named_parameters() if not name.startswith(f"{model.base_model_prefix}.")]
    missing = [name for name in head if name not in present]
    if missing:
        raise InputError(f"{folder} is no trained cross-encoder: its weights lack {missing[0]}")
