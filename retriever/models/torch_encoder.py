"""Any other sentence-transformers model, through torch: on a GPU when there is one, on the CPU otherwise."""

from __future__ import annotations

import contextlib
import io
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError, MissingExtraError, first_line
from .encoder import check_texts
from .settings import ModelSettings, fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from .encoder import Kind


class TorchEncoder:
    """`sentence_transformers.SentenceTransformer` behind the `Encoder` protocol."""

    def __init__(self, name: str, folder: Path, settings: ModelSettings) -> None:
        refuse_pickles(folder)
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise MissingExtraError(
                "sentence-transformers", "torch", f"the encoder {name} is not a plain BERT and"
            ) from None
        try:
            with quiet():
                self._model: Any = SentenceTransformer(
                    str(folder),
                    local_files_only=True,
                    trust_remote_code=False,
                    model_kwargs={"use_safetensors": True},
                )
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, ImportError) as error:
            reason = first_line(error)
            raise InputError(f"{folder} does not load as a sentence-transformers model ({reason})") from error
        check_vocabulary(folder, self._model)
        self.name = name
        self.fingerprint = fingerprint(folder, settings)
        self._settings = settings
        self._lock = threading.Lock()  # `offsets` turns off in the tokenizer what `encode` turns on: to cut texts
        self.device = str(self._model.device)
        dim = self._model.get_embedding_dimension()
        if dim is None:
            raise InputError(f"{folder} gives no vectors: expected a dense encoder")
        self.dim = int(dim)
        limit = self._model.max_seq_length or 512
        self.max_tokens = int(limit) - self._model.tokenizer.num_special_tokens_to_add()
        if settings.document_prompt:
            self.max_tokens -= len(self.offsets([settings.document_prompt])[0])

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> NDArray[np.float32]:
        prompt = self._settings.query_prompt if kind == "query" else self._settings.document_prompt
        given = check_texts(texts)
        with self._lock:
            vectors = self._model.encode(
                given,
                prompt=prompt,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        vectors = np.ascontiguousarray(vectors, np.float32).reshape(len(texts), self.dim)
        if self._settings.unit:  # here, for in bf16 a length of 1 is one from 0.996 to 1.004
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        if not len(texts):
            return []
        given = check_texts(texts)
        with self._lock:
            found = self._model.tokenizer(
                given, add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False
            )
        offsets: list[list[tuple[int, int]]] = found["offset_mapping"]
        return offsets


def refuse_pickles(folder: Path) -> None:
    """Make sure that no weights are in a pickle alone: sentence-transformers loads those of a Dense layer."""
    if not any(folder.rglob("*.safetensors")):
        raise InputError(f"{folder} has no .safetensors weights: other formats are pickles and are not loaded")
    for pickle in folder.rglob("pytorch_model.bin"):
        if not any(pickle.parent.glob("model*.safetensors")):
            raise InputError(f"{pickle} is a pickle and is not loaded: expected model.safetensors beside it")


def check_vocabulary(folder: Path, model: Any) -> None:
    """Make sure that the tokenizer is the model's: transformers makes an empty one where its files are missing."""
    config = getattr(model.transformers_model, "config", None)
    expected = getattr(config, "vocab_size", None)
    if isinstance(expected, int) and 2 * len(model.tokenizer) < expected:
        raise InputError(
            f"{folder} has {len(model.tokenizer)} tokens in its tokenizer and {expected} in its weights: "
            "are files missing? copy the model folder again"
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and reports that transformers writes while it loads."""
    from transformers.utils import logging as chatter

    logging: Any = chatter

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
