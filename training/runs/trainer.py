"""Options of transformers' `Trainer`, on which sentence-transformers' trainers are built."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .checkpoints import KEEP
from .environment import bf16, device, processes

if TYPE_CHECKING:
    from pathlib import Path


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


def quiet(trainer: Any) -> None:
    """Take off the callback that prints."""
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
