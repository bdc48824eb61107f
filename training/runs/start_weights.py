"""The weights that a run starts with: kept, so that a resumed run starts alike, and averaged into the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .training_run import TrainingRun

_FILE = "begin.safetensors"


def share(run: TrainingRun[Any], module: torch.nn.Module) -> None:
    """Give every process, and every resumed run, the same start: a new head is drawn once."""
    with run.lock():
        file = run.folder / _FILE
        if file.is_file():
            module.load_state_dict(load_file(str(file)), strict=False)
            return
        aside = file.with_suffix(".part")
        tensors = _unshared(module.state_dict())
        save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, str(aside))
        aside.replace(file)


def average(run: TrainingRun[Any], module: torch.nn.Module, share: float) -> None:
    """Interpolate between the weights at the start and those now (Wortsman et al. 2022, arXiv:2109.01903).

    :param share: of the weights at the start.
    """
    start = load_file(str(run.folder / _FILE))
    start = {name.replace(".base_layer.", "."): value for name, value in start.items()}  # adapters are merged now
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if name in start and value.is_floating_point():
                value.mul_(1 - share).add_(start[name].to(value), alpha=share)


def _unshared(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return each tensor once, under its first name: safetensors refuses two names for one tensor."""
    names: dict[int, str] = {}
    return {name: tensor for name, tensor in state.items() if names.setdefault(tensor.data_ptr(), name) == name}
