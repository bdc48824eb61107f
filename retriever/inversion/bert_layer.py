"""A layer of BERT in torch, which decoders that begin as an encoder's layers are made of."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def bert_layer() -> type[Any]:
    """`Layer`, made when torch is first needed."""
    import torch
    from torch import nn
    from torch.nn.functional import gelu, scaled_dot_product_attention

    class Layer(nn.Module):
        """A layer of BERT: attention and a network of two maps, each added to its input and normalised."""

        def __init__(self, width: int, heads: int, inner: int) -> None:
            super().__init__()
            self.heads = heads
            self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
            self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

        def forward(self, states: Any, mask: Any) -> Any:
            rows, tokens, width = states.shape
            split = self.attention(states).view(rows, tokens, 3, self.heads, width // self.heads)
            queries, keys, values = split.permute(2, 0, 3, 1, 4)
            if self.training and states.device.type == "cpu":  # there the fused one's backward pass is the slower one
                likeness = queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5
                mixed = likeness.masked_fill(~mask, -1e4).softmax(-1) @ values
            else:
                mixed = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
            states = self.norm1(states + self.out(mixed.transpose(1, 2).reshape(rows, tokens, width)))
            return self.norm2(states + self.down(gelu(self.up(states))))

        def begin_as(self, layer: Any) -> None:
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

    return Layer
