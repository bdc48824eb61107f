"""A thread-safe cached property."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    locked_cached_property = cached_property
else:

    class locked_cached_property(cached_property):  # noqa: N801 - a decorator
        """`functools.cached_property`, computed under `self.once`, a lock of the object.

        The lock that `cached_property` had of its own is gone from Python 3.12 on.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            with instance.once:
                return super().__get__(instance, owner)
