"""Train a head: check settings and data first, then train.

The modules that import torch are imported after the checks, so that mistakes are reported at once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.errors import InputError
from ...retriever.documents.scan import index_at
from ...retriever.models import model_files
from ...retriever.models.heads.head_settings import READER
from ...retriever.retriever import Retriever
from ..data.dataset import source_name
from ..data.heads import squad
from ..data.heads.examples import read_examples, read_passages, read_unlabelled
from ..data.heads.tagged import read_tagged
from ..evaluation.significance import difference
from ..runs import environment
from ..runs.run_folder import files_of
from ..runs.training_run import TrainingRun
from .classifiers.judge import METRICS, facts_of, values
from .classifiers.probe import Probe
from .config import ClassifierConfig, HeadConfig, ReaderConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...core.progress import OnProgress
    from ..data.heads.examples import Examples
    from .classifiers.fine_tuning import ClassifierTraining
    from .result import HeadResult

ConfigT = TypeVar("ConfigT", bound=HeadConfig)
_MAX_HELD_OUT = 1_000  # questions
_MAX_HELD_OUT_ROWS = 5_000  # labelled texts
_LEVEL = 0.05  # p below which a difference is real


def train_reader(
    data: str | Path | Iterable[Mapping[str, Any]],
    out: str | Path,
    *,
    base: str | None = None,
    teacher: str | None = None,
    config: ReaderConfig | None = None,
    progress: OnProgress | None = None,
) -> HeadResult:
    """Train a reader and write it to the folder `out`, which transformers loads for question answering too.

    If the process is killed, the same call resumes at the last checkpoint and takes the same steps as an uninterrupted
    run. Some questions are read with another passage, so that the reader learns to find no answer.

    :param data: anything that `squad.read_questions` reads.
    :param base: a sentence-transformers folder or name, or any Hugging Face encoder; all-MiniLM-L6-v2 by default.
    :param teacher: a trained reader by folder or name, mostly a larger one: the new one learns its probabilities too.
    :param progress: called with each event.
    :raises InputError: before the first step, for data or settings that do not fit.
    """
    if teacher is not None:
        model_files.find(teacher, READER.role)  # before a large file is read
    taught = {} if teacher is None else {"teacher": teacher}
    run = _open_run(data, out, base, config or ReaderConfig(), progress, kind="reader", **taught)
    config = run.config
    with run.discard_on_error():
        run.report("reading the data")
        questions = squad.read_questions(data)
        rows, held_out = squad.split(questions, config.held_out, _MAX_HELD_OUT, config.seed)
        if not any(question.answers for question in rows):
            raise InputError("no question to learn from has an answer: expected some that have one")
        from .reader_training import ReaderTraining

        training = ReaderTraining.load(run, rows, held_out, teacher)
    source = {"source": Path(data).name} if isinstance(data, (str, Path)) else {}
    with run.release_on_error():
        left_out = len(questions) - len(rows) - len(held_out)
        return training.train({**source, "questions": len(questions), **taught}, left_out)


def train_classifier(
    data: str | Path | Iterable[Mapping[str, Any]],
    out: str | Path,
    *,
    base: str | None = None,
    config: ClassifierConfig | None = None,
    split: str = "train",
    label: str | None = None,
    unlabelled: str | Path | Iterable[Mapping[str, Any]] | None = None,
    progress: OnProgress | None = None,
) -> HeadResult:
    """Train a classifier of texts and write it to the folder `out`.

    By default a probe is fitted on the vectors of the base, in seconds and without torch. With `config.contrastive` the
    encoder is tuned before, so that few rows of a class suffice. With `config.fine_tune` the whole encoder is trained
    with a head; unless the head is better, a probe on the trained encoder replaces it. In both cases a probe on the
    base is fitted too, and a paired test on the same held-out rows says whether that probe is enough.

    :param data: anything that `examples.read_examples` reads; with `label`, a folder with an index.
    :param base: an encoder by folder or name; all-MiniLM-L6-v2 by default.
    :param split: of a data set.
    :param label: a key of the metadata of an index's documents. Its passages have these labels, and vectors already.
        Passages of documents without the key are learned from too.
    :param unlabelled: texts of the same kind without labels: where classes have few examples, the probe learns from
        them too. What `examples.read_unlabelled` reads.
    :param progress: called with each event.
    :raises InputError: before the first step, for data or settings that do not fit.
    """
    config = config or ClassifierConfig()
    config.check()
    if label is not None and unlabelled is not None:
        raise InputError("an index has texts without labels itself: expected a label key or a file of them, not both")
    if config.fine_tune or config.contrastive:
        environment.require("training")
    retriever = None if label is None else _index_at(data)
    base = base or (model_files.DEFAULT_MODEL if retriever is None else retriever.encoder.name)
    model_files.find(base)  # before a large file is read
    run = TrainingRun(out, base, config, progress)
    run.open(_classifier_settings(data, split, label, unlabelled), kind="classifier")
    with run.discard_on_error():
        run.report("reading the data")
        parts = config.held_out, _MAX_HELD_OUT_ROWS, config.seed
        if retriever is None or label is None:
            examples, fingerprint = read_examples(data, split, *parts), ""
            if unlabelled is not None:
                examples = _with_unlabelled(examples, unlabelled, config)
        else:
            examples, fingerprint = read_passages(retriever, label, *parts), retriever.encoder.fingerprint
        if not config.fine_tune and not config.contrastive:
            return Probe.fit(run, examples, fingerprint).write()
    with run.release_on_error():
        return (_train_contrastive if config.contrastive else _fine_tune)(run, examples, fingerprint)


def _train_contrastive(run: TrainingRun[ClassifierConfig], examples: Examples, fingerprint: str) -> HeadResult:
    """Tune the encoder, fit a probe on its vectors, and compare that with a probe on the base."""
    from .classifiers.contrastive import class_pairs, tune_encoder

    with run.discard_on_error():
        pairs = class_pairs(examples, run.config.seed)
        probe = Probe.fit(run, examples, fingerprint) if examples.held_out else None
        encoder = tune_encoder(run, pairs)
    tuned = Probe.fit(run, examples, tuned=encoder)
    result = tuned.write()
    if probe:
        alternative = f"{len(examples.held_out):,} held-out rows do not tell which is better"
        result.notes.append(_comparison(probe, tuned, "contrastive training", alternative))
    return result


def _fine_tune(run: TrainingRun[ClassifierConfig], examples: Examples, fingerprint: str) -> HeadResult:
    """Train the encoder with its head, and compare that with a probe on the base."""
    with run.discard_on_error():
        probe = Probe.fit(run, examples, fingerprint) if examples.held_out else None
        from .classifiers.fine_tuning import ClassifierTraining

        training = ClassifierTraining.load(run, examples)
    result = training.train(facts_of(training.settings), examples.left_out)
    if probe:
        alternative = "the probe is enough: train without --fine-tune"
        result.notes += [*training.notes, _comparison(probe, training, "fine-tuning", alternative)]
    return result


def train_tagger(
    data: str | Path | Iterable[Mapping[str, Any]],
    out: str | Path,
    *,
    base: str | None = None,
    config: HeadConfig | None = None,
    progress: OnProgress | None = None,
) -> HeadResult:
    """Train a tagger of names and write it to the folder `out`, which transformers loads for token classification too.

    If the process is killed, the same call resumes at the last checkpoint and takes the same steps as an uninterrupted
    run.

    :param data: anything that `tagged.read_tagged` reads.
    :param base: a sentence-transformers folder or name, or any Hugging Face encoder; all-MiniLM-L6-v2 by default.
    :param progress: called with each event.
    :raises InputError: before the first step, for data or settings that do not fit.
    """
    run = _open_run(data, out, base, config or HeadConfig(), progress, kind="tagger")
    config = run.config
    with run.discard_on_error():
        run.report("reading the data")
        texts = read_tagged(data, config.held_out, _MAX_HELD_OUT, config.seed)
        from .tagger_training import TaggerTraining

        training = TaggerTraining.load(run, texts)
    with run.release_on_error():
        return training.train({"labels": len(texts.labels)}, texts.left_out)


def _open_run(
    data: Any,
    out: str | Path,
    base: str | None,
    config: ConfigT,
    progress: OnProgress | None,
    *,
    kind: str,
    **settings: str,
) -> TrainingRun[ConfigT]:
    """Check the settings and find the base, then open the run.

    :param settings: to repeat in a call that resumes the run, beside data, base and configuration.
    """
    environment.require("training")
    config.check()
    base = base or model_files.DEFAULT_MODEL
    model_files.find(base)  # before a large file is read
    run = TrainingRun(out, base, config, progress)
    run.open({"data": source_name(data), "files": files_of(data), **settings}, kind=kind)
    return run


def _classifier_settings(data: Any, split: str, label: str | None, unlabelled: Any) -> dict[str, Any]:
    """Return the settings that a call must repeat to resume the run, beside its base and its configuration."""
    files = files_of(data if label is None else index_at(Path(data)))
    settings: dict[str, Any] = {"data": source_name(data), "split": split, "label": label, "files": files}
    if unlabelled is not None:
        settings["unlabelled"] = [source_name(unlabelled), files_of(unlabelled)]
    return settings


def _with_unlabelled(
    examples: Examples, unlabelled: str | Path | Iterable[Mapping[str, Any]], config: ClassifierConfig
) -> Examples:
    if config.fine_tune or examples.task != "classes":
        raise InputError("texts without labels help a probe of classes alone: leave them out")
    return replace(examples, unlabelled=read_unlabelled(unlabelled, pairs=examples.pairs))


def _index_at(data: object) -> Retriever:
    """Open the index that has the labelled documents.

    :raises NoIndexError: when there is none.
    """
    if not isinstance(data, (str, Path)) or not str(data):
        raise InputError("a label is a key of the documents of an index: expected the folder of one as data")
    retriever = Retriever.open(data)
    retriever.snapshot()  # raises if there is no index
    return retriever


def _comparison(probe: Probe, training: ClassifierTraining | Probe, way: str, alternative: str) -> str:
    """Say whether the trained model is better than a probe on the base, on the held-out rows.

    :param alternative: what to say if it is not.
    """
    assert training.held_out_logits is not None
    targets = training.examples.targets(training.examples.held_out)
    tuned = values(training.held_out_logits, targets, training.settings)
    gain = difference(tuned, values(probe.held_out_logits, targets, probe.settings))
    linear, measure = probe.measures[0], METRICS[training.examples.task]
    verdict = f"{way} was worth it" if gain.p < _LEVEL and gain.value > 0 else alternative
    test = f"p {gain.p:.4f} of a paired test on the same rows"
    return f"a probe alone has {measure} {linear.value:.4f}; {verdict} ({test})"
