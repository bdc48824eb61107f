"""Compute the teacher's vectors that an encoder learns, once, at the encoder's own length."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ....core.progress import counted
from ....indexes.metric import normalized
from ....retriever.models.load import load_encoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ...runs.training_run import TrainingRun

_BATCH_SIZE = 256  # texts between two events: a large teacher takes seconds for them
_PRINCIPAL = 8_192  # texts to compute the principal components from


def teacher_vectors(run: TrainingRun[Any], teacher: str, dataset: Any, length: int) -> Path:
    """Return the file of the teacher's vectors of all rows, computed once: float32, shape (rows, length).

    :param dataset: the teacher encodes its first column.
    :param length: of the student's vectors, at most that of the teacher's.
    """
    file = run.folder / "teacher.npy"
    loaded, column = load_encoder(teacher), dataset.column_names[0]
    with run.lock():
        if not file.is_file():
            part = file.with_name("teacher.part.npy")
            aside = np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=(len(dataset), length))
            _reserve(part)
            shorten = _shortener(loaded, dataset[column], length)
            stage = f"asking the teacher for {len(dataset):,} vectors"
            for start in counted(range(0, len(dataset), _BATCH_SIZE), run.progress, stage):
                texts = dataset[start : start + _BATCH_SIZE][column]
                aside[start : start + len(texts)] = shorten(loaded.encode(texts, kind="document"))
            aside.flush()
            part.replace(file)
    return file


def _reserve(file: Path) -> None:
    """Take the space of a sparse file now: writing to a map of it on a full disk would kill the process.

    :raises OSError: when the disk is full.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    with file.open("r+b") as stream:
        try:
            os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system without it
                raise


def with_vectors(dataset: Any, file: Path) -> Any:
    """Return the rows with their vectors as labels, mapped into memory."""
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
        return batch | {"label": list(vectors)}

    def __reduce__(self) -> Any:
        return _Labelled, (self._file,)  # datasets pickles a transform to identify it: leave out the vectors


def _shortener(teacher: Any, texts: Any, length: int) -> Callable[[Any], Any]:
    """Return a function that shortens a teacher's vectors to the student's length, nearly without changing cosines.

    It projects them onto the principal components of a sample, without subtracting the mean.
    """
    if teacher.dim == length:
        return lambda vectors: vectors
    sample = np.linspace(0, len(texts) - 1, min(len(texts), _PRINCIPAL)).astype(int)
    vectors = teacher.encode([texts[int(row)] for row in sample], kind="document").astype(np.float64)
    directions = np.linalg.eigh(vectors.T @ vectors)[1][:, : -length - 1 : -1].astype(np.float32)

    def shorten(vectors: Any) -> Any:
        return normalized(vectors @ directions)

    return shorten
