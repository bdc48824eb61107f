"""What torch computes on here."""

from __future__ import annotations

from functools import cache
from pathlib import Path


def device() -> str:
    """Where training runs: "cuda", "mps" or "cpu"."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@cache
def has_bf16() -> bool:
    """Whether matrix products in bfloat16 are the fast ones here. Emulated, they would be slower than float32."""
    import torch

    if device() == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8").split()
    except OSError:
        return False
    return device() == "cpu" and bool({"amx_bf16", "avx512_bf16"} & set(flags))
