"""Keep Arrow from importing pandas in the process of a command."""

from __future__ import annotations

import sys


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
            import pyarrow.dataset  # which imports it too, and Lance needs it

            pa.array([0])
        finally:
            sys.meta_path.remove(absent)


class _Absent:
    """Reports pandas as missing, and leaves other modules to the next finder."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
