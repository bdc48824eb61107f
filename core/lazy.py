"""A thread-safe cached property."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    locked_cached_property = cached_property
else:

    class locked_cached_property(cached_property):  # noqa: N801 - a decorator
        """A `functools.cached_property` that threads compute only once, under the object's lock `self.lock`.

        `cached_property` itself has no lock since Python 3.12.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            with instance.lock:
                return super().__get__(instance, owner)
