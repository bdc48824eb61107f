"""Where a run trains: installed packages, device, precision and the number of processes. Imports no torch."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from ...core.errors import MissingExtraError
from ...core.runtime.device import device as device  # noqa: PLC0414 - part of this module
from ...core.runtime.device import has_bf16 as has_bf16  # noqa: PLC0414 - part of this module


def require(purpose: str) -> None:
    """:raises MissingExtraError: if torch or a library that trains with it is not installed.

    It imports none of them, which would take seconds: mistakes in data and settings are reported first.
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
    """Import the training libraries, and switch off their own progress bars and notes."""
    import logging

    from datasets.utils.logging import disable_progress_bar, set_verbosity_error
    from transformers.utils import logging as chatter

    disable_progress_bar()
    set_verbosity_error()
    chatter.set_verbosity_error()  # type: ignore[no-untyped-call]
    chatter.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)


def bf16(config: Any) -> bool:
    """Whether a run computes in bfloat16: as configured, else if the machine supports it."""
    return has_bf16() if config.bf16 is None else bool(config.bf16)


def processes() -> int:
    """Return the number of processes that train together, as torchrun and accelerate set it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Check whether this is the first of several training processes, which alone writes and reports."""
    return os.environ.get("RANK", "0") == "0"
