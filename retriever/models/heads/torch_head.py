"""Any other family with a head, through torch: on a GPU if there is one, else on the CPU."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.errors import InputError, MissingExtraError, first_line
from ..torch_loading import loading, loading_errors, quiet_transformers, require_safetensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from ....core.arrays import Floats, Integers
    from ..bert.inputs import Tokens
    from .head_settings import HeadKind, HeadSettings

_BATCH_TOKENS = 8_192  # in a batch, padding included
_GPU_BATCH_TOKENS = 65_536  # a GPU computes few texts in the time of a hundred


class TorchHead:
    """A model of transformers behind the `Head` protocol."""

    def __init__(
        self, name: str, folder: Path, fingerprint: str, settings: HeadSettings, model: Any, tokenizer: Any
    ) -> None:
        self.name, self.folder, self.fingerprint, self.settings = name, folder, fingerprint, settings
        self._model, self._tokenizer = model, backend(tokenizer)
        self._lock = threading.Lock()

    @classmethod
    def load(cls, name: str, folder: Path, fingerprint: str, settings: HeadSettings, kind: HeadKind) -> TorchHead:
        """Load model and tokenizer from a folder.

        :raises InputError: when they do not load, or the model has no trained head.
        """
        return cls(name, folder, fingerprint, settings, _load(name, folder, kind), load_tokenizer(folder))

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer, which neither pads nor truncates."""
        return self._tokenizer

    def logits(self, texts: Sequence[Tokens]) -> list[Floats]:
        """Compute batches of similar length under a lock; see `Head`."""
        import torch

        logits = [np.empty(0, np.float32)] * len(texts)
        order = sorted(range(len(texts)), key=lambda number: -len(texts[number].ids))
        tokens = _GPU_BATCH_TOKENS if self._model.device.type == "cuda" else _BATCH_TOKENS
        start = 0
        while start < len(order):
            count = max(1, tokens // max(1, len(texts[order[start]].ids)))
            batch = order[start : start + count]
            with self._lock, torch.no_grad():
                rows = outputs(self._model(**inputs(self._model, [texts[number] for number in batch])))
            for row, number in zip(rows.float().cpu().numpy(), batch, strict=True):
                logits[number] = row if row.ndim == 1 else row[: len(texts[number].ids)]
            start += count
        return logits


def inputs(model: Any, texts: Sequence[Tokens]) -> dict[str, Any]:
    """Return the tensors of a batch that a model takes, each (texts, tokens), padded at the end."""
    return tensors(model, arrays(model, texts))


def arrays(model: Any, texts: Sequence[Tokens]) -> dict[str, Integers]:
    """Return the same as arrays of numpy, which a process without the GPU can make."""
    width = max(len(text.ids) for text in texts)
    ids = np.full((len(texts), width), model.config.pad_token_id or 0, np.int64)
    mask, types = np.zeros((2, len(texts), width), np.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text.ids)] = text.ids
        mask[row, : len(text.ids)] = 1
        types[row, : len(text.ids)] = text.type_ids
    batch = {"input_ids": ids, "attention_mask": mask}
    if has_types(model):
        batch["token_type_ids"] = types
    return batch


def tensors(model: Any, batch: Mapping[str, Integers]) -> dict[str, Any]:
    """Return a batch of `arrays` as tensors on the model's device."""
    return {name: moved(array, model.device) for name, array in batch.items()}


def moved(array: NDArray[Any], device: Any) -> Any:
    """Return an array as a tensor on a device. The copy to a GPU does not wait for the GPU's work so far."""
    import torch

    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def has_types(model: Any) -> bool:
    """Whether a model takes token types, two of them at least."""
    takes_types = "token_type_ids" in inspect.signature(model.forward).parameters
    return takes_types and getattr(model.config, "type_vocab_size", 0) > 1


def outputs(output: Mapping[str, Any]) -> Any:
    """Return the logits of a model's output; a reader has (texts, tokens, 2)."""
    import torch

    if "start_logits" in output:
        return torch.stack([output["start_logits"], output["end_logits"]], -1)
    return output["logits"]


def backend(tokenizer: Any) -> Tokenizer:
    """Return a tokenizer of the library tokenizers that neither pads nor truncates.

    :param tokenizer: of transformers.
    :raises InputError: when it is written in Python, which gives no offsets.
    """
    inner: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    if inner is None:
        raise InputError(f"the tokenizer {type(tokenizer).__name__} has no offsets: expected a fast one")
    inner.no_padding()
    inner.no_truncation()
    return inner


def load_tokenizer(folder: Path) -> Any:
    """Load a folder's tokenizer by transformers.

    :raises InputError: when that fails.
    """
    from transformers import AutoTokenizer

    try:
        with quiet_transformers():
            loader: Any = AutoTokenizer
            return loader.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except loading_errors() as error:
        raise InputError(f"{folder} has no tokenizer that loads ({first_line(error)})") from error


def _load(name: str, folder: Path, kind: HeadKind) -> Any:
    require_safetensors(folder)
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("transformers", "torch", f"the {kind.noun} {name}") from None
    from ....core.runtime.device import device

    auto: Any = getattr(transformers, f"AutoModelFor{kind.task}")
    options = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
    with loading(folder, f"a {kind.noun}"):
        model, report = auto.from_pretrained(str(folder), output_loading_info=True, **options)
    if report["missing_keys"]:
        raise InputError(f"{folder} is no trained {kind.noun}: its weights lack {min(report['missing_keys'])}")
    return model.eval().to(device())
