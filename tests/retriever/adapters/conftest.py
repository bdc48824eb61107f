"""Tests of frameworks: coroutines run in a loop of their own, without a plugin."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from binocle import Retriever
from binocle.retriever.store.writer import open_writer


def pytest_configure(config: pytest.Config) -> None:
    for mark in ("asyncio", "benchmark", "vcr"):  # of plugins that the suites name and these tests do without
        config.addinivalue_line("markers", mark)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def write_beside():
    """`write_beside(path, write)`: the result of a write that begins while another one has the lock of the index."""
    return _write_beside


def _write_beside(path: Path, write: Callable[[], Any]) -> Any:
    results = []
    thread = Thread(target=lambda: results.append(write()))
    with open_writer(Retriever.open(path)._index.store()):
        thread.start()
        thread.join(0.1)  # it waits for the end of the block
    thread.join()
    return results[0]
