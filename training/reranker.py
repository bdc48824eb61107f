"""Train a reranker: a cross-encoder that reads query and passage together, on what the first stage puts before it.

The loop and the losses are sentence-transformers'; the base is any Hugging Face encoder, a trained reranker, or a
sentence-transformers encoder, whose transformer is taken and whose head is new.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ..indexes.errors import InputError
from ..retriever import model_folder
from . import beir, candidates, heldout, loop
from . import data as rows
from .batches import Batches
from .card import Card
from .data import Prepared, Shape
from .encoder import Config as EncoderConfig
from .encoder import Trained, check, set_dropout
from .run import RunFolder
from .stage_weight import choose_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..retriever.retriever import Retriever
    from .loop import Progress

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
_UNKNOWN = "\0"  # begins the name of a positive that is no known document of the index


@dataclass(frozen=True, slots=True)
class RerankerConfig:
    """How to train a reranker."""

    objective: str | None = None
    epochs: float = 1.0
    steps: int | None = None
    batch_size: int = 8  # queries with their passages, or pairs
    accumulate: int = 1
    learning_rate: float = 3e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    dropout: float = 0.0
    max_length: int = 256  # tokens of query and passage together
    negatives: int = 7  # passages drawn for each relevant one
    depth: int = 50  # of the first stage that they are drawn from
    queries: int | None = None  # at most so many are learned from
    bf16: bool | None = None
    held_out: float = 0.05
    evaluations: int = 4
    patience: int | None = 3
    keep: float = 0.0
    seed: int = 0


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
) -> Trained:
    """Train a cross-encoder and write it to the folder `out`, which `CrossEncoder(out)` loads too.

    Pairs of query and positive get their negatives from the hybrid search of an index, as a search with this reranker
    will; other shapes are learned as they are. How much of the first stage's score a search keeps is chosen on
    held-out queries and written beside the model.

    :param index: the index that negatives come from; else one is made of the collection, or of the positives.
    :param encoder: for that index.
    :raises InputError: before the first step, for data or settings that do not fit.
    """
    loop.require("training")
    config = config or RerankerConfig()
    shared = {one.name for one in fields(EncoderConfig)}
    check(EncoderConfig(**{name: value for name, value in asdict(config).items() if name in shared}))
    if config.negatives < 1 or config.depth <= config.negatives:
        raise InputError(f"depth is more than the number of negatives, not {config.depth} with {config.negatives}")
    tell = tell or (lambda _: None)
    base = base or model_folder.DEFAULT_MODEL
    more = {"split": split, "index": str(index) if index else None}
    run = RunFolder(Path(out), {"base": base, "config": asdict(config), "data": rows.named(data), **more})
    run.open()
    with run.unless_wrong():
        prepared = _prepare(run, config, data, split, index, encoder, tell)
        session = _Session(run, base, config, prepared, progress, tell)
    return session.train()


@dataclass(slots=True)
class _Ready:
    data: Prepared
    retriever: Retriever | None
    relevant: dict[str, set[str]] = field(default_factory=dict)  # query -> paths, of held-out queries


def _prepare(
    run: RunFolder,
    config: RerankerConfig,
    source: Any,
    split: str,
    index: str | Path | None,
    encoder: str | None,
    tell: Callable[[str], None],
) -> _Ready:
    """The rows, with candidates where the data are pairs."""
    given = rows.once(run, source, split=split, held_out=config.held_out, seed=config.seed)
    if given.shape is not Shape.PAIRS:
        return _Ready(given, None)
    retriever, names = _first_stage(run, given, source, index, encoder, tell)
    folder = run.folder / "lists"
    kept = (folder / "data.json").is_file()
    made = rows.load(folder) if kept else _mined(config, given, retriever, names, folder, tell)
    return _Ready(made, retriever, _relevant(given, names, held_out=True))


def _first_stage(
    run: RunFolder, given: Prepared, source: Any, index: Any, encoder: str | None, tell: Callable[[str], None]
) -> tuple[Retriever, dict[str, str]]:
    """The index to search, and the name in it of each positive that has no document id."""
    from ..retriever.retriever import Retriever

    if index is not None:
        retriever = Retriever.open(index, model=encoder)
        retriever.snapshot()  # there is one
        texts = {} if "group" in given.table().column_names else dict.fromkeys(given.table()["positive"].to_pylist())
        return retriever, {text: f"{_UNKNOWN}{number}" for number, text in enumerate(texts)}
    tell("indexing the documents")
    folder = run.folder / "index"
    if isinstance(source, (str, Path)) and beir.is_collection(Path(source)):
        return candidates.index_of(folder, beir.documents(Path(source)), encoder), {}
    table = given.table()
    names: dict[str, str] = {}
    groups = table["group"].to_pylist() if "group" in table.column_names else [None] * len(table)
    for text, group in zip(table["positive"].to_pylist(), groups, strict=True):
        names.setdefault(text, group or f"d{len(names)}")
    documents = ({"id": name, "text": text} for text, name in names.items())
    return candidates.index_of(folder, documents, encoder), names


def _relevant(given: Prepared, names: Mapping[str, str], *, held_out: bool) -> dict[str, set[str]]:
    found = {query: set(documents) for query, documents in _judged(given, names, held_out=held_out).items()}
    return {query: one for query, one in found.items() if not any(name.startswith(_UNKNOWN) for name in one)}


def _judged(given: Prepared, names: Mapping[str, str], *, held_out: bool) -> dict[str, dict[str, str]]:
    """Query -> relevant document -> its text, of one part of the data."""
    chosen = given.held_out() if held_out else given.training()
    table = given.table().take(pa.array(chosen))
    groups = table["group"].to_pylist() if "group" in table.column_names else [None] * len(table)
    found: dict[str, dict[str, str]] = {}
    for query, text, group in zip(table["query"].to_pylist(), table["positive"].to_pylist(), groups, strict=True):
        found.setdefault(query, {})[group or names[text]] = text
    return found


def _mined(
    config: RerankerConfig,
    given: Prepared,
    retriever: Retriever,
    names: Mapping[str, str],
    folder: Path,
    tell: Callable[[str], None],
) -> Prepared:
    """Rows (query, positive, negatives) of both parts, the parts kept."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for held_out in (False, True):
        judged = _judged(given, names, held_out=held_out)
        most = config.queries if not held_out else None
        if most is not None and len(judged) > most:
            chosen = np.random.default_rng(config.seed).permutation(len(judged))[:most]
            queries = list(judged)
            judged = {queries[place]: judged[queries[place]] for place in sorted(chosen)}
        found = list(
            candidates.lists(
                retriever,
                judged,
                negatives=config.negatives,
                depth=config.depth,
                seed=config.seed,
                tell=partial(_tell_candidates, tell, len(judged)),
            )
        )
        parts.append(found)
    if not parts[0]:
        raise InputError(
            f"no query finds {config.negatives} other passages to learn from: index more documents, or ask for fewer "
            "negatives"
        )
    prepared = rows.prepare([*parts[0], *parts[1]], folder, held_out=0.0)
    prepared.part = np.repeat(np.array([rows.TRAIN, rows.HELD_OUT], np.uint8), [len(part) for part in parts])
    rows.save(prepared)
    return prepared


class _Session:
    """One training run."""

    def __init__(
        self,
        run: RunFolder,
        base: str,
        config: RerankerConfig,
        ready: _Ready,
        progress: Progress | None,
        tell: Callable[[str], None],
    ) -> None:
        self.run, self.base, self.config, self.ready, self.data = run, base, config, ready, ready.data
        self.progress, self.tell = progress, tell
        self.objective = _choose(self.config.objective, self.data.shape)
        self.flat = self.objective in ("binary", "mse") and self.data.shape in _LISTS
        self.table = self.data.table()
        self.model = make_model(base, config)
        losses: Any = __import__("sentence_transformers.cross_encoder.losses", fromlist=["losses"])
        given = {"mini_batch_size": -1} if self.objective in _WHOLE else {}
        self.loss = getattr(losses, _OBJECTIVES[self.objective][1])(self.model, **given)

    def train(self) -> Trained:
        trainer, texts = self._trainer()
        self.run.begin(self.loss)
        before = self._measure()
        ran = self.run.train(trainer, patience=self.config.patience, texts=texts)
        made = Trained.of(self.run, self.objective, ran, before)
        if self.config.keep:
            self.run.average(self.loss, self.config.keep)
        made.after = self._measure()
        self._finish(made)
        return made

    def _bf16(self) -> bool:
        return loop.has_bf16() if self.config.bf16 is None else self.config.bf16

    def _trainer(self) -> tuple[Any, int]:
        from sentence_transformers.base.evaluation import BaseEvaluator
        from sentence_transformers.cross_encoder.trainer import CrossEncoderTrainer
        from sentence_transformers.cross_encoder.training_args import CrossEncoderTrainingArguments
        from transformers import EarlyStoppingCallback

        config, session = self.config, self
        dataset, batches, texts = self._dataset()
        metric = "ndcg@10" if self.data.shape in _LISTS else "spearman"
        held = len(self.data.held_out()) > 0

        class Evaluator(BaseEvaluator):
            primary_metric = metric

            def __call__(self, *_: Any, **__: Any) -> dict[str, float]:
                found = session._measure()
                assert found is not None
                return {metric: found.value}

        options = loop.schedule(config, batches, metric if held else None)
        options["batch_sampler"] = lambda *_, **__: batches
        log = self.run.folder / "log.jsonl"
        callbacks = [loop.watcher(self.progress, texts=texts * config.accumulate, metric=metric, log=log)]
        if held and config.patience:
            callbacks.append(EarlyStoppingCallback(early_stopping_patience=config.patience))
        trainer = loop.resumable(CrossEncoderTrainer)(
            model=self.model,
            args=CrossEncoderTrainingArguments(**loop.arguments(self.run.checkpoints, **options)),
            train_dataset=dataset,
            loss=self.loss,
            evaluator=Evaluator() if held else None,  # type: ignore[no-untyped-call]
            callbacks=callbacks,
        )
        loop.quiet(trainer)
        return trainer, texts * config.accumulate

    def _dataset(self) -> tuple[Any, Batches, int]:
        """The rows as the loss takes them, their batches, and how many pairs a batch has."""
        from datasets import Dataset

        names = self.data.texts
        table = self.table.take(pa.array(self.data.training()))
        if self.flat:
            table = _flattened(table, names)
            columns: tuple[str, ...] = ("query", "passage")
        else:
            columns = names
        if len(table) < 2:
            raise InputError(f"there are {len(table)} rows to train on: expected at least two")
        size = min(self.config.batch_size * (len(names) - 1 if self.flat else 1), len(table))
        numbers = np.arange(len(table), dtype=np.uint32)
        batches = Batches(table, numbers, columns, batch_size=size, different=False, seed=self.config.seed)
        kept = [*columns, *(["label"] if "label" in table.column_names else [])]
        dataset = Dataset(table.select(kept))
        if self.data.shape in _LISTS and not self.flat:
            positive = _SURE if self.objective == "listwise" else 1.0
            dataset.set_transform(lambda batch: _as_lists(batch, names, positive))
            return dataset, batches, size * (len(names) - 1)
        return dataset, batches, size

    def _measure(self) -> heldout.Estimate | None:
        """nDCG@10 of the positive among its candidates, or Spearman, on the held-out rows."""
        import torch

        rows_held = self.data.held_out()
        if not len(rows_held):
            return None
        table = self.table.take(pa.array(rows_held))
        columns = [table[name].to_pylist() for name in self.data.texts]
        pairs = [(query, text) for query, *texts in zip(*columns, strict=True) for text in texts]
        training = self.model.training
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=self._bf16()), torch.no_grad():
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

    def _finish(self, made: Trained) -> None:
        ready = self.run.ready
        shutil.rmtree(ready, ignore_errors=True)
        self.model.eval()
        self.model.save_pretrained(str(ready), create_model_card=False)
        measures = [m.as_dict() | {"when": when} for when, m in (("before", made.before), ("after", made.after)) if m]
        if self.ready.retriever is not None and self.ready.relevant:
            self.tell("choosing how much of the first stage to keep")
            measures += choose_weight(ready, self.ready.retriever, self.ready.relevant, self.config.seed)
        from ..retriever.reranker import Reranker

        made.fingerprint = Reranker.load(str(ready)).fingerprint
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
            device=loop.device(),
            bf16=self._bf16(),
        )
        self.run.finish(card, made.history, made.after.name if made.after else None)


def _tell_candidates(tell: Callable[[str], None], total: int, done: int) -> None:
    tell(f"candidates of {done:,} of {total:,} queries")


def _choose(name: str | None, shape: Shape) -> str:
    if name is None:
        name = _DEFAULTS.get(shape, "listwise")
    if name not in _OBJECTIVES:
        raise InputError(f"there is no objective {name!r} for rerankers: expected one of {', '.join(_OBJECTIVES)}")
    if shape not in _OBJECTIVES[name][0]:
        wanted = " or ".join(one.value for one in _OBJECTIVES[name][0])
        raise InputError(f"the objective {name} takes {wanted}, but the data are {shape.value}")
    return name


def make_model(base: str, config: RerankerConfig) -> Any:
    """The `CrossEncoder` to train: one score for a pair."""
    import torch
    from sentence_transformers import CrossEncoder

    torch.manual_seed(config.seed)
    folder = model_folder.find(base)
    try:
        model = CrossEncoder(
            str(folder),
            num_labels=1,
            max_length=config.max_length,
            local_files_only=True,
            trust_remote_code=False,
            device=loop.device(),
            model_kwargs={"use_safetensors": True},
        )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise InputError(f"{base} does not load as a base for a reranker ({reason})") from error
    set_dropout(model, config.dropout)
    if not _has_head(folder):
        _join_segments(model)
    return model


def _has_head(folder: Path) -> bool:
    made_for = model_folder.config(folder).get("architectures") or [""]
    return str(made_for[0]).endswith("ForSequenceClassification")


def _join_segments(model: Any) -> None:
    """Let the second segment begin as the first: an encoder of single texts has seen no other."""
    for name, weight in model.named_parameters():
        if name.endswith("token_type_embeddings.weight") and len(weight) > 1:
            weight.data[1] = weight.data[0]


def _as_lists(batch: dict[str, list[Any]], names: tuple[str, ...], positive: float) -> dict[str, list[Any]]:
    """Columns query, positive, negatives to a query and the list of its passages, the positive first."""
    passages = [list(texts) for texts in zip(*(batch[name] for name in names[1:]), strict=True)]
    labels = batch.get("label") or [[positive, *[0.0] * (len(names) - 2)]] * len(passages)
    return {"query": batch["query"], "passages": passages, "label": [list(map(float, one)) for one in labels]}


def _flattened(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """A row for each pair of query and passage: 1 for the positive, 0 for others, or the teacher's score."""
    given = table["label"].to_pylist() if "label" in table.column_names else None
    queries, passages, labels = [], [], []
    columns = [table[name].to_pylist() for name in names[1:]]
    for number, query in enumerate(table["query"].to_pylist()):
        for place, column in enumerate(columns):
            queries.append(query)
            passages.append(column[number])
            labels.append(given[number][place] if given else float(place == 0))
    return pa.table({"query": queries, "passage": passages, "label": pa.array(labels, pa.float32())})
