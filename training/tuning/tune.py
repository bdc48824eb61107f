"""Fit the encoder of an index to its documents without labels, and switch to it only if it is better.

Queries are made from the documents' own structure (`query_generation`). A teacher ranks the passages for each: the
index's hybrid search, a cross-encoder or a larger encoder (`teachers`). It must be better than the encoder, which then
learns these rankings (`ranking_distillation`). Or only a linear map of the query vectors learns them (`adapter`), and
no passage is embedded anew.

At the end, paired tests on natural queries from held-out documents decide whether the index changes: search by meaning
and hybrid search must not lose, and one must gain (`verdict`). Of a log of real queries, a part that was held back must
gain instead.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...retriever.models.encoders.adapted_encoder import AdaptedEncoder
from ...retriever.models.encoders.defended_encoder import DefendedEncoder
from ...retriever.models.files import ADAPTER
from ..runs import environment
from ..runs.training_run import TrainingRun
from .tuning_config import TuningConfig, check

if TYPE_CHECKING:
    from ...core.progress import OnProgress
    from ...retriever.retriever import Retriever
    from .verdict import Comparison, Verdict


@dataclass(slots=True)
class TuningResult:
    """The tuned encoder, and whether the index uses it."""

    folder: Path
    model: str  # the folder, with @int8 at its end if the index encodes documents in int8
    pairs: int
    teaching: Comparison  # of the encoder and its teacher
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
    the process is killed, the same call resumes at the last checkpoint.

    :param out: folder of the tuned encoder; `encoders/` in the index by default.
    :param publish: whether a significant gain (p < 0.05) changes the index. `Retriever.rollback` undoes it.
    :param progress: called with each event.
    :raises InputError: if the index holds too few documents.
    """
    environment.require("tuning")
    start = time.monotonic()
    recipe = recipe or TuningConfig()
    check(recipe)
    for change, noun in ((DefendedEncoder, "a defended encoder"), (AdaptedEncoder, "an adapter")):
        if isinstance(retriever.encoder, change):
            raise InputError(f"{retriever.path} has {noun}: 'binocle rollback' brings back the encoder to be tuned")
    from .index_tuning import IndexTuning

    folder = Path(out) if out is not None else _next_folder(retriever.path / "encoders")
    run = TrainingRun(folder / "model", retriever.encoder.name, recipe, progress)
    tuning = IndexTuning(run, retriever)
    model = str(run.out) if recipe.adapter else f"{run.out}{tuning.precision}"
    verdict, published = None, False
    with run.release_on_error():
        teaching = tuning.teaching()
        if teaching.difference.verdict != "better":
            run.discard()
        else:
            verdict = tuning.fit_adapter() if recipe.adapter else tuning.train()
            published = publish and verdict.is_gain
    if published:
        run.report("switching the index")
        retriever.switch(model)
    seconds = time.monotonic() - start
    return TuningResult(run.out, model, len(tuning.pairs), teaching, verdict, published, seconds)


def _next_folder(parent: Path) -> Path:
    """Return the first `tuned-N` that does not exist or holds an unfinished run."""
    number = 1
    while any((parent / f"tuned-{number}" / "model" / name).is_file() for name in ("model.safetensors", ADAPTER)):
        number += 1
    return parent / f"tuned-{number}"
