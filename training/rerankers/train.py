"""Train a reranker: a cross-encoder that reads query and passage together, on what the first stage puts before it.

The loop and the losses are sentence-transformers'; the base is any Hugging Face encoder, a trained reranker, or a
sentence-transformers encoder, whose transformer is taken and whose head is new.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import checks as limits
from ...core.errors import InputError, first_line
from ...retriever.models import files as model_folder
from ...retriever.models import settings as model_settings
from ...retriever.models.load import load_reranker
from ..data import dataset as rows
from ..data.batches import Batches
from ..data.dataset import Shape, TrainingSet
from ..encoders import heldout
from ..encoders import losses as objectives
from ..encoders.base_model import set_dropout, shortest
from ..encoders.config import EncoderConfig, check
from ..encoders.result import TrainingResult
from ..runs import environment
from ..runs.callbacks import watcher
from ..runs.checkpoints import resumable
from ..runs.model_card import Card
from ..runs.run_folder import RunFolder, files_of
from ..runs.trainer import arguments, quiet, schedule
from . import rows as reranker_rows
from .config import RerankerConfig
from .first_stage_weight import choose_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..runs.progress import Progress

_LISTS = (Shape.PAIRS, Shape.TRIPLETS, Shape.GRADED)
_OBJECTIVES: dict[str, tuple[tuple[Shape, ...], str, str]] = {  # name -> shapes, loss, source
    "listwise": (_LISTS, "ListNetLoss", "ListNet, Cao et al. 2007: softmax over a query's passages"),
    "lambda": (_LISTS, "LambdaLoss", "LambdaLoss, Wang et al. 2018"),
    "pairwise": (_LISTS, "RankNetLoss", "RankNet, Burges et al. 2005"),
    "binary": ((Shape.LABELLED, *_LISTS), "BinaryCrossEntropyLoss", "binary cross-entropy, arXiv:1901.04085"),
    "mse": ((Shape.SCORED, Shape.GRADED), "MSELoss", "mean squared error to a teacher's scores, arXiv:2010.02666"),
}
_WHOLE = ("listwise", "lambda", "pairwise")  # all pairs of a batch at once: theirs would go by a few
_DEFAULTS = {Shape.LABELLED: "binary", Shape.SCORED: "mse"}
_SURE = 20.0  # label of a positive in a list: ListNet's target is the softmax of the labels, with 1 as good as even


def train_reranker(
    data: str | Path | Iterable[Mapping[str, Any]],
    out: str | Path,
    *,
    base: str | None = None,
    config: RerankerConfig | None = None,
    split: str = "train",
    index: str | Path | None = None,
    encoder: str | None = None,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> TrainingResult:
    """Train a cross-encoder and write it to the folder `out`, which `CrossEncoder(out)` loads too.

    Pairs of query and positive get their negatives from the hybrid search of an index, as a search with this reranker
    will; other shapes are learned as they are. How much of the first stage's score a search keeps is chosen on
    held-out queries and written beside the model.

    :param index: the index that negatives come from; else one is made of the collection, or of the positives.
    :param encoder: for that index.
    :raises InputError: before the first step, for data or settings that do not fit.
    """
    environment.require("training")
    config = config or RerankerConfig()
    _check(config)
    tell = tell or (lambda _: None)
    base = base or model_folder.DEFAULT_MODEL
    for model in filter(None, (base, encoder)):  # before a large file is read
        model_folder.find(model)
    more = {"split": split, "index": str(index) if index else None, "encoder": encoder, "files": files_of(data)}
    run = RunFolder(Path(out), {"base": base, "config": asdict(config), "data": rows.named(data), **more})
    run.open()
    with run.unless_wrong():
        given = rows.once(run, data, split=split, held_out=config.held_out, seed=config.seed)
        objective = _choose(config.objective, given)
        if given.shape is not Shape.PAIRS and (index or encoder):
            raise InputError(
                f"an index and its encoder find negatives for {Shape.PAIRS.value}, but the data are "
                f"{given.shape.value}: leave them out"
            )
        account, counts = heldout.account(given), rows.counts(given)
        tell(account)
        if config.queries is not None:
            reranker_rows.leave_out(given, config.queries, config.seed)
        ready = reranker_rows.prepare(run, config, given, data, index, encoder, tell)
        made = _Session(run, base, config, objective, ready, progress, tell).train()
        made.rows, made.account = counts, account
        return made


def _check(config: RerankerConfig) -> None:
    """Raise InputError for the first setting that cannot be."""
    shared = {one.name for one in fields(EncoderConfig)}
    check(EncoderConfig(**{name: value for name, value in asdict(config).items() if name in shared}))
    if config.negatives < 1 or config.depth <= config.negatives:
        raise InputError(f"depth is more than the number of negatives, not {config.depth} with {config.negatives}")
    limits.above_0(config, "queries")


class _Session:
    """One training run."""

    def __init__(
        self,
        run: RunFolder,
        base: str,
        config: RerankerConfig,
        objective: str,
        ready: reranker_rows.Ready,
        progress: Progress | None,
        tell: Callable[[str], None],
    ) -> None:
        self.run, self.base, self.config, self.ready, self.data = run, base, config, ready, ready.data
        self.progress, self.tell = progress, tell
        self.objective = objective
        self.flat = self.objective in ("binary", "mse") and self.data.shape in _LISTS
        self.table = self.data.table()
        tell("loading the model")
        self.model = make_model(base, config)
        losses = import_module("sentence_transformers.cross_encoder.losses")
        given = {"mini_batch_size": -1} if self.objective in _WHOLE else {}
        self.loss = getattr(losses, _OBJECTIVES[self.objective][1])(self.model, **given)

    def train(self) -> TrainingResult:
        trainer, texts = self._trainer()
        self.run.begin(self.loss)
        before = heldout.Estimate.read_or_measure(
            self.run.folder / "before.json", lambda: self._measured("the model to begin with")
        )
        ran = self.run.train(trainer, patience=self.config.patience, texts=texts)
        made = TrainingResult.of(self.run, self.objective, ran, before)
        if self.config.keep:
            self.run.average(self.loss, self.config.keep)
        made.after = self._measured("the trained model")
        self._finish(made)
        return made

    def _trainer(self) -> tuple[Any, int]:
        from sentence_transformers.base.evaluation import BaseEvaluator
        from sentence_transformers.cross_encoder.trainer import CrossEncoderTrainer
        from sentence_transformers.cross_encoder.training_args import CrossEncoderTrainingArguments
        from transformers import EarlyStoppingCallback

        config, session = self.config, self
        dataset, batches, texts = self._dataset()
        metric = "ndcg@10" if self.data.shape in _LISTS else "spearman"
        held = heldout.can_tell(self.data)

        class Evaluator(BaseEvaluator):
            primary_metric = metric

            def __call__(self, *_: Any, **__: Any) -> dict[str, float]:
                found = session._measure()
                assert found is not None
                return found.as_metrics()

        options = schedule(config, batches, metric if held else None)
        options["batch_sampler"] = lambda *_, **__: batches
        log = self.run.folder / "log.jsonl"
        callbacks = [watcher(self.progress, texts=texts * config.accumulate, metric=metric, log=log)]
        if held and config.patience:
            callbacks.append(EarlyStoppingCallback(early_stopping_patience=config.patience))
        trainer = resumable(CrossEncoderTrainer)(
            model=self.model,
            args=CrossEncoderTrainingArguments(**arguments(self.run.checkpoints, **options)),
            train_dataset=dataset,
            loss=self.loss,
            evaluator=Evaluator() if held else None,  # type: ignore[no-untyped-call]
            callbacks=callbacks,
        )
        quiet(trainer)
        return trainer, texts * config.accumulate

    def _dataset(self) -> tuple[Any, Batches, int]:
        """The rows as the loss takes them, their batches, and how many pairs a batch has."""
        from datasets import Dataset

        names, numbers = self.data.texts, self.data.training()
        table, columns, width = self.table, names, 1
        if self.flat:
            table, columns, width = reranker_rows.pairs(self.table, names), ("query", "passage"), len(names) - 1
            numbers = (numbers[:, None] + np.arange(width, dtype=np.uint32) * len(self.table)).ravel()
            dataset = Dataset(table, fingerprint="pairs")  # which would else be made of all that the table holds
        else:
            kept = [*names, *(["label"] if "label" in table.column_names else [])]
            dataset = Dataset.from_file(str(self.data.folder / "rows.arrow")).select_columns(kept)
        if len(numbers) < 2:
            raise InputError(f"there are {len(numbers)} rows to train on: expected at least two")
        size = min(self.config.batch_size * width, len(numbers))
        batches = Batches(table, numbers, columns, batch_size=size, different=False, seed=self.config.seed)
        if self.data.shape in _LISTS and not self.flat:
            positive = _SURE if self.objective == "listwise" else 1.0
            spread = self.objective == "lambda"
            dataset.set_transform(lambda batch: reranker_rows.as_lists(batch, names, positive, spread=spread))
            return dataset, batches, size * (len(names) - 1)
        return dataset, batches, size

    def _measured(self, what: str) -> heldout.Estimate | None:
        if heldout.can_measure(self.data):
            self.tell(f"measuring {what}")
        return self._measure()

    def _measure(self) -> heldout.Estimate | None:
        """nDCG@10 of the positive among its candidates, or Spearman, on the held-out rows."""
        import torch

        if not heldout.can_measure(self.data):
            return None
        table = rows.take(self.table, self.data.held_out())
        columns = [table[name].to_pylist() for name in self.data.texts]
        pairs = [(query, text) for query, *texts in zip(*columns, strict=True) for text in texts]
        training = self.model.training
        with (
            torch.autocast(self.model.device.type, torch.bfloat16, enabled=environment.bf16(self.config)),
            torch.no_grad(),
        ):
            scores = self.model.predict(
                pairs, batch_size=32, activation_fn=torch.nn.Identity(), show_progress_bar=False
            )
        self.model.train(training)
        scores = np.asarray(scores, np.float32)
        seed = self.config.seed
        if self.data.shape not in _LISTS:
            return heldout.resampled("spearman", heldout.spearman, scores, table["label"].to_numpy(), seed)
        scores = scores.reshape(len(table), -1)
        ranks = (scores[:, 1:] >= scores[:, :1]).sum(1)  # of the positive, from 0; a tie counts against it
        values = np.where(ranks < 10, 1 / np.log2(ranks + 2), 0).astype(np.float32)
        return heldout.mean("ndcg@10", values, seed)

    def _finish(self, made: TrainingResult) -> None:
        ready = self.run.ready
        shutil.rmtree(ready, ignore_errors=True)
        self.model.eval()
        self.model.save_pretrained(str(ready), create_model_card=False)
        measures = [m.as_dict() | {"when": when} for when, m in (("before", made.before), ("after", made.after)) if m]
        if self.ready.retriever is not None and self.ready.relevant:
            self.tell("choosing how much of the first stage to keep")
            measures += choose_weight(ready, self.ready.retriever, self.ready.relevant, self.config.seed)

        made.fingerprint = load_reranker(str(ready)).fingerprint
        card = Card(
            kind="reranker",
            base=self.base,
            objective=f"{self.objective} ({_OBJECTIVES[self.objective][2]})",
            data=rows.describe(self.data),
            config=asdict(self.config),
            measures=measures,
            seconds=made.seconds,
            steps=made.steps,
            texts_per_second=made.texts_per_second,
            fingerprint=made.fingerprint,
            device=environment.device(),
            bf16=environment.bf16(self.config),
        )
        self.run.finish(card, made.history, made.after.name if made.after else None)


def _choose(name: str | None, given: TrainingSet) -> str:
    shape = given.shape
    if name is None:
        name = _DEFAULTS.get(shape, "listwise")
    if name not in _OBJECTIVES:
        raise InputError(f"there is no objective {name!r} for rerankers: expected one of {', '.join(_OBJECTIVES)}")
    if shape not in _OBJECTIVES[name][0]:
        wanted = " or ".join(one.value for one in _OBJECTIVES[name][0])
        raise InputError(f"the objective {name} takes {wanted}, but the data are {shape.value}")
    if name == "binary" and shape is Shape.GRADED:
        low, high = objectives.score_range(given)
        if low < 0 or high > 1:
            raise InputError(
                f"the objective binary takes scores from 0 to 1, which are probabilities, but they are {low:g} to "
                f"{high:g}: take mse or listwise"
            )
    return name


def make_model(base: str, config: RerankerConfig) -> Any:
    """The `CrossEncoder` to train: one score for a pair."""
    import torch
    from sentence_transformers import CrossEncoder

    environment.silence()
    torch.manual_seed(config.seed)
    folder = model_folder.find(base)
    try:
        model = CrossEncoder(
            str(folder),
            num_labels=1,
            max_length=config.max_length,
            local_files_only=True,
            trust_remote_code=False,
            device=environment.device(),
            model_kwargs={"use_safetensors": True},
        )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
        reason = first_line(error)
        raise InputError(f"{base} does not load as a base for a reranker ({reason})") from error
    model.max_seq_length = shortest(config.max_length, model)
    set_dropout(model, config.dropout)
    if not _has_head(folder):
        _join_segments(model)
    return model


def _has_head(folder: Path) -> bool:
    made_for = model_settings.config(folder).get("architectures") or [""]
    return str(made_for[0]).endswith("ForSequenceClassification")


def _join_segments(model: Any) -> None:
    """Let the second segment begin as the first: an encoder of single texts has seen no other."""
    for name, weight in model.named_parameters():
        if name.endswith("token_type_embeddings.weight") and len(weight) > 1:
            weight.data[1] = weight.data[0]
