"""Attention for training in bfloat16 on a CPU: on an AMD EPYC torch's own takes nearly four times as long."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "binocle_bf16"  # in transformers' table
_MAX_SHARES = 2**25  # numbers kept for the backward pass of a layer, 64 MiB: torch's attention keeps none


def speed_up(model: Any) -> None:
    """Give a transformers model this attention in place of `sdpa`. Other modules, and None, do not change."""
    if getattr(getattr(model, "config", None), "_attn_implementation", None) == "sdpa":
        AttentionInterface.register(_NAME, _forward)
        AttentionMaskInterface.register(_NAME, sdpa_mask)
        model.set_attn_implementation(_NAME)


def _forward(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention of a layer, (texts, tokens, heads, size), as transformers' `sdpa_attention_forward` does."""
    is_fast = _is_plain(module, query, attention_mask, options) and query.shape == key.shape == value.shape
    if dropout or not is_fast or query.shape[:3].numel() * query.shape[2] > _MAX_SHARES:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **options)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = _Attention.apply(query, key, value, attention_mask, scale)  # type: ignore[no-untyped-call]
    return output.transpose(1, 2).contiguous(), None


def _is_plain(module: Any, query: torch.Tensor, attention_mask: torch.Tensor | None, options: dict[str, Any]) -> bool:
    """Whether a mask alone says which tokens are seen, and the parts are in bfloat16 on a CPU."""
    if attention_mask is None:
        causal = options.get("is_causal")
        is_masked = not (getattr(module, "is_causal", True) if causal is None else causal)
    else:
        is_masked = attention_mask.dtype == torch.bool
    has_variant = any(options.get(name) is not None for name in ("position_bias", "softcap", "cache"))
    return is_masked and not has_variant and query.dtype == torch.bfloat16 and query.device.type == "cpu"


class _Attention(torch.autograd.Function):
    """softmax(query key^T * scale) value, its products and its softmax rounded to bfloat16."""

    @staticmethod
    def forward(
        context: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        scale: float,
    ) -> torch.Tensor:
        """:param mask: True where a token is seen; it broadcasts to (texts, heads, tokens, tokens)."""
        shape = query.shape
        with torch.autocast("cpu", enabled=False):  # autocast would compute the softmax in float32
            query, key, value = (part.flatten(0, 1) for part in (query * scale, key, value))
            scores = torch.bmm(query, key.transpose(1, 2))
            if mask is not None:
                scores.view(*shape[:3], shape[2]).masked_fill_(~mask, torch.finfo(scores.dtype).min)
            shares = scores.softmax(-1)
            context.save_for_backward(query, key, value, shares)
            context.shape, context.scale = shape, scale
            return torch.bmm(shares, value).view(shape)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        query, key, value, shares = context.saved_tensors
        gradient = gradients[0].flatten(0, 1)
        of_shares = torch.bmm(gradient, value.transpose(1, 2))
        of_scores = torch._softmax_backward_data(of_shares, shares, -1, shares.dtype)  # noqa: SLF001 - fused
        parts = (
            torch.bmm(of_scores, key) * context.scale,
            torch.bmm(of_scores.transpose(1, 2), query),
            torch.bmm(shares.transpose(1, 2), gradient),
        )
        return *(part.view(context.shape) for part in parts), None, None
