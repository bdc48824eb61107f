"""Compute the pairs of a batch in groups of like length, so that none is padded to the longest of the whole batch."""

from __future__ import annotations

from typing import Any

import torch

_TOKENS = 2_048  # of a group, with its padding: enough to keep a processor busy


def group_by_length(model: Any) -> None:
    """Let a `CrossEncoder` compute its scores in groups while it trains on a processor.

    A GPU computes a batch at once faster than its parts. The scores are the same but for rounding.
    """
    forward = model.forward

    def grouped(features: dict[str, Any], **options: Any) -> dict[str, Any]:
        mask = features["attention_mask"]
        if not model.training or mask.device.type != "cpu" or not bool(mask[:, 0].all()):  # padding on the left
            result: dict[str, Any] = forward(features, **options)
            return result
        lengths = mask.sum(1)
        order = lengths.argsort(descending=True, stable=True)
        groups = _groups(lengths[order].tolist())
        scores = [forward(_part(features, order[rows], lengths), **options)["scores"] for rows in groups]
        return {**features, "scores": torch.cat(scores)[order.argsort()]}

    model.forward = grouped


def _groups(lengths: list[int]) -> list[slice]:
    """Cut rows, the longest first, into groups of about `_TOKENS` tokens."""
    groups, start = [], 0
    while start < len(lengths):
        groups.append(slice(start, start + max(1, _TOKENS // lengths[start])))
        start = groups[-1].stop
    return groups


def _part(features: dict[str, Any], rows: torch.Tensor, lengths: torch.Tensor) -> dict[str, Any]:
    """Return the features of these rows, without the padding that all of them have."""
    longest = int(lengths[rows].max())
    is_table = {name: isinstance(value, torch.Tensor) and value.dim() == 2 for name, value in features.items()}
    return {name: value[rows, :longest] if is_table[name] else value for name, value in features.items()}
