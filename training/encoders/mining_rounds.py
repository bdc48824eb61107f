"""Train on mined hard negatives, in rounds.

The first round mines with the base and trains. The next round mines with the trained encoder, for which the earlier
negatives are no longer hard. ANCE (Xiong et al. 2021, arXiv:2007.00808) does the same, but rebuilds its index during
training.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.checks import with_python_numbers
from ...core.errors import InputError, ModelNotFoundError
from ...core.files import check_name, write_atomic
from ...core.progress import Progress, ignore, within
from ...core.units import count_of
from ...retriever.models.model_files import DEFAULT_MODEL, find
from ..data import dataset as rows
from ..data.dataset import Shape
from ..mining.mine import mine
from ..runs import environment
from ..runs.run_folder import ORDER, SETTINGS, check_order, files_of, finished_of, folder_of, refuse_finished
from .config import EncoderConfig, check, check_whole
from .objectives import objectives
from .train import train_encoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...core.progress import OnProgress
    from .result import TrainingResult

_RULES: dict[str, Any] = {"relative_margin": 0.05}  # NV-Retriever's, arXiv:2407.15831


def train_rounds(
    data: str | Path,
    out: str | Path,
    *,
    negatives: int,
    rounds: int = 1,
    base: str | None = None,
    config: EncoderConfig | None = None,
    split: str = "train",
    corpus: str | Path | None = None,
    progress: OnProgress | None = None,
) -> TrainingResult:
    """Train on pairs in rounds, each with newly mined negatives; the rounds share the epochs.

    If the process is killed, the same call resumes in the same round.

    :param negatives: mined for each query.
    :param corpus: source of the negatives, for `mining.mine`; by default the collection, or the positives.
    :raises InputError: before anything is mined, for settings that do not fit.
    """
    environment.require("training")
    config, out, on_progress = with_python_numbers(config or EncoderConfig()), Path(out), progress or ignore
    current = base or DEFAULT_MODEL
    _check_settings(negatives, rounds, config, current)
    options: dict[str, Any] = {"split": split, "corpus": corpus, "negatives": negatives}
    source: dict[str, Any] = {"data": str(data), "split": split, "corpus": corpus and str(corpus), "base": current}
    source |= {"files": files_of(data, corpus, leave_out=out), "order": ORDER}
    work = _work_folder(out, source | {"negatives": negatives, "rounds": rounds, "config": asdict(config)})
    share = replace(config, epochs=config.epochs / rounds, steps=config.steps and max(1, config.steps // rounds))
    origin = current, _facts(data, negatives, rounds)
    held_out: set[tuple[int, int]] | None = None
    for number in range(1, rounds + 1):
        mined, folder = work / f"mined-{number}.jsonl", out if number == rounds else work / f"round-{number}"
        try:
            if held_out is None:
                held_out = _held_out(data, split, config, work / "pairs")
            if not mined.is_file():
                stage = f"mining negatives, round {number} of {rounds}"
                _mine(data, mined, stage, on_progress, model=current, **options)
            if folder_of(folder).exists() or not (folder / "binocle.json").is_file():
                learned, development = _parts(mined, held_out)
                part = share if development else replace(share, held_out=0.0)
                settings: dict[str, Any] = {"config": part, "development": development, "progress": progress}
                result = train_encoder(learned, folder, base=current, origin=origin, **settings)
        except (InputError, ModelNotFoundError):
            if number == 1 and not folder_of(folder).exists():  # there is no checkpoint to resume
                shutil.rmtree(work)
            raise
        current = str(folder)
    (work / SETTINGS).unlink()  # first: a half-deleted folder would look like a run to resume
    shutil.rmtree(work)
    return result


def _work_folder(out: Path, settings: dict[str, Any]) -> Path:
    """Return the folder of the rounds, beside `out`, after checking that it is new or of a run with these settings."""
    whole = out.resolve()
    work = whole.with_name(f".{whole.name}-rounds")
    _check_out(out, work)
    _check_same(work, settings)
    return work


def _check_settings(negatives: int, rounds: int, config: EncoderConfig, base: str) -> None:
    if negatives < 1 or rounds < 1:
        raise InputError(f"negatives and rounds are whole numbers from 1, not {negatives} and {rounds}")
    check(config)
    _check_objective(config, negatives)
    check_whole(base)
    for model in filter(None, (base, config.guide)):
        find(model)


def _check_objective(config: EncoderConfig, negatives: int) -> None:
    objective = objectives.choose(config.objective, Shape.TRIPLETS, guide=config.guide is not None)
    objectives.check_uses(config, objective)  # triplets will be mined
    if objective == "guided-ranking" and negatives > 1:
        raise InputError(f"the objective {objective} takes one negative for each pair, not {negatives}")


def _check_out(out: Path, work: Path) -> None:
    """Check that `out` can take the model: it is empty, or the folder of this run before it was killed."""
    check_name(work)
    if work.is_dir() and (out / "binocle.json").is_file() and not folder_of(out).exists():
        refuse_finished(out, "model", work, finished_of(out))
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: expected a folder for the model")
    if out.exists() and any(out.iterdir()) and not (work.exists() and folder_of(out).exists()):
        raise InputError(f"{out} is not empty: give another folder for the model")


def _mine(
    data: str | Path, mined: Path, stage: str, on_progress: OnProgress, *, negatives: int, **options: Any
) -> None:
    """Mine the negatives of a round into a file, and report the pairs that are left out."""
    on_progress(Progress(stage))
    progress = within(on_progress, f"{stage}: ")
    report = mine(data, mined, negatives=negatives, progress=progress, **options, **_RULES)
    if left_out := report.pairs - report.rows:
        line = (
            f"{left_out:,} of {count_of(report.pairs, 'pair')} left out: fewer than {count_of(negatives, 'negative')} "
            f"for {count_of(report.short, 'query')}, none for {report.none:,} of them"
        )
        on_progress(Progress(line))


def _facts(data: Any, negatives: int, rounds: int) -> dict[str, Any]:
    """Return the facts of the data for the model card."""
    name = rows.source_name(data)
    source = {"source": Path(name).resolve().name if Path(name).exists() else name}
    how = f"{negatives} for each pair, mined in {count_of(rounds, 'round')} with the encoder of that round"
    margin = f"at least {_RULES['relative_margin']:.0%} below the positive's score"
    return source | {"negatives": f"{how}, {margin}; pairs with fewer are left out"}


def _held_out(data: str | Path, split: str, config: EncoderConfig, folder: Path) -> set[tuple[int, int]]:
    """Return the keys of the pairs held out of every round. Choosing them in each round would give different ones."""
    pairs = rows.prepare(data, folder, split=split, held_out=config.held_out, seed=config.seed)
    if pairs.texts[:2] != ("query", "positive"):  # mining will refuse them
        return set()
    return set(map(_key, rows.take(pairs.table(), pairs.held_out()).to_pylist()))


def _key(row: Mapping[str, Any]) -> tuple[int, int]:
    return rows.hash_of(row["query"]), rows.hash_of(row["positive"])


def _parts(mined: Path, held_out: set[tuple[int, int]]) -> tuple[Path, Path | None]:
    """Split the mined rows into a file to learn from and one to hold out, or None if that would be empty."""
    learned, apart = mined.with_stem(f"{mined.stem}-learned"), mined.with_stem(f"{mined.stem}-held-out")
    if not learned.is_file():  # a resumed run expects unchanged files
        aside = learned.with_suffix(".part")
        with (
            mined.open(encoding="utf-8") as lines,
            aside.open("w", encoding="utf-8") as training,
            apart.open("w", encoding="utf-8") as development,
        ):
            for line in lines:
                (development if _key(json.loads(line)) in held_out else training).write(line)
        aside.replace(learned)
    return learned, apart if apart.stat().st_size else None


def _check_same(work: Path, settings: dict[str, Any]) -> None:
    """Write the settings beside the mined rows.

    :raises InputError: if the folder holds a run with other settings.
    """
    file, content = work / SETTINGS, json.dumps(settings)
    if file.is_file():
        earlier = file.read_text("utf-8")
        check_order(json.loads(earlier), work)
        if earlier != content:
            raise InputError(
                f"{work} holds an unfinished run with other settings or data: remove it or give another folder"
            )
    else:
        shutil.rmtree(work, ignore_errors=True)  # the rest of a run that was killed while it was deleted
        work.mkdir(parents=True)
        write_atomic(file, content)
