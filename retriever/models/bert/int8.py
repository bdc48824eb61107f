"""The dense layers of a BERT in int8: weights by output channel, inputs by a range for each layer.

Ranges are measured on the sentences below, which no test collection has. Two kinds of outliers widen them in a trained
BERT: a few channels of every token, and a few channels of [CLS] alone. The first move into the weights (Xiao et al.
2023, SmoothQuant, arXiv:2211.10438). The second follow the activation function; there a channel is split into several
copies, each with a part of its value (Zhao et al. 2019, outlier channel splitting, arXiv:1901.09504). The bias of a
layer corrects its mean error (Nagel et al. 2019, arXiv:1906.04721).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import InputError
from .numpy import BertNumpy
from .weight_names import LayerNames

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tokenizers import Tokenizer

    from ....core.arrays import Floats, Integers
    from .weights import BertConfig

# The share of a channel's spread that moves into the weights. Of .5 to 1 these gave about the least change of vectors
# for all-MiniLM-L6-v2: cosines of .9989 with those of float32 on scifact.
_ATTENTION_SHARE, _ATTENTION_OUTPUT_SHARE, _INTERMEDIATE_SHARE = 0.8, 0.5, 0.65
_SPLITS = 16  # channels that are added to an inner layer for its outliers; a multiple of 16 keeps its rows aligned
INPUT_LEVELS, _WEIGHT_LEVELS = 255, 127  # steps in the range of inputs, and on each side of 0 for weights
_LONG_TEXTS, _LONG_TOKENS = 5, 192
SENTENCES = """
The ferry leaves the northern harbour at half past six and reaches the island before noon, unless fog holds it back.
In 1847 the town had 3,200 inhabitants, two mills and a school; by 1911 the railway had brought 41,000 people to it.
Warm the milk to 40 °C, stir in the yeast and a spoon of sugar, and leave the bowl in a quiet corner for ten minutes.
def mean(values): return sum(values) / len(values)  # raises ZeroDivisionError for an empty list
Patients who received the higher dose slept longer, but their blood pressure rose by 4.2 mmHg (p = 0.03, n = 118).
The tenant shall return the keys within three days after the end of the lease; otherwise a fee of $75 becomes due.
Why does my program stop with "permission denied" when I start it from another folder? See section 3.2 of the manual.
Iron rusts because oxygen and water take electrons from its surface; a coat of zinc protects it for many years.
ERROR 2024-05-17T08:31:09Z worker-7 connection to 10.0.3.18:5432 refused, retry 3 of 5 in 16 s
Der Zug nach Leipzig fährt heute von Gleis 9 ab, etwa zwölf Minuten später als im Fahrplan angegeben.
La bibliothèque est fermée le dimanche, mais les livres peuvent être rendus dans la boîte près de l'entrée.
SELECT name, COUNT(*) FROM orders WHERE total > 100 GROUP BY name ORDER BY 2 DESC LIMIT 20;
She opened the letter slowly, as if the paper itself could hurt her, and read the first line twice before she sat down.
The enzyme binds to the receptor, changes its shape, and thereby prevents the virus from entering the cell.
A triangle with sides of 3, 4 and 5 has a right angle, since the squares of the shorter sides add up to the third.
Heavy rain is expected on Thursday in the mountains; hikers should avoid the lower paths along the river.
Photons lose energy as they climb out of a gravitational well, so a clock in a valley runs slower than one on a peak.
Dear Ms Okafor, thank you for your message of 12 March. The spare part you ordered will leave our warehouse on Monday.
Laminar flow past a flat plate becomes turbulent where the Reynolds number exceeds about 500,000.
¿Dónde está la estación de autobuses? Está a dos calles de la plaza, al lado del mercado.
http://example.org/docs/index.html?lang=en#install lists the versions 1.9.4, 2.0.0-rc1 and 2.0.0 with their checksums.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Int8Dense:
    """A dense layer in int8: weight (outputs, inputs), step and bias (outputs,), scale (inputs,)."""

    weight: Integers  # from -127 to 127
    step: Floats  # what 1 of the weight stands for
    bias: Floats
    scale: Floats  # what inputs are multiplied by before they are rounded
    low: float  # the range of scaled inputs, in 255 steps
    high: float


class _Recorder(BertNumpy):
    """A BERT that keeps the inputs of one transformer layer's dense layers."""

    def __init__(self, config: BertConfig, weights: Mapping[str, Floats]) -> None:
        super().__init__(config, weights)
        self._inputs: dict[str, list[Floats]] = {}

    def of_layers(self, batches: Sequence[Integers]) -> Iterator[dict[str, Floats]]:
        """Yield for each layer the inputs (tokens, channels) of its dense layers, by name."""
        runs = [self.layers(ids, np.ones_like(ids)) for ids in batches]
        for run in runs:
            next(run)  # the embeddings
        for _ in self._layers:
            for run in runs:
                next(run)
            yield {name: np.concatenate(arrays) for name, arrays in self._inputs.items()}
            self._inputs.clear()

    def _dense(self, x: Floats, name: str) -> Floats:
        self._inputs.setdefault(name, []).append(x.reshape(-1, x.shape[-1]))
        return super()._dense(x, name)


def calibration_ids(tokenizer: Tokenizer, max_tokens: int) -> list[Integers]:
    """Return the token ids, each (1, tokens), of the sentences alone and of longer texts made from them."""
    lines = SENTENCES.strip().splitlines()
    turns = range(0, len(lines), -(-len(lines) // _LONG_TEXTS))
    texts = [*lines, *(" ".join([*lines[turn:], *lines[:turn]]) for turn in turns)]
    limit = min(max_tokens, _LONG_TOKENS)
    rows = (encoding.ids for encoding in tokenizer.encode_batch(texts))
    return [np.array([row if len(row) <= limit else [*row[: limit - 1], row[-1]]], np.int64) for row in rows]


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of damaged weights; the error says so in one line
def quantize(config: BertConfig, weights: Mapping[str, Floats], batches: Sequence[Integers]) -> dict[str, Int8Dense]:
    """Return the dense layers of a BERT in int8, by name, with ranges from batches of token ids (texts, tokens).

    :raises InputError: when a range is not finite.
    """
    layers: dict[str, Int8Dense] = {}
    for number, inputs in enumerate(_Recorder(config, weights).of_layers(batches)):
        names = LayerNames(number)
        for share, group in (
            (_ATTENTION_SHARE, (names.query, names.key, names.value)),
            (_ATTENTION_OUTPUT_SHARE, (names.attention_output,)),
            (_INTERMEDIATE_SHARE, (names.intermediate,)),
        ):
            x = inputs[group[0]]
            scale = _balanced(x, np.concatenate([weights[name + ".weight"] for name in group]), share)
            layers |= {name: _layer(x, weights, name, scale) for name in group}
        channels, scale = _split(inputs[names.output])
        inner, x = layers[names.intermediate], inputs[names.output][:, channels]
        layers[names.intermediate] = Int8Dense(
            inner.weight[channels], inner.step[channels], inner.bias[channels], inner.scale, inner.low, inner.high
        )
        layers[names.output] = _layer(x, weights, names.output, scale, channels)
    return layers


def _balanced(x: Floats, weight: Floats, share: float) -> Floats:
    """Return a scale for each channel that divides its spread between inputs (tokens, channels) and weights."""
    spread = np.abs(x).max(0).clip(1e-5) ** share / np.abs(weight).max(0).clip(1e-5) ** (1 - share)
    scale: Floats = (np.exp(np.log(spread).mean()) / spread).astype(np.float32)
    return scale


def _split(x: Floats) -> tuple[Integers, Floats]:
    """Return channels in order, the widest ones repeated, and the factor of the value in each copy."""
    widths = np.abs(x).max(0)
    repeats = np.ones(len(widths), np.int64)
    for _ in range(_SPLITS):
        repeats[np.argmax(widths / repeats)] += 1
    channels = np.repeat(np.arange(len(widths)), repeats)
    return channels, (1 / repeats[channels]).astype(np.float32)


def _layer(
    x: Floats, weights: Mapping[str, Floats], name: str, scale: Floats, channels: Integers | None = None
) -> Int8Dense:
    """Round a layer for its inputs x (tokens, channels).

    :param channels: for each channel of x, the weight's input channel; None: the same one.
    """
    weight, bias = weights[name + ".weight"], weights[name + ".bias"]
    scaled, inverse = x * scale, weight / scale if channels is None else weight[:, channels]
    step = (np.abs(inverse).max(1).clip(1e-12) / _WEIGHT_LEVELS).astype(np.float32)
    rounded = np.round(inverse / step[:, None]).astype(np.int8)
    low, high = float(min(scaled.min(), 0)), float(max(scaled.max(), 1e-6))
    size = np.float32((high - low) / INPUT_LEVELS)
    inputs = np.round((scaled - np.float32(low)) / size) * size + np.float32(low)
    error = (scaled @ inverse.T - inputs @ (rounded * step[:, None]).T).mean(0)
    layer = Int8Dense(rounded, step, (bias + error).astype(np.float32), scale, low, high)
    if not all(np.isfinite(part).all() for part in (step, layer.bias, scale, low, high)):
        raise InputError(f"the layer {name} gives values that are not finite: the weights of the model are damaged")
    return layer


def has_int8_products() -> bool:
    """Whether the processor multiplies int8 exactly (AVX-512 VNNI, AVX-VNNI, AMX), as far as Linux says."""
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return False
    return re.search(r"\b(avx512_vnni|avx_vnni|amx_int8)\b", flags) is not None
