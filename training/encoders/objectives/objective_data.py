"""One data set of an encoder's training: its rows, their batches and the loss of its objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset
from sentence_transformers.base.sampler import GroupByLabelBatchSampler

from ....core.errors import InputError
from ....core.units import count_of
from ...data.batches import Batches, largest_batch
from ...data.dataset import Shape
from ...data.distributed_batches import SharedBatches
from ...runs import environment
from ..base_model import make_model, shortest
from ..config import EncoderConfig
from . import losses
from .objectives import OBJECTIVES
from .teacher_vectors import teacher_vectors, with_vectors
from .tsdae import delete_words

if TYPE_CHECKING:
    from ...data.dataset import TrainingSet
    from ...runs.training_run import TrainingRun

CHARACTERS = 4  # of a token, about


class ObjectiveData:
    """A data set, and how an encoder learns from it.

    :param data: rows that fit the objective.
    :param model: the `SentenceTransformer` to train.
    :param loss: a module of torch.
    :param teacher: for texts alone, the encoder to learn vectors from.
    """

    def __init__(
        self,
        run: TrainingRun[EncoderConfig],
        data: TrainingSet,
        objective: str,
        model: Any,
        loss: Any,
        teacher: str | None = None,
    ) -> None:
        self.run, self.config, self.data, self.objective = run, run.config, data, objective
        self.model, self.loss, self.teacher = model, loss, teacher
        self.table = data.table()
        self.rows = data.training()  # numbers of the rows to train on

    @classmethod
    def build(
        cls,
        run: TrainingRun[EncoderConfig],
        data: TrainingSet,
        objective: str,
        model: Any,
        teacher: str | None = None,
    ) -> ObjectiveData:
        """Build the loss of an objective, and load its guide if it takes one.

        :raises InputError: for fewer than two rows to train on.
        """
        config = run.config
        options = losses.LossOptions(
            scale=config.scale,
            margin=config.margin,
            mini_batch=config.mini_batch,
            gather=environment.processes() > 1,
            temperature=config.temperature,
            guide=_guide(run, objective),
        )
        loss = losses.build(objective, model, data, options, config.matryoshka)
        part = cls(run, data, objective, model, loss, teacher)
        if len(part.rows) < 2:
            raise InputError(f"the data have {count_of(len(part.rows), 'row')} to train on: expected at least two")
        return part

    @property
    def is_grouped(self) -> bool:
        """Whether a batch needs several texts of a class."""
        return OBJECTIVES[self.objective].grouped

    @property
    def has_queries(self) -> bool:
        """Whether the column `query`, if there is one, has queries: a text and its translation are two documents."""
        return self.objective != "embeddings"

    def longest(self) -> int:
        """Return about how many characters of a text are read in training."""
        return CHARACTERS * (shortest(self.config.max_length, self.model) or self.model.max_seq_length or 512)

    # Batches

    def make_batches(self) -> Batches | SharedBatches:
        """Return the batches of row numbers; grouped objectives take only their size."""
        objective, processes = OBJECTIVES[self.objective], self._sharing_processes()
        batches = Batches(
            self.table,
            self.rows,
            self._distinct(),
            batch_size=self._grouped_size() if objective.grouped else self._size(),
            different=objective.different,
            seed=self.config.seed,
            longest=self.longest(),
        )
        self.batches = SharedBatches(batches, processes) if processes > 1 else batches
        return self.batches

    def _size(self) -> int:
        """Return the rows of a batch: fewer than configured if the data have too few different texts."""
        processes = self._sharing_processes()
        if len(self.rows) < processes:
            raise InputError(
                f"the data have {count_of(len(self.rows), 'row')} to train on for {processes:,} processes: "
                "expected one each at least"
            )
        size = min(self.config.batch_size, len(self.rows) // processes) * processes
        objective = OBJECTIVES[self.objective]
        if size < 2 and (objective.compared or (objective.different and self.data.shape is Shape.PAIRS)):
            raise InputError(
                f"the objective {self.objective} compares the rows of a batch, but the batch size is 1: give 2 or more"
            )
        if not objective.different:
            return size
        maximum = largest_batch(self.table, self.rows, self._distinct(), size)
        if maximum == 1 < size and self.data.shape is Shape.PAIRS:
            raise InputError(
                f"the objective {self.objective} sets the positives of other rows against a query's own, but one text "
                "is in every row: give others, or negatives"
            )
        if maximum < size:
            self.run.report(
                f"batches have {count_of(maximum, 'row')}, not {size:,}, since no two may share a text and few are "
                "different: where texts stand for classes, give text and label"
            )
        return max(1, maximum // processes) * processes

    def _distinct(self) -> tuple[str, ...]:
        """Return the columns without equal values in a batch: their texts, and the document they are from.

        A passage of a document may answer the query of another passage, so it would be a false negative.
        """
        return (*self.data.texts, *(["group"] if "group" in self.table.column_names else []))

    def _sharing_processes(self) -> int:
        """Return the number of processes that use each other's texts as negatives."""
        return environment.processes() if OBJECTIVES[self.objective].different else 1

    def _grouped_size(self) -> int:
        """Return an even number of rows, so that a batch has at least two of each of its classes."""
        counts = np.bincount(self.table["label"].to_numpy()[self.rows])
        pairs = np.sort(counts[counts >= 2] // 2)[::-1]
        if len(pairs) < 2:
            raise InputError(
                f"the objective {self.objective} sets texts of a class against those of others: expected two classes "
                f"of two texts or more to train on, but {len(pairs)} of {np.count_nonzero(counts):,} have as many"
            )
        return max(4, min(self.config.batch_size, 2 * int(np.minimum(pairs, pairs[1]).sum())) // 2 * 2)

    def sampler(self, dataset: Any, **options: Any) -> Any:
        """Return the sampler of batches: sentence-transformers' if a batch needs several texts of a class, else ours.

        :param options: of its samplers.
        """
        if not self.is_grouped:
            return self.batches
        return GroupByLabelBatchSampler(dataset, **options | {"batch_size": self.batches.batch_size})

    def batches_in_epoch(self) -> int:
        """Count the batches of an epoch. Grouped objectives leave out the surplus rows of large classes."""
        if not self.is_grouped:
            return len(self.batches)
        return len(self.sampler(self.dataset(), drop_last=False, valid_label_columns=["label"]))

    # Columns

    def prompts(self) -> dict[str, str] | None:
        """Return the base model's prompt for each column of queries or documents.

        Two texts that are compared with each other both have the documents' prompt, as in `evaluate`: most encoders
        have none for documents, and that is how sentence-transformers' evaluators encode such pairs.
        """
        if self.objective == "tsdae":  # the target is the text without its prompt
            return {"noisy": self.model.prompts["document"]} if self.model.prompts["document"] else None
        queries = ("query",) if self.has_queries else ()
        prompts = {
            column: self.model.prompts.get("query" if column in queries else "document") for column in self.data.texts
        }
        return {column: prompt for column, prompt in prompts.items() if prompt} or None

    def dataset(self) -> Any:
        """Return the rows as the trainer reads them."""
        columns = [*self.data.texts, *(["label"] if "label" in self.table.column_names else [])]
        dataset = Dataset.from_file(str(self.data.folder / "rows.arrow")).select_columns(columns)
        if self.is_grouped:  # its sampler takes every row of the dataset
            dataset = dataset.select(self.rows)
        if self.objective == "tsdae":
            dataset.set_transform(self._delete_words)
        if self.objective == "embeddings":
            assert self.teacher is not None
            length = int(self.model.get_embedding_dimension())
            dataset = with_vectors(dataset, teacher_vectors(self.run, self.teacher, dataset, length))
        return dataset

    def _delete_words(self, batch: dict[str, list[str]]) -> dict[str, list[str]]:
        epoch, seed = self.batches.epoch, self.config.seed
        return {"noisy": [delete_words(text, epoch, seed) for text in batch["text"]], "text": batch["text"]}


def _guide(run: TrainingRun[EncoderConfig], objective: str) -> Any:
    """Load the encoder that drops false negatives, if the objective takes one."""
    if "guide" not in OBJECTIVES[objective].takes:
        return None
    unchanged = EncoderConfig(seed=run.config.seed)
    return make_model(run.config.guide or run.base, unchanged).eval()
