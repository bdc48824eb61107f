"""A kernel in Triton for GPUs: the sum of two arrays and its layer norm, with one pass over the memory.

Triton comes with torch's builds for GPUs. It compiles a kernel at its first use, which needs a C compiler; without
one, `torch_gpu` computes the same by two functions of torch, with five passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
from triton import language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _add_and_norm(left, right, weight, bias, out, eps, dim: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
    start = tl.program_id(0).to(tl.int64) * dim
    columns = tl.arange(0, block)
    inside = columns < dim
    total = tl.load(left + start + columns, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(right + start + columns, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, total - tl.sum(total, 0) / dim, 0.0)
    normal = centred / tl.sqrt(tl.sum(centred * centred, 0) / dim + eps)
    scaled = normal * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    scaled += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + start + columns, scaled.to(out.dtype.element_ty), mask=inside)


def add_and_norm(left: Tensor, right: Tensor, norm: Sequence[Tensor], eps: float) -> Tensor:
    """Return the layer norm of left + right, (rows, dim), computed in float32.

    :param norm: weight and bias, (dim,).
    """
    rows, dim = left.shape
    out, block = torch.empty_like(left), triton.next_power_of_2(dim)
    _add_and_norm[(rows,)](left, right, *norm, out, eps, dim=dim, block=block, num_warps=1 if block <= 512 else 2)
    return out
