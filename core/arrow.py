"""Arrow in our own process, without the packages that it imports where they are installed."""

from __future__ import annotations

import sys


def leave_out_pandas() -> None:
    """Let pyarrow convert Python objects without importing pandas: a quarter of a second of each command.

    It asks once whether an object may be of pandas, and remembers that pandas is not there. Its own conversions to
    pandas ask again, and work. Only for the process of a command, which has no object of pandas.
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
    """Finds no pandas; of other modules it knows nothing."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
