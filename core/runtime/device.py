"""The device that torch computes on, and the cores of this process."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


def device() -> str:
    """Return the best device of this machine: "cuda", "mps" or "cpu"."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def gpus() -> tuple[list[str], str]:
    """Return torch's names of this machine's GPUs, and for messages their number, or why there are none."""
    try:
        import torch
    except ImportError:
        return [], "the CPU: GPUs are used with binocle[torch]"
    count = torch.cuda.device_count()
    if not count:
        return [], "the CPU: torch sees no GPU"
    return [f"cuda:{number}" for number in range(count)], f"{count} GPU{'s' * (count > 1)}"


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


@cache
def has_bf16() -> bool:
    """Whether this device computes matrix products in bfloat16 natively; emulated, they are slower than float32."""
    import torch

    if device() == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8").split()
    except OSError:
        return False
    return device() == "cpu" and bool({"amx_bf16", "avx512_bf16"} & set(flags))
