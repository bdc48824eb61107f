"""A property that is computed when it is first asked for, by one thread for all."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    once = cached_property
else:

    class once(cached_property):  # noqa: N801
        """`functools.cached_property` under the lock `once` of its object: its own is gone from Python 3.12 on."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            with instance.once:
                return super().__get__(instance, owner)
