"""The weights of a decoder in an inverter's folder, as safetensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_model, save_model

from ...core.errors import InputError, first_line
from .inverter_info import WEIGHTS

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    Decoder = TypeVar("Decoder", bound=nn.Module)


def load_weights(folder: Path, decoder: Decoder) -> Decoder:
    """Give a decoder its saved weights, and return it ready for inference.

    :raises InputError: when the file is damaged, or of a decoder of other sizes.
    """
    file = folder / WEIGHTS
    try:
        load_model(decoder, str(file))
    except (OSError, RuntimeError, SafetensorError, ValueError, KeyError) as error:
        reason = first_line(error)
        raise InputError(f"{file} does not hold the weights of this inverter ({reason}): copy it again") from error
    decoder.eval()
    return decoder


def save_weights(folder: Path, decoder: nn.Module) -> None:
    """Write the weights into an existing folder; this moves the decoder to the CPU."""
    save_model(decoder.cpu(), str(folder / WEIGHTS))
