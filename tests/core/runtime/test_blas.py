from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, threading
import numpy
from binocle.core.runtime import blas

threads, _ = blas._functions()
counts = [threads()]
entered, leave = threading.Event(), threading.Event()

def other():
    with blas.one_thread:
        entered.set()
        leave.wait(60)

with blas.one_thread:
    counts.append(threads())
    with blas.one_thread:
        worker = threading.Thread(target=other)
        worker.start()
        entered.wait(60)
    counts.append(threads())
counts.append(threads())
leave.set()
worker.join()
counts.append(threads())
try:
    with blas.one_thread:
        raise KeyError
except KeyError:
    counts.append(threads())
print(json.dumps(counts))
"""


def test_products_have_one_thread_while_any_thread_is_inside(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    counts = json.loads(run.stdout)
    if counts[0] == 1:
        pytest.skip("numpy has no OpenBLAS with two threads here")
    assert counts == [2, 1, 1, 1, 2, 2]


def test_one_thread_stays_one():
    from binocle.core.runtime import blas

    threads, _ = blas._functions()
    before = threads()
    with blas.one_thread:
        assert threads() == 1
    assert threads() == before
