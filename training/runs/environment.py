"""Where a run trains: installed packages, device, precision and the number of processes. Imports no torch."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from ...core.device import device as device  # noqa: PLC0414 - with the rest of a training run
from ...core.device import has_bf16 as has_bf16  # noqa: PLC0414 - with the rest of a training run
from ...core.errors import MissingExtraError

_SHORT = 192  # tokens below which plain attention trains faster on CPU than the fused kernel


def require(purpose: str) -> None:
    """:raises MissingExtraError: when torch or what trains with it is not installed.

    None of it is imported, which takes seconds: what is wrong with data and settings is to be told before.
    """
    for package, module in (
        ("torch", "torch"),
        ("sentence-transformers", "sentence_transformers"),
        ("datasets", "datasets"),
        ("accelerate", "accelerate"),
    ):
        if find_spec(module) is None:
            raise MissingExtraError(package, "train", purpose)


def silence() -> None:
    """Import what trains, without the bars and notes that it writes of its own accord."""
    import logging

    from datasets.utils.logging import disable_progress_bar, set_verbosity_error
    from transformers.utils import logging as chatter

    disable_progress_bar()
    set_verbosity_error()
    chatter.set_verbosity_error()  # type: ignore[no-untyped-call]
    chatter.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)


def bf16(config: Any) -> bool:
    """Whether a run with these settings computes in bfloat16: where the machine does, unless they say."""
    return has_bf16() if config.bf16 is None else bool(config.bf16)


def attention(tokens: float) -> str:
    """By which attention texts of about so many tokens are learned from the fastest."""
    return "eager" if device() == "cpu" and tokens < _SHORT else "sdpa"


def processes() -> int:
    """How many train together, as torchrun and accelerate say."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Whether this process writes what is written once, when several train together."""
    return os.environ.get("RANK", "0") == "0"
