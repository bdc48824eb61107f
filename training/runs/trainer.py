"""What every training run here shares: what it needs, its options, where it computes, and how many train together.

The loop is that of transformers' `Trainer`, and of sentence-transformers' on top of it.
"""

from __future__ import annotations

import math
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...core.device import device as device  # noqa: PLC0414 - with the rest of a training run
from ...core.device import has_bf16 as has_bf16  # noqa: PLC0414 - with the rest of a training run
from ...core.errors import MissingExtraError
from .checkpoints import KEEP

if TYPE_CHECKING:
    from pathlib import Path

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


def arguments(folder: Path, **options: Any) -> dict[str, Any]:
    """Options of transformers' TrainingArguments that all runs here have in common, and others on top."""
    return {
        "output_dir": str(folder),
        "report_to": "none",
        "disable_tqdm": True,
        "save_total_limit": KEEP,
        "logging_nan_inf_filter": False,
        "use_cpu": device() == "cpu",
        "optim": "adamw_torch_fused" if device() in ("cpu", "cuda") else "adamw_torch",
        "dataloader_pin_memory": device() == "cuda",
        "restore_callback_states_from_checkpoint": True,  # how much of its patience a run has used up
        **options,
    }


def schedule(config: Any, batches: Any, metric: str | None) -> dict[str, Any]:
    """Options that follow from a run's settings: steps, rate, and when to log, save and measure.

    :param metric: name of the held-out measure; None where nothing is held out.
    """
    steps = config.steps or max(1, math.ceil(len(batches) / processes() / config.accumulate * config.epochs))
    return paced(config, steps, batches.batch_size, config.learning_rate, metric)


def paced(config: Any, steps: int, batch_size: int, learning_rate: float, metric: str | None) -> dict[str, Any]:
    """The same where steps, batch and rate do not follow from the settings alone."""
    each = max(1, steps // config.evaluations)
    options: dict[str, Any] = {
        "per_device_train_batch_size": batch_size,
        "gradient_accumulation_steps": config.accumulate,
        "max_steps": steps,
        "learning_rate": learning_rate,
        "warmup_steps": math.ceil(config.warmup * steps),
        "weight_decay": config.weight_decay,
        "bf16": bf16(config),
        "seed": config.seed,
        "logging_steps": max(1, min(50, steps // 50)),
        "save_strategy": "steps",
        "save_steps": each,
        "eval_strategy": "steps" if metric else "no",
        "eval_steps": each,
    }
    if metric:
        options |= {"metric_for_best_model": f"eval_{metric}", "load_best_model_at_end": True}
    return options


def bf16(config: Any) -> bool:
    """Whether a run with these settings computes in bfloat16: where the machine does, unless they say."""
    return has_bf16() if config.bf16 is None else bool(config.bf16)


def attention(tokens: float) -> str:
    """By which attention texts of about so many tokens are learned from the fastest."""
    return "eager" if device() == "cpu" and tokens < _SHORT else "sdpa"


def quiet(trainer: Any) -> None:
    """Take off the callback that prints."""
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)


def processes() -> int:
    """How many train together, as torchrun and accelerate say."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Whether this process writes what is written once, when several train together."""
    return os.environ.get("RANK", "0") == "0"
