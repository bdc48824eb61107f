"""The interfaces of an audit's attackers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....core.arrays import Floats
    from ....retriever.models.encoder import Encoder
    from .candidates import AttackerSpace


class Attacker(Protocol):
    """Learns to recover texts from vectors."""

    def fit(self, vectors: Floats, texts: Sequence[str], steps: int, seconds: float) -> bool:
        """Learn from texts and their stolen vectors, shape (n, dim).

        :param steps: the same on a fast and on a slow machine.
        :param seconds: a limit of time; returns whether it stopped the learning.
        """
        ...

    def recover(self, vectors: Floats) -> list[str]:
        """Return a text for each vector; "" if none was recovered."""
        ...


@runtime_checkable
class Corrector(Protocol):
    """An attacker that encodes its texts again and changes them until they are near, as `binocle invert` does."""

    def correct(self, vectors: Floats, comparison: AttackerSpace, extra: Sequence[Sequence[int]]) -> list[str]:
        """Return a text for each vector.

        :param comparison: brings texts and stolen vectors into one space: the defence is applied to encoded texts.
        :param extra: tokens that another attack recovered from each vector, to start from as well.
        """
        ...


class AttackerFactory(Protocol):
    """Creates the attacker of a defence."""

    def __call__(self, dim: int, seed: int, encoder: Encoder) -> Attacker:
        """Create an attacker; the first one learns from the vectors as they are stored.

        :param dim: of the stolen vectors; a defence may have changed it.
        :param encoder: of the index. It is public: the attacker may use its tokens and its undefended vectors.
        """
        ...
