"""One training run, from its first call to the finished model folder."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from dataclasses import Field, asdict, dataclass, field
from pathlib import Path
from threading import Thread, current_thread
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from ...core.checks import with_python_numbers
from ...core.errors import BinocleError, InputError, LockedError, tensor_errors
from ...core.files import json_or_make, write_atomic
from ...core.progress import Progress, ignore
from . import model_card
from .checkpoints import has_stopped, last_checkpoint, worse_evaluations
from .environment import device, has_bf16, is_main_process
from .model_card import Card
from .run_folder import ORDER, SETTINGS, check_order, check_out, check_outside, finished_of, folder_of
from .trainers.trackers import TENSORBOARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from filelock import FileLock

    from ...core.progress import OnProgress


class Config(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


ConfigT = TypeVar("ConfigT", bound=Config)
_THREADS: dict[Path, Thread] = {}  # of this process that train, by the file of their lock
_SECONDS = "measuring.json"  # file of the time that measuring the base took


@dataclass(slots=True)
class LoopResult:
    """The steps that were run, and their cost."""

    steps: int  # of the whole run, including earlier processes
    seconds: float  # of the loop, including earlier processes
    texts_per_second: float  # in this process
    resumed_from: int | None = None  # step
    history: list[dict[str, Any]] = field(default_factory=list)
    planned: int = 0  # steps, unless the run stops early
    best_step: int | None = None  # step of the weights that were kept; None: the last

    @property
    def notes(self) -> list[str]:
        """Sentences for people: why the run ended before its last step, and which weights it kept."""
        notes = []
        if self.steps < self.planned:
            count = worse_evaluations(self.history)
            evaluations = "evaluation was" if count == 1 else f"{count} evaluations were"
            reason = f"its last {evaluations} worse than the best by more than chance" if count else "the time was over"
            notes.append(f"stopped early, after step {self.steps:,} of {self.planned:,}: {reason}")
        if self.best_step is not None and self.best_step < self.steps:
            notes.append(f"the weights come from step {self.best_step:,}, since later ones were worse")
        return notes


class TrainingRun(Generic[ConfigT]):
    """The folder, base model, configuration and progress of one training run. Every trainer uses it alike::

        run = TrainingRun(out, base, config, progress)
        run.open({"data": name, "files": files_of(data)})  # start, or resume the same run
        with run.discard_on_error():  # check the data and the settings
            ...
        with run.release_on_error():
            run.report("loading the model")
            start_weights.share(run, module)  # a resumed run begins with the same random head
            before = run.measure_once(measure)
            result = run.train(trainer)  # or `run_loop(..., folder=run.checkpoints, progress=run.progress)`
            folder = run.new_model_folder()  # write the model's files here
            run.finish(run.card(...), result.history, metric)  # write its card, and move all of it to `out`

    A killed run continues when the same calls are made again: it resumes at its last checkpoint and takes the same
    steps as an uninterrupted run. One process at a time trains in a folder, in one thread. `run` holds the following
    until it is finished:

    - `out`, `base`, `config`, `progress`: as given. Only one of several training processes reports progress.
    - `settings`: everything that the result depends on, as JSON.
    - `folder`: for files that a resumed run reads again, such as prepared data. `checkpoints` is below it.
    """

    def __init__(self, out: str | Path, base: str, config: ConfigT, progress: OnProgress | None = None) -> None:
        """
        :param out: folder of the finished model.
        :param base: name or folder of the model that training starts from.
        :param config: a dataclass. Its `bf16`, `patience` and `report_to` are read, where it has them.
        """
        self.out, self.base, self.config = Path(out), base, with_python_numbers(config)
        self.progress: OnProgress = progress if progress is not None and is_main_process() else ignore
        self.settings: dict[str, Any] = {}
        self.folder = folder_of(self.out)
        self.checkpoints = self.folder / "checkpoints"
        self._model_folder = self.folder / "model"  # moved to `out` at the end
        self._process_lock: FileLock | None = None  # while this process trains

    @property
    def bf16(self) -> bool:
        """Whether to compute in bfloat16: as configured, or else if the hardware supports it."""
        configured = getattr(self.config, "bf16", None)
        return has_bf16() if configured is None else bool(configured)

    @property
    def patience(self) -> int | None:
        """The number of evaluations in a row, worse by more than chance, that stops the run; None: it never stops."""
        return getattr(self.config, "patience", None) or None

    @property
    def report_to(self) -> str | None:
        """The tracker that follows the run, if one is configured."""
        return getattr(self.config, "report_to", None)

    def report(self, stage: str, message: str = "") -> None:
        """Report that a stage begins."""
        self.progress(Progress(stage, message=message))

    # The folder

    def open(self, settings: Mapping[str, Any], *, kind: str = "model") -> None:
        """Create the folder, or resume the run with the same settings in it.

        :param settings: everything else that the result depends on, such as the data.
        :param kind: what `out` will hold, for messages.
        :raises InputError: if the folder holds something else.
        :raises LockedError: if another process trains in it.
        """
        check_out(self.out, kind)
        check_outside(self.out, self.base)
        facts = {"order": ORDER, "base": self.base, "config": asdict(self.config), **settings}
        self.settings = json.loads(json.dumps(facts))
        self.folder.mkdir(parents=True, exist_ok=True)
        if is_main_process():
            self._lock_process()
        with self.release_on_error():
            self._compare_settings()

    def _lock_process(self) -> None:
        """Lock the folder until the run is finished, fails or dies. The same thread may open it again."""
        from filelock import FileLock, Timeout

        self._release_process()
        file = self.folder.resolve() / "process.lock"
        thread = current_thread()
        owner = _THREADS.setdefault(file, thread)
        if owner is not thread and owner.is_alive():
            raise self._locked("thread")
        _THREADS[file] = thread
        lock = FileLock(file, timeout=0, thread_local=False, is_singleton=True)
        try:
            lock.acquire()
        except Timeout:
            del _THREADS[file]
            raise self._locked("process") from None
        self._process_lock = lock

    def _locked(self, kind: str) -> LockedError:
        return LockedError(f"another {kind} trains in {self.out}: wait until it has finished, or give another folder")

    def _release_process(self) -> None:
        if self._process_lock is not None:
            self._process_lock.release()
            if not self._process_lock.is_locked:
                _THREADS.pop(Path(self._process_lock.lock_file), None)
            self._process_lock = None

    def _compare_settings(self) -> None:
        """Compare the settings with those of an unfinished run, or write them."""
        file = self.folder / SETTINGS
        if file.is_file():
            earlier = json.loads(file.read_text("utf-8"))
            check_order(earlier, self.out)
            if earlier != self.settings:
                only_files = earlier | {"files": self.settings.get("files")} == self.settings
                difference = "on data that changed since then" if only_files else "with other settings"
                raise InputError(f"{self.out} holds an unfinished run {difference}: remove it or give another folder")
        elif is_main_process():
            write_atomic(file, json.dumps(self.settings))

    def lock(self) -> FileLock:
        """Return a lock for work that only one of several training processes does."""
        from filelock import FileLock

        return FileLock(self.folder / "lock")

    def discard(self) -> None:
        """Delete the folder, and the files of a tracker beside it, unless there is a checkpoint."""
        if last_checkpoint(self.checkpoints) is None:
            for folder in (self.folder, self.out / TENSORBOARD):
                shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # it is not empty, or another process has removed it
                self.out.rmdir()
            self._release_process()

    @contextlib.contextmanager
    def discard_on_error(self) -> Iterator[None]:
        """Discard the run if its data or settings are wrong, or the disk is full: a later call can start anew."""
        with self.release_on_error():
            try:
                yield
            except Exception as error:
                if isinstance(error, (BinocleError, OSError, *tensor_errors())):
                    self.discard()
                raise

    @contextlib.contextmanager
    def release_on_error(self) -> Iterator[None]:
        """After an error let other processes resume the run, though this one may live on."""
        try:
            yield
        except BaseException:
            self._release_process()
            raise

    # The steps

    def measure_once(self, measure: Callable[[], Any]) -> Any:
        """Measure the base model as JSON. A resumed run and the other processes read the result."""

        def timed() -> Any:
            start = time.monotonic()
            measures = measure()
            write_atomic(self.folder / _SECONDS, json.dumps(time.monotonic() - start))
            return measures

        with self.lock():
            return json_or_make(self.folder / "before.json", timed)

    @property
    def measuring_seconds(self) -> float | None:
        """The seconds that the measure of the base took, also in an earlier process of the run; None: not measured."""
        file = self.folder / _SECONDS
        return float(json.loads(file.read_text("utf-8"))) if file.is_file() else None

    def train(self, trainer: Any) -> LoopResult:
        """Run the remaining steps of a transformers trainer; none if the run had finished or stopped early.

        :param trainer: of `trainer.make_trainer`.
        """
        checkpoint = last_checkpoint(self.checkpoints)
        trainer.start_clock(checkpoint)
        start = time.monotonic()
        if checkpoint is not None and has_stopped(checkpoint, self.patience):
            trainer.recall(checkpoint)
        else:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        seconds = time.monotonic() - start
        first = int(checkpoint.name.rsplit("-", 1)[1]) if checkpoint else None
        state = trainer.state
        rate = (state.global_step - (first or 0)) * trainer.texts_per_step / max(seconds, 1e-9)
        history = list(state.log_history)
        best = Path(state.best_model_checkpoint or "")
        best_step = int(best.name.rsplit("-", 1)[1]) if best.name else None
        return LoopResult(state.global_step, trainer.seconds(), rate, first, history, state.max_steps, best_step)

    # The model

    def new_model_folder(self) -> Path:
        """Return the path for the model's files, with nothing there."""
        shutil.rmtree(self._model_folder, ignore_errors=True)
        return self._model_folder

    def card(
        self,
        kind: str,
        objective: str,
        data: dict[str, Any],
        measures: list[dict[str, Any]],
        loop: LoopResult,
        fingerprint: str,
    ) -> Card:
        """Return the facts of the model card: the arguments, and the facts of the run.

        :param measures: name, value, interval, rows and, where it says more, `when` and `on`.
        """
        return Card(
            kind=kind,
            base=self.base,
            objective=objective,
            data=data,
            config=asdict(self.config),
            measures=measures,
            seconds=loop.seconds,
            steps=loop.steps,
            texts_per_second=loop.texts_per_second,
            fingerprint=fingerprint,
            device=device(),
            bf16=self.bf16,
            notes=tuple(loop.notes),
            planned=loop.planned,
            kept_step=loop.best_step,
        )

    def finish(self, card: Card, history: list[dict[str, Any]], metric: str | None) -> None:
        """Write card, log and curves beside the model, move all of it to `out`, and delete the run's folder."""
        if self._model_folder.is_dir():
            model_card.finish(self._model_folder, self.out, card, history, metric)
        removed = finished_of(self.out)  # a half-deleted folder would look like a run to resume
        shutil.rmtree(removed, ignore_errors=True)
        self.folder.replace(removed)
        shutil.rmtree(removed, ignore_errors=True)  # of the rest, the next call tidies
        self._release_process()
