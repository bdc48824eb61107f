"""Arrow without pandas, in a process of its own as commands are."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

CODE = """
import sys
from binocle.core.arrow import leave_out_pandas
leave_out_pandas()
import pyarrow as pa
table = pa.table({"a": pa.array([1, 2])})
assert "pandas" not in sys.modules
assert table.to_pandas()["a"].tolist() == [1, 2]
import pandas
assert pa.array(pandas.Series([1.0, None])).null_count == 1
assert all(type(finder).__name__ != "_Absent" for finder in sys.meta_path)
"""


@pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is not installed")
def test_pandas_is_imported_when_it_is_asked_for_and_not_before():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
