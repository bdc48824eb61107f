"""An encoder with an adapter: a linear map of its query vectors. The vectors of documents stay those of the base.

So an index changes to it, and back, without embedding anything. In its folder, `adapter.json` names the base, and
`adapter.safetensors` holds the matrix.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.errors import EncoderMismatchError, InputError
from ....core.files import write_atomic
from ..encoder_parts import read_arrays, read_settings
from ..model_files import ADAPTER, DEFENCE, find

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ....core.arrays import Floats
    from ..encoder import Encoder, Kind


_ARRAYS = "adapter.safetensors"
_FORMS = {"format": int, "model": str, "fingerprint": str}


class AdaptedEncoder:
    """A base encoder with query vectors that are multiplied by a matrix.

    :param matrix: float32, shape (dim, dim).
    """

    def __init__(self, name: str, base: Encoder, matrix: Floats) -> None:
        expected = (base.dim, base.dim)
        if matrix.shape != expected or matrix.dtype != np.float32 or not np.isfinite(matrix).all():
            raise InputError(
                f"the adapter {name} of {base.name} is a finite float32 matrix of shape {expected}, "
                f"but {matrix.dtype} of shape {matrix.shape} came, or it is not finite"
            )
        self.name, self.base, self.matrix = name, base, matrix
        self.dim, self.max_tokens = base.dim, base.max_tokens
        digest = hashlib.sha256(f"adapter {base.fingerprint}\n".encode() + np.ascontiguousarray(matrix).tobytes())
        self.fingerprint = digest.hexdigest()[:32]

    @classmethod
    def load(cls, folder: Path, base: Encoder) -> AdaptedEncoder:
        """Load the adapter in `folder` for `base`, the encoder that `adapted_encoder_name(folder)` names.

        :raises EncoderMismatchError: when the base is not the encoder that was adapted.
        """
        file = folder / ADAPTER
        settings = _settings(file)
        if base.fingerprint != settings["fingerprint"]:
            raise EncoderMismatchError(
                f"{file} adapts {settings['model']} with the fingerprint {settings['fingerprint'][:8]}, but that has "
                f"{base.fingerprint[:8]}: write into 'model' where the adapted encoder is now, or 'binocle rollback'"
            )
        arrays = read_arrays(folder / _ARRAYS)
        if arrays.keys() != {"matrix"}:
            raise InputError(f"{folder / _ARRAYS} holds no adapter: expected one array, matrix")
        return cls(str(folder), base, arrays["matrix"])

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        """Encode with the base, then map the vectors of queries."""
        vectors = self.base.encode(texts, kind=kind)
        return vectors if kind == "document" else mapped(vectors, self.matrix)

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return the base's offsets: an adapter changes vectors, not tokens."""
        return self.base.offsets(texts)


def mapped(vectors: Floats, matrix: Floats) -> Floats:
    """Return vectors @ matrix, each scaled to its length before."""
    images = vectors @ matrix
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    images *= lengths / np.maximum(np.linalg.norm(images, axis=1, keepdims=True), 1e-12)
    return np.ascontiguousarray(images, np.float32)


def adapted_encoder_name(folder: Path) -> str:
    """Return the name of the encoder that the adapter in a folder is for.

    :raises InputError: when that has an adapter or a defence itself.
    """
    file = folder / ADAPTER
    model: str = _settings(file)["model"]
    if any((find(model) / name).is_file() for name in (ADAPTER, DEFENCE)):
        raise InputError(f"{file} names {model} as its base, which has an adapter or a defence itself")
    return model


def save_adapted_encoder(folder: Path, base: Encoder, matrix: Floats) -> AdaptedEncoder:
    """Write the folder of an adapter."""
    from safetensors.numpy import save_file

    encoder = AdaptedEncoder(str(folder), base, matrix)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"matrix": np.ascontiguousarray(matrix)}, folder / _ARRAYS)
    settings = {"format": 1, "model": base.name, "fingerprint": base.fingerprint}
    write_atomic(folder / ADAPTER, json.dumps(settings, indent=1) + "\n")
    return encoder


def _settings(file: Path) -> dict[str, Any]:
    return read_settings(file, _FORMS, "an adapter")
