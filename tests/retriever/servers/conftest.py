"""A server at a socket of its own."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest


@pytest.fixture
def serving():
    """`with serving(retriever, reranker=, access=, writable=) as address`."""
    return _serving


@contextlib.contextmanager
def _serving(retriever, reranker=None, access=None, writable=False):
    """The address of a server at a socket of its own, in a thread."""
    import uvicorn

    from binocle.retriever.servers.http import server
    from binocle.retriever.servers.http.access import Access
    from binocle.retriever.servers.http.application import Server, application
    from binocle.retriever.servers.http.caller import Served, ServedIndex

    app = application(
        Server(Served({"notes": ServedIndex("notes", retriever)}, reranker, writable), access or Access())
    )
    runner = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
    with server.listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [listener]})
        thread.start()
        while not runner.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            runner.should_exit = True
            thread.join()


@pytest.fixture
def pdf_file():
    """`pdf_file("A line.")`: the bytes of a PDF file of one page."""

    def making(text):
        stream = f"BT /F1 24 Tf 72 700 Td ({text}) Tj ET"
        objects = (
            "<</Type/Catalog/Pages 2 0 R>>",
            "<</Type/Pages/Kids[3 0 R]/Count 1>>",
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
            f"<</Length {len(stream)}>>\nstream\n{stream}\nendstream",
            "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        )
        body = "".join(f"{number} 0 obj\n{content}\nendobj\n" for number, content in enumerate(objects, 1))
        return f"%PDF-1.4\n{body}trailer\n<</Root 1 0 R/Size 6>>\n%%EOF\n".encode()

    return making
