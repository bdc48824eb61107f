"""An encoder whose vectors are defended before anyone stores them: a folder that names its base, and what is secret.

`defence.json` names the base and the kind, `defence.safetensors` holds the arrays: the key of the noise, the matrix of
the rotation, the codebooks. Who has that folder can undo the rotation and take the noise away again, so that it belongs
where the index is used and not where it is stored. The fingerprint covers all of it, the base included.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import EncoderMismatchError, InputError
from . import encoder as encoders
from .defences import of_parts, parts
from .files import DEFENCE, find

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ...core.arrays import Floats
    from .defences import Array, Defence
    from .encoder import Encoder, Kind


_ARRAYS = "defence.safetensors"
_FORMAT = 1


class DefendedEncoder:
    """Another encoder with a defence behind it."""

    def __init__(self, name: str, base: Encoder, defence: Defence) -> None:
        if defence.dim != base.dim:
            raise InputError(
                f"the defence {defence.kind} is of vectors of {defence.dim} dimensions, but {base.name} "
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
        """Put the defence in `folder` behind `base`, the encoder that `base_of(folder)` names.

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
        return cls(str(folder), base, of_parts(settings["kind"], settings["numbers"], _arrays(folder / _ARRAYS)))

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        vectors = self.base.encode(texts, kind=kind)
        if kind == "query":
            return self.defence.queries(vectors)
        return self.defence.documents(vectors, encoders.check_texts(texts))

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        return self.base.offsets(texts)


def base_of(folder: Path) -> str:
    """Read which encoder a defended encoder's folder defends.

    :raises InputError: when that is a defended encoder itself.
    """
    file = folder / DEFENCE
    model: str = _settings(file)["model"]
    if (find(model) / DEFENCE).is_file():
        raise InputError(f"{file} names {model} as its base, which is a defended encoder itself")
    return model


def write(folder: Path, base: Encoder, defence: Defence) -> Path:
    """Make the folder of a defended encoder, which only its owner can read.

    :raises InputError: when something is there already.
    """
    from safetensors.numpy import save

    if isinstance(base, DefendedEncoder):
        raise InputError(f"{base.name} is a defended encoder already: bring its base back first, by 'binocle rollback'")
    expect_free(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    numbers, arrays = parts(defence)
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


def expect_free(folder: Path) -> None:
    """:raises InputError: when something is there already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already: name a new folder for the defended encoder")


def _write(file: Path, content: bytes) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:  # noqa: PTH123 - its mode
        stream.write(content)


def _settings(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read ({error}): copy the folder of the encoder again") from None
    forms = {"format": int, "kind": str, "numbers": dict, "model": str, "fingerprint": str}
    if not isinstance(found, dict) or not all(isinstance(found.get(name), form) for name, form in forms.items()):
        raise InputError(f"{file} is not of a defended encoder: expected an object with {', '.join(forms)}")
    if found["format"] != _FORMAT:
        raise InputError(f"{file} has format {found['format']}, this version reads {_FORMAT}")
    return found


def _arrays(file: Path) -> dict[str, Array]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(file))
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file} cannot be read ({error}): copy the folder of the encoder again") from None


def _fingerprint(base: Encoder, defence: Defence) -> str:
    numbers, arrays = parts(defence)
    digest = hashlib.sha256(json.dumps([base.fingerprint, defence.kind, numbers], sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]
