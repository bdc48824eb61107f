"""Write optimizer and random states as safetensors and JSON: no pickles."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_state(stem: Path, state: Mapping[str, Any]) -> None:
    """Write nested mappings and lists of numbers, texts and tensors: tensors to .safetensors, the rest to .json."""
    tensors: dict[str, Any] = {}
    stem.parent.mkdir(parents=True, exist_ok=True)
    rest = json.dumps(_split(state, "", tensors))
    save_file(tensors, str(stem.with_suffix(".safetensors")))
    stem.with_suffix(".json").write_text(rest, "utf-8")


def read_state(stem: Path) -> Any:
    """Read what `write_state` wrote."""
    tensors = load_file(str(stem.with_suffix(".safetensors")))
    return _join(json.loads(stem.with_suffix(".json").read_text("utf-8")), tensors)


def _split(value: Any, name: str, tensors: dict[str, Any]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().clone().contiguous()
        return {"tensor": name}
    if isinstance(value, dict):  # pairs, since JSON would turn an optimizer's integer keys into texts
        return {"items": [[key, _split(item, f"{name}.{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_split(item, f"{name}.{index}", tensors) for index, item in enumerate(value)]
    return value


def _join(value: Any, tensors: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_join(item, tensors) for item in value]
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _join(item, tensors) for key, item in value["items"]}
    return value


def random_states() -> dict[str, Any]:
    """Return the states of the generators of Python, numpy and torch."""
    name, keys, *numbers = np.random.get_state()  # noqa: NPY002 - the libraries below use it
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *numbers],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def restore_random_states(states: Mapping[str, Any]) -> None:
    """Set the generators to the states that `random_states` returned."""
    version, numbers, spare = states["python"]
    random.setstate((version, tuple(numbers), spare))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
