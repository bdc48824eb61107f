"""Any other sentence-transformers model, through torch: on a GPU if there is one, else on the CPU."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.errors import InputError, MissingExtraError
from ..encoder import check_texts
from ..settings import ModelSettings, fingerprint
from ..torch_loading import check_vocabulary, loading, refuse_pickles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ....core.arrays import Floats
    from ..encoder import Kind


class TorchEncoder:
    """`sentence_transformers.SentenceTransformer` behind the `Encoder` protocol."""

    def __init__(self, name: str, model: Any, fingerprint: str, settings: ModelSettings) -> None:
        self.name, self.fingerprint = name, fingerprint
        self._model, self._settings = model, settings
        self._lock = threading.Lock()  # `encode` switches truncation on in the tokenizer and `offsets` off
        self.device = str(model.device)
        self.dim = int(model.get_embedding_dimension())
        limit = model.max_seq_length or 512
        self.max_tokens = int(limit) - model.tokenizer.num_special_tokens_to_add()
        if settings.document_prompt:
            self.max_tokens -= len(self.offsets([settings.document_prompt])[0])

    @classmethod
    def load(cls, name: str, folder: Path, settings: ModelSettings) -> TorchEncoder:
        """Load the model from a folder.

        :raises InputError: when it does not load, or is no dense encoder.
        """
        refuse_pickles(folder)
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise MissingExtraError("sentence-transformers", "torch", f"the encoder {name}") from None
        with loading(folder, "a sentence-transformers model"):
            model = SentenceTransformer(
                str(folder), local_files_only=True, trust_remote_code=False, model_kwargs={"use_safetensors": True}
            )
        model.truncate_dim = None  # `load_encoder` shortens vectors
        check_vocabulary(folder, model.tokenizer, model.transformers_model)
        if model.get_embedding_dimension() is None:
            raise InputError(f"{folder} gives no vectors: expected a dense encoder")
        return cls(name, model, fingerprint(folder, settings), settings)

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        """Encode under a lock, one thread at a time; texts beyond `max_tokens` are truncated.

        Unit vectors get their length in float32, because bfloat16 rounds it.
        """
        prompt = self._settings.query_prompt if kind == "query" else self._settings.document_prompt
        checked = check_texts(texts)
        with self._lock:
            vectors = self._model.encode(
                checked,
                prompt=prompt,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        vectors = np.ascontiguousarray(vectors, np.float32).reshape(len(texts), self.dim)
        if self._settings.unit:  # here, because the model's own scaling in bf16 leaves lengths from 0.996 to 1.004
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Tokenize under the lock of `encode`, because both switch the tokenizer's truncation."""
        if not len(texts):
            return []
        checked = check_texts(texts)
        with self._lock:
            encodings = self._model.tokenizer(
                checked, add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False
            )
        offsets: list[list[tuple[int, int]]] = encodings["offset_mapping"]
        return offsets
