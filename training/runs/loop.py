"""The loop that inverters are trained in.

Everything in a step follows from its number and the seed: which rows, which random draws, which rate. So a checkpoint
is weights, the optimizer's state and a number, and a resumed run takes the same steps as one that was never stopped.
"""

from __future__ import annotations

import ctypes
import json
import math
import shutil
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import environment
from .checkpoints import KEEP, last_checkpoint, mark_complete
from .progress import training_step
from .training_run import LoopResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ...core.progress import OnProgress

_PACE = 30  # steps from which the number that fits a time is reckoned
_FIRST = 5  # of these are slower, and left out
_TRIMMED = 5  # steps after which freed memory is given back


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long a module learns, and how fast."""

    learning_rate: float
    batch_size: int  # rows of a step, which `loss` takes
    steps: int | None = None
    seconds: float | None = None  # instead of steps: as many as fit, by the pace of the first
    seed: int = 0
    bf16: bool = False
    evaluations: int = 5
    rows: int = 0  # of which an epoch is made
    warmup: int = 50  # steps in which the rate rises
    passes: float | None = None  # over the rows, at most, where it is time that ends it


def run_loop(
    module: Any,
    loss: Callable[[int], Any],
    plan: Schedule,
    *,
    folder: Path | None = None,
    measure: Callable[[], float] | None = None,
    progress: OnProgress | None = None,
) -> LoopResult:
    """Train `module`: AdamW (Loshchilov and Hutter, arXiv:1711.05101), a short warm-up, then a rate falling to 0.

    :param loss: gives the loss of the step of that number, drawing only on it and on torch's generator.
    :param folder: for checkpoints, from the newest of which it goes on; none are kept unless given.
    :param measure: the held-out accuracy, taken after every so many steps.
    """
    import torch

    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    fused = environment.device() in ("cpu", "cuda")
    optimizer = torch.optim.AdamW(parameters, lr=plan.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=fused)
    run = _Run(module, optimizer, plan, folder)
    made = LoopResult(0, 0.0, 0.0, *run.resume())
    pace = _Pace(plan, run.step)
    window: list[float] = []
    value: float | None = None
    module.train()
    while run.steps is None or run.step < run.steps:
        torch.manual_seed(plan.seed * 1_000_003 + run.step)
        for group in optimizer.param_groups:
            group["lr"] = plan.learning_rate * rate(run.step, run.steps, plan.warmup)
        with torch.autocast(environment.device(), torch.bfloat16) if plan.bf16 else nullcontext():
            found = loss(run.step)
        optimizer.zero_grad(set_to_none=True)
        found.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        run.step += 1
        if run.step % _TRIMMED == 0:
            trim()
        window.append(float(found.detach()))
        run.steps = pace.steps(run.step) if run.steps is None else run.steps
        due = run.steps is not None and _due(run.step, run.steps, plan.evaluations)
        if due:
            with pace.paused():
                value = _measured(module, measure)
        if due or _due(run.step, run.steps or 500, 50):
            _log(made, run, plan, pace, window, value, progress)
            window = []
        if due:
            with pace.paused():
                run.save(made.history, pace.seconds())
    optimizer.zero_grad(set_to_none=True)  # else they stay as long as the module
    made.steps, made.seconds = run.step, run.seconds + pace.seconds()
    made.texts_per_second = pace.texts_per_second(run.step)
    module.eval()
    return made


def rate(step: int, steps: int | None, warmup: int = 50) -> float:
    """The share of the learning rate in a step: rising at first, falling in a line all the way."""
    return min(1.0, (step + 1) / max(1, warmup)) * (1.0 if steps is None else max(0.0, 1.0 - step / steps))


def trim() -> None:
    """Give freed memory back: batches of many sizes leave holes, which otherwise grow to gigabytes. Of glibc alone."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _due(step: int, steps: int, times: int) -> bool:
    """Whether a step is one of so many, evenly spaced, of which the last is one."""
    return step == steps or step % max(1, steps // times) == 0


def _measured(module: Any, measure: Callable[[], float] | None) -> float | None:
    import torch

    if measure is None:
        return None
    module.eval()
    with torch.no_grad():
        value = measure()
    module.train()
    return value


def _log(
    made: LoopResult,
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
    made.history.append(row | ({"eval_accuracy": value} if value is not None else {}))
    if progress and run.steps:
        per_second = pace.texts_per_second(run.step)
        left = (run.steps - run.step) * plan.batch_size / max(per_second, 1e-9)
        metric = None if value is None else ("accuracy", value)
        event = training_step(
            run.step, run.steps, left, epoch=epoch, loss=mean, metric=metric, texts_per_second=per_second
        )
        progress(event)


class _Pace:
    """Time spent in steps, and how many steps fit the time there is."""

    def __init__(self, plan: Schedule, first: int) -> None:
        self._plan, self._first = plan, first
        self._began = time.monotonic()
        self._warm = self._began
        self._out = 0.0

    def seconds(self) -> float:
        return time.monotonic() - self._began - self._out

    def texts_per_second(self, step: int) -> float:
        return (step - self._first) * self._plan.batch_size / max(self.seconds(), 1e-9)

    def steps(self, step: int) -> int | None:
        """The number that fits, once the pace is known."""
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

    def paused(self) -> Any:
        """Leave out what is done inside."""
        from contextlib import contextmanager

        @contextmanager
        def within() -> Any:
            began = time.monotonic()
            yield
            self._out += time.monotonic() - began

        return within()


class _Run:
    """The state of a run: the step it is at, of how many, and its checkpoints."""

    def __init__(self, module: Any, optimizer: Any, plan: Schedule, folder: Path | None) -> None:
        self._module, self._optimizer, self._folder = module, optimizer, folder
        self.step, self.steps = 0, plan.steps
        self.seconds = 0.0  # that earlier processes spent on the steps so far

    def resume(self) -> tuple[int | None, list[dict[str, Any]]]:
        """Go on from the newest checkpoint, if there is one."""
        from safetensors.torch import load_model

        from .tensor_files import read_state

        last = last_checkpoint(self._folder) if self._folder else None
        if last is None:
            return None, []
        load_model(self._module, str(last / "weights.safetensors"))
        self._optimizer.load_state_dict(read_state(last / "optimizer"))
        state = json.loads((last / "state.json").read_text("utf-8"))
        self.step, self.steps, self.seconds = state["step"], state["steps"], state.get("seconds", 0.0)
        return self.step, state["history"]

    def save(self, history: list[dict[str, Any]], seconds: float) -> None:
        """:param seconds: that this process has spent on steps."""
        from safetensors.torch import save_model

        from .tensor_files import write_state

        if self._folder is None:
            return
        place = self._folder / f"checkpoint-{self.step}"
        place.mkdir(parents=True, exist_ok=True)
        save_model(self._module, str(place / "weights.safetensors"))
        write_state(place / "optimizer", self._optimizer.state_dict())
        state = {"step": self.step, "steps": self.steps, "seconds": self.seconds + seconds, "history": history}
        (place / "state.json").write_text(json.dumps(state), "utf-8")
        mark_complete(place)
        for old in sorted(self._folder.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)
