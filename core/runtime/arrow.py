"""Keep Arrow from importing pandas, and from making functions that nobody calls, in the process of a command."""

from __future__ import annotations

import importlib
import sys
from typing import Any

_PYTHON_NAMES = {"and": "and_", "or": "or_"}  # of functions with names that are keywords
_NEEDED = ["utf8_zero_fill"]  # pyarrow.compute names it itself


def leave_out_pandas() -> None:
    """Let pyarrow convert Python objects without importing pandas: a quarter of a second of each command.

    Arrow asks once whether an object may come from pandas, and remembers that pandas is missing. Conversions to pandas
    ask again, and work. Use it only in the process of a command, which has no pandas objects.
    """
    if "pandas" not in sys.modules:
        absent = _Absent()
        sys.meta_path.insert(0, absent)
        try:
            import pyarrow as pa

            _import_compute()
            import pyarrow.dataset  # which imports pandas too, and Lance needs it

            pa.array([0])
        finally:
            sys.meta_path.remove(absent)


def _import_compute() -> None:
    """Import `pyarrow.compute`, which wraps and documents 280 functions, so that it wraps each at its first use."""
    if "pyarrow.compute" in sys.modules:
        return
    native: Any = importlib.import_module("pyarrow._compute")
    registry = native.function_registry
    native.function_registry = lambda: _Registry
    try:
        compute: Any = importlib.import_module("pyarrow.compute")
        wrap = vars(compute)["_wrap_function"]
    except KeyError:  # another version of pyarrow
        sys.modules.pop("pyarrow.compute", None)
        return
    finally:
        native.function_registry = registry

    def function(name: str) -> Any:
        key = name.removesuffix("_") if name in _PYTHON_NAMES.values() else name
        try:
            entry = registry().get_function(key)
        except KeyError:
            entry = None
        if entry is None or entry.kind == "hash_aggregate" or (entry.kind == "scalar_aggregate" and not entry.arity):
            raise AttributeError(f"module 'pyarrow.compute' has no attribute {name!r}")
        wrapper = vars(compute)[name] = wrap(_PYTHON_NAMES.get(key, key), entry)
        return wrapper

    compute.function_registry = registry
    compute.__getattr__ = function


class _Registry:
    """The functions that the import of `pyarrow.compute` needs."""

    @staticmethod
    def list_functions() -> list[str]:
        return _NEEDED

    @staticmethod
    def get_function(name: str) -> Any:
        return importlib.import_module("pyarrow._compute").get_function(name)


class _Absent:
    """Reports pandas as missing, and leaves other modules to the next finder."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
