"""Arrow without pandas, in a process of its own as commands are."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

CODE = """
import sys
from binocle.core.runtime.arrow import leave_out_pandas
leave_out_pandas()
import pyarrow as pa
table = pa.table({"a": pa.array([1, 2])})
assert "pandas" not in sys.modules
assert table.to_pandas()["a"].tolist() == [1, 2]
import pandas
assert pa.array(pandas.Series([1.0, None])).null_count == 1
assert all(type(finder).__name__ != "_Absent" for finder in sys.meta_path)
"""

FUNCTIONS = """
import importlib, inspect
from binocle.core.runtime.arrow import leave_out_pandas
leave_out_pandas()
import pyarrow.compute as pc
names = [*pc.function_registry().list_functions(), "and_", "or_", "nothing"]
def described(function):
    return function and (function.__name__, str(inspect.signature(function)), function.__doc__)
assert not {"equal", "and_"} & vars(pc).keys()
assert not pc.equal(1, 2).as_py() and "equal" in vars(pc)
lazy = {name: described(getattr(pc, name, None)) for name in names}
for name in names:
    vars(pc).pop(name, None)
del pc.__getattr__
importlib.reload(pc)
assert lazy == {name: described(getattr(pc, name, None)) for name in names}
assert len(list(filter(None, lazy.values()))) > 200 and lazy["nothing"] is None
"""


def test_a_function_of_arrow_is_made_when_it_is_asked_for():
    done = subprocess.run([sys.executable, "-c", FUNCTIONS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is not installed")
def test_pandas_is_imported_when_it_is_asked_for_and_not_before():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
