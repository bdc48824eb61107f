"""The best evaluation of a training run. Later ones are compared with it row by row, since chance moves them too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...core.files import write_atomic
from ..runs.checkpoints import MARGIN, WORSE
from ..runs.environment import is_main_process

if TYPE_CHECKING:
    from pathlib import Path

    from ...core.arrays import Doubles
    from .significance import Difference

_SAMPLES = 1_000  # enough to compare p with 0.05


class HeldOutMeasure(Protocol):
    """A measure of a model on held-out rows, with the values of the rows."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def value(self) -> float: ...  # noqa: D102

    @property
    def margin(self) -> float:
        """Half of the 95 % interval."""
        ...

    @property
    def values(self) -> Doubles:
        """The value of each row, shape (rows,); higher is better."""
        ...

    def difference(self, base: Doubles, *, samples: int | None = None) -> Difference:
        """Subtract the measure of the values of a base on the same rows."""
        ...


class BestSoFar:
    """Compares each evaluation of a run with the best one before it."""

    def __init__(self, file: Path) -> None:
        """:param file: keeps the best values, for a resumed run."""
        self._file = file
        self._values: Doubles | None = None
        if file.is_file():
            self._values = np.array(json.loads(file.read_text("utf-8")), np.float64)

    def metrics(self, measurement: HeldOutMeasure) -> dict[str, float]:
        """Return the metrics for the trainer: value, half of the interval, and 1 if it is worse by more than chance."""
        name = measurement.name
        return {
            name: measurement.value,
            name + MARGIN: measurement.margin,
            name + WORSE: float(self._is_worse(measurement)),
        }

    def _is_worse(self, measurement: HeldOutMeasure) -> bool:
        """Compare, and keep the better one of both."""
        if self._values is not None:
            difference = measurement.difference(self._values, samples=_SAMPLES)
            if difference.value <= 0:
                return difference.verdict == "worse"
        self._values = measurement.values
        if is_main_process():
            write_atomic(self._file, json.dumps(self._values.tolist()))
        return False
