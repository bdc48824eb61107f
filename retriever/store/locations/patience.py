"""How long a writer waits for the lock of another, and how it says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....core.checks import is_real
from ....core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable


def _silent(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a writer waits for another, and how it says so."""

    seconds: float = 0.0
    say: Callable[[str], None] = _silent  # called once, with a line that names the other writer
    remedy: str = "let it wait: --wait SECONDS"  # a second way, beside trying again

    def check(self) -> Patience:
        """Return this, if the seconds are a number from 0.

        :raises InputError: otherwise.
        """
        if not is_real(self.seconds) or self.seconds < 0:
            raise InputError(f"a writer waits for a number of seconds from 0, not {self.seconds!r}")
        return self
