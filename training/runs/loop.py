"""A training loop for modules that transformers' trainer does not fit, such as inverters.

The number of a step and the seed determine everything in the step: rows, random draws and learning rate. So a
checkpoint is the weights, the optimizer's state and a number, and a resumed run takes the same steps as an
uninterrupted one. There are two exceptions. With a time limit, the learning rate follows the clock. And another number
of threads, or another processor, adds float32 numbers in another order, and rounds differently.
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
from .run_progress import check_loss, training_step
from .tensor_files import read_state, write_state
from .training_run import LoopResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import nn
    from torch.optim import Optimizer

    from ...core.progress import OnProgress

_DECAY = 0.01  # of weights, a step at a learning rate of 1
_ROUNDING = 1e-9
_LOGS = 50  # of a run
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
    module: nn.Module,
    loss: Callable[[int], Any],
    plan: Schedule,
    *,
    folder: Path | None = None,
    measure: Callable[[], float] | None = None,
    progress: OnProgress | None = None,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> LoopResult:
    """Train a module with AdamW (Loshchilov and Hutter, arXiv:1711.05101), a short warm-up and a linear decay to 0.

    The weights of matrices decay, those of biases and norms do not (as in arXiv:1810.04805's code).

    :raises InputError: when the loss is not finite.
    :param loss: returns the loss of the step of a number; its random draws come from torch's generator.
    :param folder: of the checkpoints; training resumes at the newest. Without it there are none.
    :param measure: returns the held-out measure.
    :param report: called with each new row of the history.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = _optimizer(parameters, plan.learning_rate)
    run = _Run(module, optimizer, folder)
    result = LoopResult(0, 0.0, 0.0, *run.resume())
    pace = _Pace(plan, run.step, run.seconds)
    evaluations, logs = _Turns(plan.evaluations, pace.share(run.step)), _Turns(_LOGS, pace.share(run.step))
    window: list[torch.Tensor] = []
    value: float | None = None
    module.train()
    share = pace.share(run.step)
    while share < 1 and not pace.is_over():
        window.append(_take_step(run.step, share, loss, optimizer, parameters, plan))
        run.step += 1
        if environment.device() == "cpu" and run.step % _TRIMMED == 0:
            trim()
        share = pace.share(run.step)
        due = evaluations.next(share)
        if due:
            with pace.paused():
                value = _measured(module, measure)
        if logs.next(share) or due:
            _log(result, run, plan, pace, window, value, progress)
            if report:
                report(result.history[-1])
            window = []
        if due:
            with pace.paused():
                run.save(result.history, pace.seconds())
    optimizer.zero_grad(set_to_none=True)  # free the gradients: the module would keep them
    result.planned = pace.steps(run.step)
    result.steps, result.seconds = run.step, run.seconds + pace.seconds()
    result.texts_per_second = pace.texts_per_second(run.step)
    module.eval()
    return result


def _take_step(
    step: int,
    share: float,
    loss: Callable[[int], Any],
    optimizer: Optimizer,
    parameters: list[nn.Parameter],
    plan: Schedule,
) -> torch.Tensor:
    """Take a step of the optimizer. Return the loss as a tensor: to read its number would wait for the device.

    :param share: of the run before the step.
    """
    _seed(plan.seed * 1_000_003 + step)
    for group in optimizer.param_groups:
        group["lr"] = plan.learning_rate * rate(step, share, plan.warmup)
    with torch.autocast(environment.device(), torch.bfloat16) if plan.bf16 else nullcontext():
        step_loss = loss(step)
    optimizer.zero_grad(set_to_none=True)
    step_loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    detached: torch.Tensor = step_loss.detach()
    return detached


def _optimizer(parameters: list[nn.Parameter], learning_rate: float) -> Optimizer:
    groups = [
        {"params": [parameter for parameter in parameters if parameter.ndim > 1], "weight_decay": _DECAY},
        {"params": [parameter for parameter in parameters if parameter.ndim < 2], "weight_decay": 0.0},
    ]
    fused = environment.device() in ("cpu", "cuda")
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.98), fused=fused)


def _seed(seed: int) -> None:
    """Seed the random draws of a step. `torch.manual_seed` formats stack traces for GPUs that are not there."""
    if environment.device() == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def rate(step: int, share: float, warmup: int = 50) -> float:
    """Return the share of the learning rate in a step: linear warm-up, then linear decay.

    :param share: of the run before the step.
    """
    return min(1.0, (step + 1) / max(1, warmup)) * max(0.0, 1.0 - share)


def trim() -> None:
    """Return freed memory to the system, on glibc: batches of many sizes otherwise fragment gigabytes."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


class _Turns:
    """Evenly spaced moments of a run, the last one at its end."""

    def __init__(self, times: int, share: float) -> None:
        """:param share: of the run that is over."""
        self._times, self._past = times, 0
        self.next(share)

    def next(self, share: float) -> bool:
        """Whether a moment has passed since the last call."""
        past, self._past = self._past, int(self._times * share + _ROUNDING)
        return self._past > past


def _measured(module: nn.Module, measure: Callable[[], float] | None) -> float | None:
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
    window: list[torch.Tensor],
    value: float | None,
    progress: OnProgress | None,
) -> None:
    mean = math.fsum(map(float, window)) / max(len(window), 1)
    check_loss(mean, plan.learning_rate, run.step)
    epoch = run.step * plan.batch_size / max(plan.rows, 1)
    row: dict[str, Any] = {"step": run.step, "epoch": round(epoch, 4), "loss": mean}
    result.history.append(row | ({f"eval_{plan.metric}": value} if value is not None else {}))
    if progress:
        per_second, steps = pace.texts_per_second(run.step), pace.steps(run.step)
        left = (steps - run.step) * plan.batch_size / max(per_second, 1e-9)
        metric = None if value is None else (plan.metric, value)
        event = training_step(run.step, steps, left, epoch=epoch, loss=mean, metric=metric, texts_per_second=per_second)
        progress(event)


class _Pace:
    """The time spent in steps, and the share of the run that is over: of its steps, or of its time.

    A run with a limit of time ends on time with a learning rate of 0, even if the machine becomes slower.
    """

    def __init__(self, plan: Schedule, first: int, seconds: float) -> None:
        """:param seconds: that earlier processes spent on the first steps."""
        self._plan, self._first, self._earlier = plan, first, seconds
        self._began = time.monotonic()
        self._out = 0.0

    def seconds(self) -> float:
        return time.monotonic() - self._began - self._out

    def is_over(self) -> bool:
        """Whether the limit of time is reached."""
        return self._plan.limit is not None and self.seconds() >= self._plan.limit

    def texts_per_second(self, step: int) -> float:
        return (step - self._first) * self._plan.batch_size / max(self.seconds(), 1e-9)

    def share(self, step: int) -> float:
        """Return the share of the run that is over, at most 1."""
        if self._plan.steps is not None or self._plan.seconds is None:
            return step / max(1, self._plan.steps or 0)
        timed = (self._earlier + self.seconds()) / self._plan.seconds if step else 0.0
        return min(1.0, max(timed, step / self._max_steps()))

    def steps(self, step: int) -> int:
        """Return the number of steps of the whole run, estimated where time limits it."""
        return self._plan.steps or max(step, round(step / max(self.share(step), 1e-9)))

    def _max_steps(self) -> float:
        """Return the steps of all passes that are allowed."""
        if self._plan.passes is None:
            return math.inf
        return math.ceil(self._plan.passes * self._plan.rows / self._plan.batch_size)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock inside a `with` block."""
        start = time.monotonic()
        yield
        self._out += time.monotonic() - start


class _Run:
    """The present step of a run, and its checkpoints."""

    def __init__(self, module: nn.Module, optimizer: Optimizer, folder: Path | None) -> None:
        self._module, self._optimizer, self._folder = module, optimizer, folder
        self.step = 0
        self.seconds = 0.0  # that earlier processes spent on the steps so far

    def resume(self) -> tuple[int | None, list[dict[str, Any]]]:
        """Load the newest checkpoint, if any; return its step and history."""
        last = last_checkpoint(self._folder) if self._folder else None
        if last is None:
            return None, []
        load_model(self._module, str(last / "weights.safetensors"))
        self._optimizer.load_state_dict(read_state(last / "optimizer"))
        state = json.loads((last / "state.json").read_text("utf-8"))
        self.step, self.seconds = state["step"], state.get("seconds", 0.0)
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
        state = {"step": self.step, "seconds": self.seconds + seconds, "history": history}
        (checkpoint / "state.json").write_text(json.dumps(state), "utf-8")
        mark_complete(checkpoint)
        for old in sorted(self._folder.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)
