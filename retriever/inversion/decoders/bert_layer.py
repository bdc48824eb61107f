"""A layer of BERT in torch, for decoders that start from an encoder's layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention


class BertLayer(nn.Module):
    """A layer of BERT: attention, then two linear maps, each added to its input and normalised.

    `nn.TransformerEncoderLayer` computes the same. It is not used because its attention, a fused kernel, has a slow
    backward pass in bfloat16 on a CPU. Forward and backward of two layers (width 384, 12 heads, 16 rows of 70 tokens)
    took 175 ms of CPU time with plain attention, 247 ms with the fused kernel and 266 ms with torch's layer. In float32
    all took the same. (AMD EPYC with AVX512-BF16, one thread, torch 2.13.)
    """

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """:param states: (rows, tokens, width).
        :param mask: (rows, 1, 1, tokens), true where there is a token.
        """
        rows, tokens, width = states.shape
        split = self.attention(states).view(rows, tokens, 3, self.heads, width // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        if self.training and states.device.type == "cpu":  # see above
            scores = queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5
            mixed = scores.masked_fill(~mask, -1e4).softmax(-1) @ values
        else:
            mixed = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        states = self.norm1(states + self.out(mixed.transpose(1, 2).reshape(rows, tokens, width)))
        states = self.norm2(states + self.down(gelu(self.up(states))))
        return states  # noqa: RET504 - a module's call is untyped

    def copy_bert(self, layer: Any) -> None:
        """Copy the weights of transformers' BertLayer."""
        attention = layer.attention.self
        parts = (attention.query, attention.key, attention.value)
        with torch.no_grad():
            self.attention.weight.copy_(torch.cat([part.weight for part in parts]))
            self.attention.bias.copy_(torch.cat([part.bias for part in parts]))
        self.out.load_state_dict(layer.attention.output.dense.state_dict())
        self.norm1.load_state_dict(layer.attention.output.LayerNorm.state_dict())
        self.up.load_state_dict(layer.intermediate.dense.state_dict())
        self.down.load_state_dict(layer.output.dense.state_dict())
        self.norm2.load_state_dict(layer.output.LayerNorm.state_dict())
