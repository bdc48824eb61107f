"""Distil a smaller encoder from a larger one: fewer layers, or a table of word vectors. Measure both.

The student starts from the teacher (`students`), and learns its vectors by mean squared error on any text (Reimers and
Gurevych 2020, arXiv:2004.09813).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.checks import listed
from ...core.errors import BinocleError, InputError
from ...core.progress import Progress, ignore, within
from ...indexes.metric import cosines
from ...retriever.models.load import load_encoder
from ...retriever.models.model_files import find, split_length
from ..data import beir
from ..data.columns import Shape, is_text
from ..data.dataset import are_held_out
from ..data.sources import rows
from ..evaluation.retrieval import evaluate, judged_queries
from ..runs import environment
from ..runs.model_card import Card, write_card
from ..runs.run_folder import SETTINGS, check_out, check_outside, folder_of
from . import heldout
from .config import EncoderConfig, check, with_rate
from .objectives import objectives
from .train import train_encoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ...retriever.models import encoder as encoders


_SPEED_TEXTS = 512


@dataclass(slots=True)
class DistillationResult:
    """The student, and its measures beside the teacher's."""

    folder: Path
    layers: int  # 0 for a table
    measures: dict[str, tuple[float, float]]  # name -> teacher's, student's
    texts_per_second: tuple[float, float]  # teacher's, student's
    seconds: float  # of the training, including earlier processes
    fingerprint: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON; each pair becomes a dictionary of teacher and student."""

        def both(pair: tuple[float, float], digits: int) -> dict[str, float]:
            return {"teacher": round(pair[0], digits), "student": round(pair[1], digits)}

        return {
            "folder": str(self.folder),
            "layers": self.layers,
            "measures": {name: both(pair, 4) for name, pair in self.measures.items()},
            "texts_per_second": both(self.texts_per_second, 1),
            "seconds": round(self.seconds, 1),
            "fingerprint": self.fingerprint,
        }


def distill(
    model: str,
    out: str | Path,
    *,
    texts: str | Path | Iterable[str],
    layers: int | None = 3,
    evaluate_on: str | Path | None = None,
    split: str = "test",
    config: EncoderConfig | None = None,
    progress: OnProgress | None = None,
) -> DistillationResult:
    """Make a student of `model` and measure both.

    :param texts: data with a column of texts, or of queries and positives, to learn the teacher's vectors on.
    :param layers: transformer layers of the student; 0 for a table of word vectors.
    :param evaluate_on: a folder in BEIR's layout to measure both on.
    :param config: `student_settings(layers)` unless given.
    :raises InputError: if the teacher does not have more layers, or its vectors are shorter than its layers give.
    """
    environment.require("distillation")
    on_progress, out = progress or ignore, Path(out)
    if layers is None or layers < 0:
        raise InputError(f"layers are a whole number from 0, not {layers}")
    config = config or student_settings(layers)
    _check_settings(model, layers, config)
    if evaluate_on is not None:
        judged_queries(Path(evaluate_on), split, None, None)  # reports an error before the student is trained
    every = list(_texts(texts))
    if not every:
        raise InputError(f"{texts} holds no texts")
    find(model)
    check_outside(out, model)
    held_out = are_held_out(every, config.held_out, config.seed)
    learned, apart = ([text for text, is_out in zip(every, held_out, strict=True) if is_out == part] for part in (0, 1))
    start = folder_of(out.resolve()) / f"start-{_key(model, layers, learned)}"  # a resumed run finds it again
    if not _is_trained(out, start, config, model):
        check_out(out, "student")
        _make_start(start, model, layers, learned, on_progress)
        _train(every, out, start, model, config, progress)
    teacher, student = load_encoder(model), load_encoder(str(out))
    agreement = heldout.mean("cosine to the teacher", _agreement(teacher, student, apart or learned), config.seed)
    measures = {agreement.name: (1.0, agreement.value)}
    rows_of_card = [
        agreement.as_dict() | {"on": "held-out texts" if apart else "texts learned from", "when": "student"}
    ]
    if evaluate_on is not None:
        roles = {"teacher": model, "student": str(out)}
        both = [_ndcg(role, name, evaluate_on, split, on_progress) for role, name in roles.items()]
        measures["nDCG@10"] = both[0]["value"], both[1]["value"]
        rows_of_card += both
    rates = _rate(teacher, every), _rate(student, every)
    card = json.loads((out / "binocle.json").read_text("utf-8"))  # of the training run, whichever process ended it
    result = DistillationResult(out, layers, measures, rates, card["seconds"], student.fingerprint)
    _write_card(result, card, model, len(every), rows_of_card)
    return result


def _check_settings(model: str, layers: int, config: EncoderConfig) -> None:
    """:raises InputError: for NAME@128 where the student keeps layers, since these give whole vectors."""
    whole, length = split_length(model)
    if layers and length is not None:
        raise InputError(
            f"{model} is the beginning of the vectors of {whole}, and a student with layers has whole ones: expected "
            f"{whole}, or --layers 0 for a table of {length:,} dimensions"
        )
    check(config)
    objectives.check_uses(config, objectives.choose(config.objective, Shape.TEXTS, teacher=True))


def _train(
    texts: list[str], out: Path, start: Path, teacher: str, config: EncoderConfig, progress: OnProgress | None
) -> None:
    """Train the student from `start`, which stays if the run can be resumed."""
    rows_of_texts = ({"text": text} for text in texts)
    try:
        train_encoder(rows_of_texts, out, base=str(start), teacher=teacher, config=config, progress=progress)
    except BinocleError:
        if not (folder_of(out) / SETTINGS).is_file():  # refused before the run began
            shutil.rmtree(folder_of(out), ignore_errors=True)
            with contextlib.suppress(OSError):  # it is not empty, or it is gone with its run
                out.rmdir()
        raise


def _is_trained(out: Path, start: Path, config: EncoderConfig, teacher: str) -> bool:
    """Whether a run with the same settings was killed while the student was measured: its card names `start`."""
    card = out / "binocle.json"
    if folder_of(out).exists() or not card.is_file():
        return False
    settings = json.loads(json.dumps({**asdict(with_rate(config)), "teacher": teacher}))
    try:
        facts = json.loads(card.read_text("utf-8"))
        return bool(facts["base"] == start.name and facts["config"] == settings)
    except (ValueError, TypeError, KeyError):  # a file of another program
        return False


def _make_start(start: Path, model: str, layers: int, texts: list[str], on_progress: OnProgress) -> None:
    """Make the untrained student, unless the resumed run has one."""
    if start.is_dir():
        return
    part = start.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    on_progress(Progress("loading the teacher"))
    from . import students

    environment.silence()
    if layers:
        students.with_layers(model, layers, part)
    else:
        on_progress(Progress("weighing the words"))
        students.as_table(model, part, texts)
    part.replace(start)


def student_settings(layers: int, **options: Any) -> EncoderConfig:
    """Return the default settings of a student. A table learns faster, since a step moves few of its rows.

    :param options: settings instead of the defaults.
    """
    rate = 1e-4 if layers else 2e-2
    usual: dict[str, Any] = {"epochs": 2.0, "batch_size": 64, "learning_rate": rate, "max_length": 128}
    return EncoderConfig(**usual | {"patience": None} | options)


def _texts(source: str | Path | Iterable[str]) -> Iterator[str]:
    """Yield each different text once; blank ones are left out."""
    if not isinstance(source, (str, Path)):
        texts = listed(source, "texts, or the name of a file or a folder")
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise InputError(f"expected texts, not {wrong[0]!r:.60}")
        yield from dict.fromkeys(filter(str.strip, texts))
        return
    if beir.is_collection(Path(source)):
        yield from dict.fromkeys(filter(str.strip, map(beir.passage, beir.documents(Path(source)))))
        return
    hashes: set[int] = set()
    for where, row in rows(source):
        known = [name for name in row if is_text(name)]
        names = known or [name for name in row if not str(name).endswith("id")]
        values = [row[name] for name in names if isinstance(row[name], str)]
        if not values:
            raise InputError(f"{where}: no column holds a text")
        for text in values:
            if text.strip() and hash(text) not in hashes:
                hashes.add(hash(text))
                yield text


def _key(*settings: Any) -> str:
    return hashlib.sha256(repr(settings).encode()).hexdigest()[:8]


def _agreement(teacher: encoders.Encoder, student: encoders.Encoder, every: list[str]) -> Floats:
    """Return the cosine of both vectors for each of the last texts, at most 512."""
    sample = every[-_SPEED_TEXTS:]
    return cosines(teacher.encode(sample), student.encode(sample))


def _rate(encoder: encoders.Encoder, every: list[str]) -> float:
    """Return the texts per second, after a first batch that is not timed."""
    sample = every[:_SPEED_TEXTS]
    encoder.encode(sample[:64])
    start = time.monotonic()
    encoder.encode(sample)
    return len(sample) / max(time.monotonic() - start, 1e-9)


def _ndcg(role: str, name: str, collection: str | Path, split: str, on_progress: OnProgress) -> dict[str, Any]:
    """Measure a model on a collection, as a row of the model card."""
    stage = f"measuring the {role} on {Path(collection).name}"
    on_progress(Progress(stage))
    on_stage = within(on_progress, f"{stage}: ")
    report = evaluate(collection, mode="semantic", split=split, model=name, progress=on_stage)
    value = report.measures["nDCG@10"]
    return {
        "name": "nDCG@10",
        "value": value,
        "interval": list(report.intervals["nDCG@10"]) if report.queries > 1 else [value, value],
        "rows": report.queries,
        "on": f"{report.collection} {report.split}",
        "when": role,
    }


def _write_card(
    result: DistillationResult, known: dict[str, Any], model: str, texts: int, measures: list[dict[str, Any]]
) -> None:
    """Write the student's model card over the card of its training run, with the facts of `known`."""
    card = Card(
        kind="encoder",
        base=model,
        objective=known["objective"],
        data={"texts": texts},
        config={**known["config"], "layers": result.layers},
        measures=measures,
        seconds=result.seconds,
        steps=known["steps"],
        texts_per_second=result.texts_per_second[1],
        fingerprint=result.fingerprint,
        device=environment.device(),
        bf16=environment.has_bf16(),
    )
    write_card(result.folder, card)
    shutil.rmtree(folder_of(result.folder), ignore_errors=True)
