"""What every training run here shares: a trainer whose checkpoints hold no pickles and survive being killed.

The loop is that of transformers' `Trainer`, and of sentence-transformers' on top of it. Theirs saves optimizer,
schedule and random states with `torch.save`, forgets the weights that belong to a loss, and takes a checkpoint that
was cut short for a whole one. `resumable(Trainer)` gives the same trainer with checkpoints in safetensors and JSON,
of which only those that were written to their end are gone on from: a resumed run takes the same steps as one that
was never stopped.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..indexes.errors import InputError, MissingExtraError
from ..retriever.hardware import device as device  # noqa: PLC0414 - training asks for both here
from ..retriever.hardware import has_bf16 as has_bf16  # noqa: PLC0414
from .progress import Update
from .whole import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Progress = Callable[[Update], None]

_DONE = "whole.json"  # the last file of a checkpoint to be written
_SHORT = 192  # tokens below which plain attention trains faster on CPU than the fused kernel
KEEP = 2  # checkpoints: the newest could be cut short
MARGIN = " margin"  # after a metric's name: half of its 95 % interval


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


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint below a run's folder that was written to its end."""
    whole = [path.parent for path in folder.glob(f"checkpoint-*/{_DONE}") if _is_whole(path)]
    return max(whole, key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)


def seal(checkpoint: Path) -> None:
    """Write, as its last file, that a checkpoint is whole."""
    names = sorted(path.name for path in checkpoint.iterdir() if path.is_file())
    (checkpoint / _DONE).write_text(json.dumps({"files": names}), "utf-8")


def _is_whole(done: Path) -> bool:
    """Whether every file is there: an old checkpoint may have been in deletion when its run was killed."""
    try:
        names = json.loads(done.read_text("utf-8"))["files"]
    except (OSError, ValueError, KeyError):
        return False
    return all((done.parent / name).is_file() for name in names)


class Resumable:
    """What makes the checkpoints of a `transformers.Trainer` safetensors and JSON, and complete."""

    accelerator: Any
    args: Any
    lr_scheduler: Any
    model: Any
    optimizer: Any
    state: Any

    def _trained(self) -> Any:
        """The module whose parameters are learned: the loss, where that holds the model and more."""
        loss = getattr(self, "loss", None)
        model = self.model if loss is None or isinstance(loss, dict) else loss
        return self.accelerator.unwrap_model(model)

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Binocle writes the card, of what was measured."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        from safetensors.torch import save_model

        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self._trained(), str(folder / "weights.safetensors"))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)  # type: ignore[misc]
        if self.args.should_save:
            seal(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:  # noqa: ARG002
        from safetensors.torch import load_model

        load_model(self._trained(), str(Path(resume_from_checkpoint) / "weights.safetensors"))

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Of checkpoints that the held-out figure does not tell apart, by its 95 % interval, the last is the best.

        The learning rate falls to nothing at the end, and of a few dozen rows the best moment is a matter of luck.
        """
        is_best = bool(super()._determine_best_metric(metrics, trial))  # type: ignore[misc]
        name = self.args.metric_for_best_model
        if name and metrics[name] >= self.state.best_metric - metrics.get(f"{name}{MARGIN}", -math.inf):
            self.state.best_global_step = self.state.global_step
        return is_best

    def _load_best_model(self) -> None:
        self._load_from_checkpoint(self.state.best_model_checkpoint)

    def recall(self, checkpoint: Path) -> None:
        """Be as at the end of a run whose last checkpoint this is."""
        from transformers import TrainerState

        self.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        self._load_from_checkpoint(self.state.best_model_checkpoint or str(checkpoint))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.args.should_save:
            write_state(Path(output_dir) / "optimizer", self.optimizer.state_dict())
            schedule = self.lr_scheduler.state_dict()
            (Path(output_dir) / "schedule.json").write_text(json.dumps(schedule), "utf-8")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            self.optimizer.load_state_dict(read_state(Path(checkpoint) / "optimizer"))
            schedule = json.loads((Path(checkpoint) / "schedule.json").read_text("utf-8"))
            self.lr_scheduler.load_state_dict(schedule)

    def _save_scaler(self, output_dir: str) -> None:
        """bfloat16 needs no scaler, and float16 is not offered."""

    def _load_scaler(self, checkpoint: str | None) -> None:
        """As there is none."""

    def _save_rng_state(self, output_dir: str) -> None:
        write_state(Path(output_dir) / f"random-{self.args.process_index}", _random_states())

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            _restore_random(read_state(Path(checkpoint) / f"random-{self.args.process_index}"))


def resumable(trainer: type[Any]) -> type[Any]:
    """The same trainer with such checkpoints."""
    return type("Resumable", (Resumable, trainer), {})


def write_state(stem: Path, state: Mapping[str, Any]) -> None:
    """Nested mappings and lists of numbers, texts and tensors: the tensors to .safetensors, the rest to .json."""
    from safetensors.torch import save_file

    tensors: dict[str, Any] = {}
    stem.parent.mkdir(parents=True, exist_ok=True)
    rest = json.dumps(_apart(state, "", tensors))
    save_file(tensors, str(stem.with_suffix(".safetensors")))
    stem.with_suffix(".json").write_text(rest, "utf-8")


def read_state(stem: Path) -> Any:
    from safetensors.torch import load_file

    tensors = load_file(str(stem.with_suffix(".safetensors")))
    return _together(json.loads(stem.with_suffix(".json").read_text("utf-8")), tensors)


def _apart(value: Any, name: str, tensors: dict[str, Any]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().clone().contiguous()
        return {"tensor": name}
    if isinstance(value, dict):  # pairs, since JSON would turn the numbers of an optimizer's states into texts
        return {"items": [[key, _apart(item, f"{name}.{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_apart(item, f"{name}.{place}", tensors) for place, item in enumerate(value)]
    return value


def _together(value: Any, tensors: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_together(item, tensors) for item in value]
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _together(item, tensors) for key, item in value["items"]}
    return value


def _random_states() -> dict[str, Any]:
    import numpy as np
    import torch

    name, keys, *numbers = np.random.get_state()  # noqa: NPY002 - the libraries below draw from it
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *numbers],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def _restore_random(states: Mapping[str, Any]) -> None:
    import numpy as np
    import torch

    version, numbers, spare = states["python"]
    random.setstate((version, tuple(numbers), spare))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])


def watcher(progress: Progress | None, *, texts: int, metric: str | None, log: Path | None = None) -> Any:
    """A trainer callback that tells `progress` and keeps the log.

    :param texts: encoded in one step.
    :param metric: name of the held-out measure, without "eval_".
    :param log: where the run's history is kept, one JSON object a line.
    """
    from transformers import TrainerCallback

    class Watcher(TrainerCallback):
        def __init__(self) -> None:
            self.began, self.first = time.monotonic(), 0
            self.metric: float | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            self.began, self.first = time.monotonic(), state.global_step

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
            _tell_epoch(given.get("train_dataloader"), int((state.epoch or 0.0) + 1e-6))

        def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
            logs = given.get("logs") or {}
            _check_loss(logs, args.learning_rate, state.global_step)
            if f"eval_{metric}" in logs:
                self.metric = float(logs[f"eval_{metric}"])
            if not state.is_world_process_zero:
                return
            if log:
                write_log(log, state.log_history)
            if progress and ("loss" in logs or f"eval_{metric}" in logs):
                progress(self._update(state, logs.get("loss")))

        def _update(self, state: Any, loss: float | None) -> Update:
            done = state.global_step - self.first
            seconds = max(time.monotonic() - self.began, 1e-9)
            left = (state.max_steps - state.global_step) * seconds / done if done else 0.0
            return Update(
                step=state.global_step,
                steps=state.max_steps,
                epoch=state.epoch or 0.0,
                loss=loss,
                metric_name=metric,
                metric=self.metric,
                texts_per_second=done * texts / seconds,
                seconds_left=left,
            )

    return Watcher()


def _check_loss(logs: Mapping[str, Any], rate: float, step: int) -> None:
    """:raises InputError: when the loss is no number, nor will the weights be from there on."""
    if not all(math.isfinite(logs.get(name, 0.0)) for name in ("loss", "train_loss")):  # so far, and at the end of all
        raise InputError(
            f"the loss is no number any more at step {step}: give a learning rate below {rate:g}, and another folder "
            "for the model"
        )


def _tell_epoch(loader: Any, epoch: int) -> None:
    """Tell the order of rows which epoch begins: a resumed run of several processes hides it from accelerate."""
    inner = getattr(loader, "batch_sampler", None)
    while inner is not None:
        if hasattr(inner, "set_epoch"):
            inner.set_epoch(epoch)
        inner = getattr(inner, "batch_sampler", None) or getattr(inner, "sampler", None)


def quiet(trainer: Any) -> None:
    """Take off the callback that prints."""
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)


def write_log(file: Path, history: list[dict[str, Any]]) -> None:
    """The whole history: a resumed run then has each step once."""
    write_whole(file, "".join(json.dumps(_plain(row)) + "\n" for row in history))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}


def processes() -> int:
    """How many train together, as torchrun and accelerate say."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Whether this process writes what is written once, when several train together."""
    return os.environ.get("RANK", "0") == "0"
