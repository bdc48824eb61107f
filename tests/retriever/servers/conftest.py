"""A server at a socket of its own."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest


@pytest.fixture
def serving():
    """`with serving(retriever, reranker=, access=, writable=, queue=) as address`."""
    return _serving


@contextlib.contextmanager
def _serving(retriever, reranker=None, access=None, writable=False, inside=None, queue=None):
    """The address of a server at a socket of its own, in a thread; `inside` is an application and a path there."""
    import uvicorn

    from binocle.retriever.servers import listening
    from binocle.retriever.servers.http import server
    from binocle.retriever.servers.http.access import Access
    from binocle.retriever.servers.http.application import Server, application
    from binocle.retriever.servers.http.caller import Served, ServedIndex

    options = {} if queue is None else {"queue": queue}
    served = Served({"notes": ServedIndex("notes", retriever)}, reranker, writable)
    app = application(Server(served, access or Access(), **options))
    if inside:
        outer, path = inside
        outer.mount(path, app)
        app = outer
    runner = uvicorn.Server(uvicorn.Config(app, http=server.BoundedHttp, log_config=None, ws="none"))
    with listening.listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [listener]})
        thread.start()
        while not runner.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            runner.should_exit = True
            thread.join()
