"""The vectors of a teacher that an encoder is to learn: asked for once, as long as its own, mapped into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...core.errors import InputError
from ...core.progress import counted
from ...indexes.metric import normalized
from ...retriever.models.load import load_encoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..runs.training_run import TrainingRun

_PRINCIPAL = 8_192  # texts by which longer vectors are shortened


def teacher_vectors(run: TrainingRun[Any], teacher: str, dataset: Any, length: int) -> Path:
    """The file of the teacher's vectors of all rows, computed once: float32, shape (rows, length).

    :param length: of the student's vectors.
    """
    file = run.folder / "teacher.npy"
    loaded = load_encoder(teacher)
    if loaded.dim < length:
        raise InputError(
            f"the teacher's vectors have {loaded.dim} dimensions, the student's {length}: expected as many or more"
        )
    with run.lock():
        if not file.is_file():
            part = file.with_name("teacher.part.npy")
            aside = np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=(len(dataset), length))
            shorten = _shortener(loaded, dataset["text"], length)
            stage = f"asking the teacher for {len(dataset):,} vectors"
            for start in counted(range(0, len(dataset), 2_048), run.progress, stage):
                texts = dataset[start : start + 2_048]["text"]
                aside[start : start + len(texts)] = shorten(loaded.encode(texts, kind="document"))
            aside.flush()
            part.replace(file)
    return file


def with_vectors(dataset: Any, file: Path) -> Any:
    """The rows with their vectors as labels."""
    numbered = dataset.add_column("label", np.arange(len(dataset)).tolist())
    numbered.set_transform(_Labelled(file))
    return numbered


class _Labelled:
    """Looks up a batch's vectors in the file, which is mapped into memory."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._vectors = np.load(file, mmap_mode="r", allow_pickle=False)

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        vectors = torch.from_numpy(np.array(self._vectors[batch["label"]], np.float32))
        return {"text": batch["text"], "label": list(vectors)}

    def __reduce__(self) -> Any:
        return _Labelled, (self._file,)  # datasets pickles a transform to tell it from others: not all the vectors


def _shortener(teacher: Any, texts: Any, length: int) -> Callable[[Any], Any]:
    """What makes a teacher's vectors as long as the student's, with about the cosines that they had.

    Onto the directions that hold most of them (principal components of some, without a mean taken off).
    """
    if teacher.dim == length:
        return lambda vectors: vectors
    places = np.linspace(0, len(texts) - 1, min(len(texts), _PRINCIPAL)).astype(int)
    vectors = teacher.encode([texts[int(place)] for place in places], kind="document").astype(np.float64)
    directions = np.linalg.eigh(vectors.T @ vectors)[1][:, : -length - 1 : -1].astype(np.float32)

    def shorten(vectors: Any) -> Any:
        return normalized(vectors @ directions)

    return shorten
