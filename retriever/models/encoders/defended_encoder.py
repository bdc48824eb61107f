"""An encoder that defends its vectors before they are stored: a base encoder with a defence behind it.

In its folder, `defence.json` names the base and the kind. `defence.safetensors` holds the arrays: the key of the noise,
the matrix of the rotation, the codebooks. Whoever has that folder can undo the rotation and remove the noise. So it
belongs on the machine that uses the index, not beside the stored index. The fingerprint covers the folder and the base.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.errors import EncoderMismatchError, InputError
from .. import encoder as encoders
from ..defences import Truncation, from_parts, to_parts
from ..encoder_parts import read_arrays, read_settings
from ..model_files import DEFENCE, find

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ....core.arrays import Floats
    from ..defences import Defence
    from ..encoder import Encoder, Kind


_ARRAYS = "defence.safetensors"
_FORMAT = 1
_FORMS = {"format": int, "kind": str, "numbers": dict, "model": str, "fingerprint": str}


class DefendedEncoder:
    """A base encoder with a defence behind it."""

    def __init__(self, name: str, base: Encoder, defence: Defence) -> None:
        if defence.dim != base.dim:
            raise InputError(
                f"the defence {defence.kind} is for vectors of {defence.dim} dimensions, but {base.name} "
                f"gives {base.dim}"
            )
        self.name = name
        self.base = base
        self.defence = defence
        self.dim = defence.stored_dim
        self.max_tokens = base.max_tokens
        self.fingerprint = _fingerprint(base, defence)

    @classmethod
    def load(cls, folder: Path, base: Encoder) -> DefendedEncoder:
        """Load the defence in `folder` behind `base`, the encoder that `base_encoder_name(folder)` names.

        :raises EncoderMismatchError: when the base is not the encoder that was defended.
        """
        file = folder / DEFENCE
        settings = _settings(file)
        model, fingerprint = settings["model"], settings["fingerprint"]
        if base.fingerprint != fingerprint:
            raise EncoderMismatchError(
                f"{file} is of {model} with the fingerprint {fingerprint[:8]}, but that has {base.fingerprint[:8]}: "
                "put the encoder back that was defended, or write into 'model' where it is now"
            )
        arrays = read_arrays(folder / _ARRAYS)
        try:
            return cls(str(folder), base, from_parts(settings["kind"], settings["numbers"], arrays))
        except InputError as error:
            raise InputError(f"{folder / _ARRAYS} does not fit {DEFENCE}: {error}; copy its folder again") from None

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        """Encode with the base, then apply the defence for documents or for queries."""
        vectors = self.base.encode(texts, kind=kind)
        if kind == "query":
            return self.defence.queries(vectors)
        return self.defence.documents(vectors, encoders.check_texts(texts))

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return the base's offsets: a defence changes vectors, not tokens."""
        return self.base.offsets(texts)


def shortened(base: Encoder, length: int) -> DefendedEncoder:
    """Return an encoder with the first dimensions of another's vectors.

    A Matryoshka training keeps most of their quality (Kusupati et al. 2022, arXiv:2205.13147).

    :raises InputError: when the vectors are no longer than that, or defended.
    """
    if isinstance(base, DefendedEncoder):
        raise InputError(f"{base.name} has defended or shortened vectors already: name its base in place of it")
    try:
        return DefendedEncoder(f"{base.name}@{length}", base, Truncation(base.dim, length))
    except InputError as error:
        raise InputError(f"{base.name}@{length} does not exist: {error}") from None


def base_encoder_name(folder: Path) -> str:
    """Return the name of the base encoder in a defended encoder's folder.

    :raises InputError: when the base is a defended encoder itself.
    """
    file = folder / DEFENCE
    model: str = _settings(file)["model"]
    if (find(model) / DEFENCE).is_file():
        raise InputError(f"{file} names {model} as its base, which is a defended encoder itself")
    return model


def save_defended_encoder(folder: Path, base: Encoder, defence: Defence) -> Path:
    """Write the folder of a defended encoder, readable by its owner alone.

    :raises InputError: when the folder is not empty, or the base is a defended encoder.
    """
    from safetensors.numpy import save

    if isinstance(base, DefendedEncoder):
        raise InputError(f"{base.name} is a defended encoder already: bring its base back first, by 'binocle rollback'")
    check_free_folder(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    numbers, arrays = to_parts(defence)
    settings = {
        "format": _FORMAT,
        "kind": defence.kind,
        "numbers": numbers,
        "model": base.name,
        "fingerprint": base.fingerprint,
    }
    _write(folder / _ARRAYS, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))
    _write(folder / DEFENCE, json.dumps(settings, indent=1).encode() + b"\n")
    return folder.resolve()


def check_free_folder(folder: Path) -> None:
    """Check that a folder is missing or empty.

    :raises InputError: when it is not.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already: name a new folder for the defended encoder")


def _write(file: Path, content: bytes) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:  # noqa: PTH123 - its mode
        stream.write(content)


def _settings(file: Path) -> dict[str, Any]:
    return read_settings(file, _FORMS, "a defended encoder")


def _fingerprint(base: Encoder, defence: Defence) -> str:
    numbers, arrays = to_parts(defence)
    digest = hashlib.sha256(json.dumps([base.fingerprint, defence.kind, numbers], sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]
