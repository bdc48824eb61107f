"""A transformers trainer that resumes exactly, from checkpoints without pickles.

transformers' `Trainer` saves optimizer, schedule and random states with `torch.save`, omits the weights of a loss, and
accepts incomplete checkpoints. `ResumableTrainer` writes safetensors and JSON, and resumes complete checkpoints only:
a resumed run takes the same steps as an uninterrupted one.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from safetensors.torch import load_model, save_model
from torch.nn import ModuleList
from transformers import TrainerState

from ..checkpoints import WORSE, mark_complete
from ..tensor_files import random_states, read_state, restore_random_states, write_state

_SECONDS = "seconds.json"  # file of the time until a checkpoint


class ResumableTrainer:
    """Mix-in for `transformers.Trainer`: put it first among the bases."""

    accelerator: Any
    args: Any
    lr_scheduler: Any
    model: Any
    optimizer: Any
    state: Any
    texts_per_step = 0
    _earlier = 0.0
    _start = 0.0

    def _trained(self) -> Any:
        """Return the module that is trained: the loss, which may hold more than the model, or all losses."""
        loss = getattr(self, "loss", None)
        if isinstance(loss, dict):
            return ModuleList(map(self.accelerator.unwrap_model, loss.values()))
        return self.accelerator.unwrap_model(self.model if loss is None else loss)

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Do nothing: Binocle writes its own card."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self._trained(), str(folder / "weights.safetensors"))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)  # type: ignore[misc]
        if self.args.should_save:
            checkpoint = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            (checkpoint / _SECONDS).write_text(json.dumps(self.seconds()), "utf-8")
            mark_complete(checkpoint)

    def start_clock(self, checkpoint: Path | None) -> None:
        """Count the seconds from now on, after those of earlier processes until a checkpoint."""
        file = checkpoint and checkpoint / _SECONDS
        self._earlier = float(json.loads(file.read_text("utf-8"))) if file and file.is_file() else 0.0
        self._start = time.monotonic()

    def seconds(self) -> float:
        """Return the seconds of the run, in all its processes."""
        return self._earlier + time.monotonic() - self._start

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:  # noqa: ARG002
        load_model(self._trained(), str(Path(resume_from_checkpoint) / "weights.safetensors"))

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Prefer the last checkpoint that is not worse than the best by more than chance.

        The learning rate falls to 0 at the end, and on a few dozen rows the best evaluation is a matter of luck.
        """
        is_best = bool(super()._determine_best_metric(metrics, trial))  # type: ignore[misc]
        name = self.args.metric_for_best_model
        if name and not metrics[f"{name}{WORSE}"]:
            self.state.best_global_step = self.state.global_step
        return is_best

    def _load_best_model(self) -> None:
        self._load_from_checkpoint(self.state.best_model_checkpoint)

    def recall(self, checkpoint: Path) -> None:
        """Restore the state of a finished run from its last checkpoint."""
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
        """Do nothing: bfloat16 needs no scaler, and float16 is not offered."""

    def _load_scaler(self, checkpoint: str | None) -> None:
        """Do nothing: none is saved."""

    def _save_rng_state(self, output_dir: str) -> None:
        write_state(Path(output_dir) / f"random-{self.args.process_index}", random_states())

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            restore_random_states(read_state(Path(checkpoint) / f"random-{self.args.process_index}"))
