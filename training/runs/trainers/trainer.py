"""Make the trainer of a run: transformers' `Trainer`, or one of sentence-transformers' that are built on it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from transformers import PrinterCallback

from ..checkpoints import KEEP
from ..environment import device, processes
from . import trackers
from .callbacks import EvaluateSome, ProgressCallback, StopWhenWorse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..training_run import TrainingRun


EVALUATIONS = 8  # during a run, unless configured
_SHARE = 0.1  # of the time of a run that its evaluations may take
_STEP_COST = 3  # a step costs about as much as encoding its texts three times


def affordable(config: Any, trained: float, evaluated: float) -> int:
    """Return how many evaluations a run makes: as configured, or 2 to 8 in a tenth of its time, or none.

    The number follows from the texts, not from a clock, so that a run repeats. `EvaluateSome` lowers it where
    measuring the base, compared with the first steps, took longer than these texts suggest.

    :param trained: characters or tokens that are read in all steps.
    :param evaluated: the same, read in one evaluation.
    """
    if config.evaluations is not None:
        return int(config.evaluations)
    count = int(_SHARE * _STEP_COST * trained / max(evaluated, 1))
    return 0 if count < 2 else min(EVALUATIONS, count)


def make_trainer(
    run: TrainingRun[Any],
    trainer_class: Any,
    arguments_class: Any,
    options: Mapping[str, Any],
    *,
    texts: int,
    metric: str | None,
    evaluations: int = EVALUATIONS,
    **parts: Any,
) -> Any:
    """Return a trainer that reports to the run, saves its checkpoints there and stops early.

    :param trainer_class: a `ResumableTrainer`.
    :param arguments_class: its `TrainingArguments`.
    :param options: of these arguments, such as `schedule` returns.
    :param texts: per step.
    :param metric: name of the held-out measure; None where nothing is held out.
    :param evaluations: of the checkpoints, evenly spread.
    :param parts: model, data and loss, as `trainer_class` takes them.
    """
    callbacks: list[Any] = [
        ProgressCallback(run.progress, texts=texts, metric=metric, log=run.folder / "log.jsonl"),
    ]
    if metric:
        # A configured number is kept. Several processes have different clocks, but must decide alike.
        share = _SHARE if run.config.evaluations is None and processes() == 1 else None
        file = run.folder / "evaluations.json"
        callbacks.append(EvaluateSome(evaluations, file, share=share, cost=lambda: run.measuring_seconds))
    if metric and run.patience:
        callbacks.append(StopWhenWorse(run.patience))
    callbacks += trackers.callbacks(run.report_to, run.out)
    arguments = arguments_class(**_shared_arguments(run), **options)
    trainer = trainer_class(args=arguments, callbacks=callbacks, **parts)
    trainer.remove_callback(PrinterCallback)
    trainer.texts_per_step = texts
    return trainer


def _shared_arguments(run: TrainingRun[Any]) -> dict[str, Any]:
    """Return the training arguments that all runs share."""
    return {
        "output_dir": str(run.checkpoints),
        "report_to": "none",  # a tracker comes as a callback, with a folder that stays
        "run_name": run.out.name,
        "disable_tqdm": True,
        "save_total_limit": KEEP,
        "logging_nan_inf_filter": False,
        "use_cpu": device() == "cpu",
        "optim": "adamw_torch_fused" if device() in ("cpu", "cuda") else "adamw_torch",
        "dataloader_pin_memory": device() == "cuda",
    }


def schedule(run: TrainingRun[Any], batches: Any, metric: str | None) -> dict[str, Any]:
    """Return the training arguments that follow from the configuration and the number of batches.

    :param metric: name of the held-out measure; None where nothing is held out.
    """
    config = run.config
    return paced(run, count_steps(config, batches), batches.batch_size, config.learning_rate, metric)


def count_steps(config: Any, batches: Any) -> int:
    """Return the steps of a run with these batches in an epoch. The last step of an epoch may have fewer batches."""
    of_epoch = max(1, math.ceil(len(batches) / processes() / config.accumulate))
    steps: int = config.steps or math.ceil(of_epoch * config.epochs)
    return steps


def paced(
    run: TrainingRun[Any], steps: int, batch_size: int, learning_rate: float | None, metric: str | None
) -> dict[str, Any]:
    """Return the same for given numbers: when to log, save and evaluate, and how fast to learn."""
    config = run.config
    interval = max(1, steps // (config.evaluations or EVALUATIONS))
    options: dict[str, Any] = {
        "per_device_train_batch_size": batch_size,
        "gradient_accumulation_steps": config.accumulate,
        "max_steps": steps,
        "learning_rate": learning_rate,
        "warmup_steps": min(math.ceil(config.warmup * steps), steps - 1),  # the first step of a warm-up learns nothing
        "weight_decay": config.weight_decay,
        "bf16": run.bf16,
        "seed": config.seed,
        "logging_steps": max(1, min(50, steps // 50)),
        "save_strategy": "steps",
        "save_steps": interval,
        "eval_strategy": "steps" if metric else "no",
        "eval_steps": interval,
    }
    if metric:
        options |= {"metric_for_best_model": f"eval_{metric}", "load_best_model_at_end": True}
    return options
