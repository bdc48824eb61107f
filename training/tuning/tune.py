"""Fit the encoder of an index to its documents without labels, and switch to it only if it is better.

Queries are made from the documents' own structure (`queries`). A teacher ranks the passages for each: the
index's hybrid search, a cross-encoder, a larger encoder, or a mixture of them (`teachers`). It must be better than the
encoder, which then learns these rankings (`ranking_distillation`). Or only a linear map of the query vectors learns
them (`adapter`), and no passage is embedded anew.

At the end, paired tests on natural queries from held-out documents decide whether the index changes: search by meaning
and hybrid search must not lose, and one of them must gain (`verdict`). With a log of real queries, a held-out part of
the log must gain instead.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, StoreError
from ...retriever.models.encoders.adapted_encoder import AdaptedEncoder
from ...retriever.models.encoders.defended_encoder import DefendedEncoder
from ...retriever.models.model_files import ADAPTER, INT8, split_precision
from ..runs import environment
from ..runs.run_folder import check_out
from ..runs.training_run import TrainingRun
from . import unpublished
from .tuning_config import TuningConfig, check
from .unpublished import Unpublished

if TYPE_CHECKING:
    from ...core.progress import OnProgress
    from ...retriever.retriever import Retriever
    from .verdict import RankingComparison, Verdict


@dataclass(slots=True)
class TuningResult:
    """The tuned encoder, and whether the index uses it."""

    folder: Path
    model: str  # the folder, with @int8 at its end if the index encodes documents in int8
    pairs: int
    teaching: RankingComparison  # of the encoder and its teacher
    verdict: Verdict | None  # None: the teacher was no better, so nothing was learned
    published: bool
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, with the verdict's fields beside them."""
        return {
            "folder": str(self.folder) if self.verdict else None,
            "model": self.model if self.verdict else None,
            "pairs": self.pairs,
            "published": self.published,
            "seconds": round(self.seconds, 1),
            "teacher": self.teaching.as_dict(),
            "verdict": self.verdict and self.verdict.as_dict(),
        }


def tune(
    retriever: Retriever,
    *,
    out: str | Path | None = None,
    recipe: TuningConfig | None = None,
    publish: bool = True,
    progress: OnProgress | None = None,
) -> TuningResult:
    """Train the index's encoder on its documents, and switch the index to it if held-out documents say so.

    A teacher that ranks the held-out documents no better than the encoder has nothing to teach: nothing is learned. If
    the process is killed, the same call resumes at the last checkpoint, or switches the index to the finished encoder.

    :param out: folder of the tuned encoder; `encoders/` in the index by default.
    :param publish: whether a significant gain (p < 0.05) changes the index. `Retriever.rollback` undoes it.
    :param progress: called with each event.
    :raises InputError: if the index holds too few documents.
    """
    environment.require("tuning")
    start = time.monotonic()
    recipe = recipe or TuningConfig()
    check(recipe)
    for change, noun in ((DefendedEncoder, "a defended or shortened encoder"), (AdaptedEncoder, "an adapter")):
        if isinstance(retriever.encoder, change):
            raise InputError(f"{retriever.path} has {noun}: 'binocle rollback' brings back the encoder to be tuned")
    base = retriever.encoder
    suffix = INT8 if split_precision(base.name)[1] and not recipe.adapter else ""
    folder = Path(out) if out is not None else _next_folder(retriever, recipe, publish=publish)
    run = TrainingRun(folder / "model", base.name, recipe, progress)
    model = f"{run.out}{suffix}"
    finished = unpublished.read(folder, base.fingerprint, recipe) if publish else None
    verdict: Verdict | None
    if finished is not None:
        pairs, teaching, verdict = finished.pairs, finished.teaching, finished.verdict
    else:
        check_out(run.out)
        pairs, teaching, verdict = _learn(run, retriever)
    published = False
    if publish and verdict is not None and verdict.is_gain:
        unpublished.write(folder, base.fingerprint, recipe, Unpublished(pairs, teaching, verdict))
        run.report("switching the index")
        _switch(retriever, model)
        unpublished.remove(folder)
        published = True
    return TuningResult(run.out, model, pairs, teaching, verdict, published, time.monotonic() - start)


def _learn(run: TrainingRun[TuningConfig], retriever: Retriever) -> tuple[int, RankingComparison, Verdict | None]:
    """Return the number of queries, the comparison with the teacher, and the verdict; None if nothing was learned."""
    from .index_tuning import IndexTuning

    tuning = IndexTuning.open(run, retriever)
    with run.release_on_error():
        teaching = tuning.teaching()
        if teaching.difference.verdict != "better":
            run.discard()
            return len(tuning.queries.teaching), teaching, None
        verdict = tuning.fit_adapter() if run.config.adapter else tuning.train()
    return len(tuning.queries.teaching), teaching, verdict


def _switch(retriever: Retriever, model: str) -> None:
    try:
        retriever.switch(model)
    except StoreError as error:
        raise type(error)(
            f"{error}; the encoder is finished: the same command, or 'binocle switch' with {model}, puts it in service"
        ) from error


def _next_folder(retriever: Retriever, config: TuningConfig, *, publish: bool) -> Path:
    """Return the first `tuned-N` that does not exist, holds an unfinished run, or an encoder to be published."""
    for number in count(1):
        folder = retriever.path / "encoders" / f"tuned-{number}"
        is_finished = any((folder / "model" / name).is_file() for name in ("model.safetensors", ADAPTER))
        if not is_finished or (publish and unpublished.read(folder, retriever.encoder.fingerprint, config)):
            break
    return folder
