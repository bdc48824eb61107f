"""Checkpoints that hold no pickles and survive being killed.

transformers' `Trainer` saves optimizer, schedule and random states with `torch.save`, forgets the weights that belong
to a loss, and takes a checkpoint that was cut short for a whole one. `resumable(Trainer)` gives the same trainer with
checkpoints in safetensors and JSON, of which only those that were written to their end are gone on from: a resumed run
takes the same steps as one that was never stopped.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_DONE = "whole.json"  # the last file of a checkpoint to be written
KEEP = 2  # checkpoints: the newest could be cut short
MARGIN = " margin"  # after a metric's name: half of its 95 % interval


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
