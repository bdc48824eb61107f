"""The weights of a decoder in an inverter's folder, as safetensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model

from ....core.errors import InputError, first_line
from ..inverter_info import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

    Decoder = TypeVar("Decoder", bound=nn.Module)


def load_decoder(folder: Path, build: Callable[[], Decoder]) -> Decoder:
    """Build a decoder, give it its saved weights, and return it ready for inference.

    :param build: makes the decoder that `inverter.json` describes. It is made without memory first: that file may
        claim more than any machine has.
    :raises InputError: when the file is damaged, or of a decoder of other sizes.
    """
    file = folder / WEIGHTS
    try:
        with torch.device("meta"):
            numbers = sum(weight.numel() for weight in build().parameters())
        if numbers > file.stat().st_size:
            raise ValueError(f"it is too small for a decoder of {numbers:,} numbers")  # noqa: TRY301
        decoder = build()
        load_model(decoder, str(file))
    except (OSError, RuntimeError, SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        reason = first_line(error)
        raise InputError(f"{file} does not hold the weights of this inverter ({reason}): copy it again") from error
    decoder.eval()
    return decoder


def save_weights(folder: Path, decoder: nn.Module) -> None:
    """Write the weights into an existing folder; this moves the decoder to the CPU."""
    save_model(decoder.cpu(), str(folder / WEIGHTS))
