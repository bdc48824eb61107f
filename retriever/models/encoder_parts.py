"""Read the small files of a model: settings in JSON, and arrays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, first_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_FORMAT = 1


def read_settings(file: Path, forms: Mapping[str, type], noun: str) -> dict[str, Any]:
    """Read a JSON object with values of these types, and its format.

    :param noun: of the description, for messages.
    :raises InputError: when it is another object, or of another format.
    """
    try:
        settings = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read ({error}): copy the folder of the encoder again") from None
    if not isinstance(settings, dict) or not all(isinstance(settings.get(name), form) for name, form in forms.items()):
        raise InputError(f"{file} does not describe {noun}: expected an object with {', '.join(forms)}")
    if settings["format"] != _FORMAT:
        raise InputError(f"{file} has format {settings['format']}, this version reads {_FORMAT}")
    return settings


def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """Read a safetensors file.

    :raises InputError: when it cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(file))
    except (OSError, SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        # numpy lacks some types of safetensors: a TypeError for BF16, an AttributeError for F8
        raise InputError(f"{file} cannot be read ({first_line(error)}): copy its folder again") from None
