"""Dense layers behind the pooling, as of LaBSE and distiluse, computed by numpy.

They are sentence-transformers' modules `Dense`: activation(weight @ pooled + bias).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import InputError
from ....core.runtime.blas import one_thread
from ..settings import read_config, read_modules
from .weights import load_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ....core.arrays import Floats

_POOLED = "sentence_embedding"  # sentence-transformers' name of the pooled states


def _identity(values: Floats) -> Floats:
    return values


def _tanh(values: Floats) -> Floats:
    return np.tanh(values)


def _relu(values: Floats) -> Floats:
    return np.maximum(values, np.float32(0))


def _sigmoid(values: Floats) -> Floats:
    half = np.float32(0.5)
    sigmoid: Floats = half * np.tanh(half * values) + half  # of 1 / (1 + exp(-x)), without overflow
    return sigmoid


_TANH = "torch.nn.modules.activation.Tanh"
_ACTIVATIONS = {
    _TANH: _tanh,
    "torch.nn.modules.linear.Identity": _identity,
    "torch.nn.modules.activation.ReLU": _relu,
    "torch.nn.modules.activation.Sigmoid": _sigmoid,
}


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense layer for pooled states, or for the output of another one."""

    weight: Floats  # (dim, dim of the input)
    bias: Floats  # (dim,)
    activation: Callable[[Floats], Floats]

    @classmethod
    def load(cls, folder: Path, dim: int) -> Dense:
        """Load a layer from a folder of `dense_folders`.

        :param dim: of its input.
        :raises InputError: when its weights are damaged, or of another size.
        """
        file = folder / "model.safetensors"
        weights, config = load_weights(file), read_config(folder)
        weight = weights.get("linear.weight", np.empty((0, 0), np.float32))
        bias = weights.get("linear.bias", np.zeros(len(weight), np.float32))
        has_bias = "linear.bias" in weights or config.get("bias") is False
        if weight.ndim != 2 or weight.shape[1] != dim or bias.shape != weight.shape[:1] or not has_bias:
            raise InputError(f"{file} holds no dense layer for {dim} dimensions: copy the model folder again")
        return cls(weight, bias, _ACTIVATIONS[config.get("activation_function", _TANH)])

    @property
    def dim(self) -> int:
        """The dimensions of the output."""
        return len(self.bias)

    def __call__(self, inputs: Floats) -> Floats:
        """Compute (texts, dim). Each text has a product of its own: a product of many texts rounds otherwise."""
        with one_thread:
            products: Floats = (inputs[:, None] @ self.weight.T)[:, 0]
        return self.activation(products + self.bias)


def dense_folders(folder: Path, modules: Sequence[str]) -> list[Path] | None:
    """Return the folders of the modules behind the pooling, if all are dense layers that `Dense` computes, else None.

    :param modules: the class names of all modules; a last Normalize is left out.
    """
    names = list(modules[2:-1] if modules[-1:] == ("Normalize",) else modules[2:])
    if tuple(modules[:2]) != ("Transformer", "Pooling") or set(names) - {"Dense"}:
        return None
    folders = [folder / module["path"] for module in read_modules(folder)[2 : 2 + len(names)]]
    return folders if all(map(_is_computed, folders)) else None


def load_layers(folders: Sequence[Path], dim: int) -> list[Dense]:
    """Load the layers in these folders, each for the output of the layer before it.

    :param dim: of the pooled states.
    :raises InputError: when a layer is damaged, or of another size.
    """
    layers: list[Dense] = []
    for folder in folders:
        layers.append(Dense.load(folder, layers[-1].dim if layers else dim))
    return layers


def _is_computed(folder: Path) -> bool:
    config = read_config(folder)
    name = config.get("module_input_name", _POOLED)
    return (
        (folder / "model.safetensors").is_file()
        and str(config.get("activation_function", _TANH)) in _ACTIVATIONS
        and name == _POOLED
        and (config.get("module_output_name") or name) == _POOLED
        and not config.get("use_residual", False)
    )
