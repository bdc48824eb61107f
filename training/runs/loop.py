"""A training loop for modules that transformers' trainer does not fit, such as inverters.

The number of a step and the seed determine everything in it: rows, random draws and learning rate. So a checkpoint is
the weights, the optimizer's state and a number, and a resumed run takes the same steps as an uninterrupted one.
"""

from __future__ import annotations

import ctypes
import json
import math
import shutil
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_model, save_model

from . import environment
from .checkpoints import KEEP, last_checkpoint, mark_complete
from .progress import training_step
from .tensor_files import read_state, write_state
from .training_run import LoopResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ...core.progress import OnProgress

_PACE = 30  # steps to measure the pace on, where time limits the run
_FIRST = 5  # of these, slower, are not measured
_DECAY = 0.01  # of weights, a step at a learning rate of 1
_TRIMMED = 5  # steps between returns of freed memory to the system


@dataclass(frozen=True, slots=True)
class Schedule:
    """The length of a run, and its learning rate."""

    learning_rate: float
    batch_size: int  # rows per step
    steps: int | None = None
    seconds: float | None = None  # instead of steps: as many as fit
    seed: int = 0
    bf16: bool = False
    evaluations: int = 5
    rows: int = 0  # of an epoch
    warmup: int = 50  # steps with a rising rate
    passes: float | None = None  # maximum of epochs, where time limits the run
    metric: str = "accuracy"  # name of the held-out measure
    limit: float | None = None  # seconds after which a run of a number of steps stops early


def run_loop(
    module: Any,
    loss: Callable[[int], Any],
    plan: Schedule,
    *,
    folder: Path | None = None,
    measure: Callable[[], float] | None = None,
    progress: OnProgress | None = None,
) -> LoopResult:
    """Train a module with AdamW (Loshchilov and Hutter, arXiv:1711.05101), a short warm-up and a linear decay to 0.

    The weights of matrices decay, those of biases and norms do not (as in arXiv:1810.04805's code).

    :param loss: returns the loss of the step of a number; its random draws come from torch's generator.
    :param folder: of the checkpoints; training resumes at the newest. Without it there are none.
    :param measure: returns the held-out measure.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = _optimizer(parameters, plan.learning_rate)
    run = _Run(module, optimizer, plan, folder)
    result = LoopResult(0, 0.0, 0.0, *run.resume())
    pace = _Pace(plan, run.step)
    window: list[float] = []
    value: float | None = None
    module.train()
    while (run.steps is None or run.step < run.steps) and not pace.is_over():
        torch.manual_seed(plan.seed * 1_000_003 + run.step)
        for group in optimizer.param_groups:
            group["lr"] = plan.learning_rate * rate(run.step, run.steps, plan.warmup)
        with torch.autocast(environment.device(), torch.bfloat16) if plan.bf16 else nullcontext():
            step_loss = loss(run.step)
        optimizer.zero_grad(set_to_none=True)
        step_loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        run.step += 1
        if run.step % _TRIMMED == 0:
            trim()
        window.append(float(step_loss.detach()))
        run.steps = pace.steps(run.step) if run.steps is None else run.steps
        due = run.steps is not None and _due(run.step, run.steps, plan.evaluations)
        if due:
            with pace.paused():
                value = _measured(module, measure)
        if due or _due(run.step, run.steps or 500, 50):
            _log(result, run, plan, pace, window, value, progress)
            window = []
        if due:
            with pace.paused():
                run.save(result.history, pace.seconds())
    optimizer.zero_grad(set_to_none=True)  # gradients would stay as long as the module
    result.planned = run.steps or run.step
    result.steps, result.seconds = run.step, run.seconds + pace.seconds()
    result.texts_per_second = pace.texts_per_second(run.step)
    module.eval()
    return result


def _optimizer(parameters: list[Any], learning_rate: float) -> Any:
    groups = [
        {"params": [parameter for parameter in parameters if parameter.ndim > 1], "weight_decay": _DECAY},
        {"params": [parameter for parameter in parameters if parameter.ndim < 2], "weight_decay": 0.0},
    ]
    fused = environment.device() in ("cpu", "cuda")
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.98), fused=fused)


def rate(step: int, steps: int | None, warmup: int = 50) -> float:
    """Return the share of the learning rate in a step: linear warm-up, then linear decay."""
    return min(1.0, (step + 1) / max(1, warmup)) * (1.0 if steps is None else max(0.0, 1.0 - step / steps))


def trim() -> None:
    """Return freed memory to the system, on glibc: batches of many sizes otherwise fragment gigabytes."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _due(step: int, steps: int, times: int) -> bool:
    """Check whether a step is one of `times` evenly spaced steps, or the last."""
    return step == steps or step % max(1, steps // times) == 0


def _measured(module: Any, measure: Callable[[], float] | None) -> float | None:
    if measure is None:
        return None
    module.eval()
    with torch.no_grad():
        value = measure()
    module.train()
    return value


def _log(
    result: LoopResult,
    run: _Run,
    plan: Schedule,
    pace: _Pace,
    window: list[float],
    value: float | None,
    progress: OnProgress | None,
) -> None:
    mean = math.fsum(window) / max(len(window), 1)
    epoch = run.step * plan.batch_size / max(plan.rows, 1)
    row: dict[str, Any] = {"step": run.step, "epoch": round(epoch, 4), "loss": mean}
    result.history.append(row | ({f"eval_{plan.metric}": value} if value is not None else {}))
    if progress and run.steps:
        per_second = pace.texts_per_second(run.step)
        left = (run.steps - run.step) * plan.batch_size / max(per_second, 1e-9)
        metric = None if value is None else (plan.metric, value)
        event = training_step(
            run.step, run.steps, left, epoch=epoch, loss=mean, metric=metric, texts_per_second=per_second
        )
        progress(event)


class _Pace:
    """The time spent in steps, and the number of steps that fit into the limit."""

    def __init__(self, plan: Schedule, first: int) -> None:
        self._plan, self._first = plan, first
        self._began = time.monotonic()
        self._warm = self._began
        self._out = 0.0

    def seconds(self) -> float:
        return time.monotonic() - self._began - self._out

    def is_over(self) -> bool:
        """Whether the limit of time is reached."""
        return self._plan.limit is not None and self.seconds() >= self._plan.limit

    def texts_per_second(self, step: int) -> float:
        return (step - self._first) * self._plan.batch_size / max(self.seconds(), 1e-9)

    def steps(self, step: int) -> int | None:
        """Return the number of steps that fit, or None while the pace is unknown."""
        if self._plan.seconds is None:
            return self._plan.steps
        if step == _FIRST:
            self._warm = time.monotonic()
        if step < _PACE and self.seconds() < self._plan.seconds:
            return None
        each = (time.monotonic() - self._warm) / max(1, step - _FIRST)
        fitting = step + max(1, int((self._plan.seconds - self.seconds()) / max(each, 1e-9)))
        if self._plan.passes is None:
            return fitting
        return max(step, min(fitting, math.ceil(self._plan.passes * self._plan.rows / self._plan.batch_size)))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock inside a `with` block."""
        start = time.monotonic()
        yield
        self._out += time.monotonic() - start


class _Run:
    """The present step of a run, the number of its steps, and its checkpoints."""

    def __init__(self, module: Any, optimizer: Any, plan: Schedule, folder: Path | None) -> None:
        self._module, self._optimizer, self._folder = module, optimizer, folder
        self.step, self.steps = 0, plan.steps
        self.seconds = 0.0  # that earlier processes spent on the steps so far

    def resume(self) -> tuple[int | None, list[dict[str, Any]]]:
        """Load the newest checkpoint, if any; return its step and history."""
        last = last_checkpoint(self._folder) if self._folder else None
        if last is None:
            return None, []
        load_model(self._module, str(last / "weights.safetensors"))
        self._optimizer.load_state_dict(read_state(last / "optimizer"))
        state = json.loads((last / "state.json").read_text("utf-8"))
        self.step, self.steps, self.seconds = state["step"], state["steps"], state.get("seconds", 0.0)
        return self.step, state["history"]

    def save(self, history: list[dict[str, Any]], seconds: float) -> None:
        """Write a checkpoint.

        :param seconds: that this process has spent on steps.
        """
        if self._folder is None:
            return
        checkpoint = self._folder / f"checkpoint-{self.step}"
        checkpoint.mkdir(parents=True, exist_ok=True)
        save_model(self._module, str(checkpoint / "weights.safetensors"))
        write_state(checkpoint / "optimizer", self._optimizer.state_dict())
        state = {"step": self.step, "steps": self.steps, "seconds": self.seconds + seconds, "history": history}
        (checkpoint / "state.json").write_text(json.dumps(state), "utf-8")
        mark_complete(checkpoint)
        for old in sorted(self._folder.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)
