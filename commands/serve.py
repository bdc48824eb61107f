"""`binocle serve`: answer searches over HTTP."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from ..core.errors import InputError, MissingExtraError
from .index_lookup import open_index
from .options import INDEX, PATH, FloatRange, folder_argument, refuse_options
from .output import echo

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from ..retriever.retriever import Retriever
    from ..retriever.servers.http.caller import Served


@click.command()
@folder_argument
@click.option(
    "--index",
    "indexes",
    metavar="DIR",
    type=INDEX,
    multiple=True,
    help="An index: a folder, or s3://BUCKET/PREFIX. Repeatable: the first one is the default, each is at "
    "/indexes/NAME/, by the name of its folder.",
)
@click.option("-n", "--name", "names", metavar="NAME", multiple=True, help="A named collection. Repeatable.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address; beyond this machine with --tokens.")
@click.option(
    "--port", default=8420, show_default=True, metavar="N", type=click.IntRange(0, 65_535), help="0: any free port."
)
@click.option("--socket", "path", metavar="FILE", type=PATH, help="A Unix socket, for this user alone, and no port.")
@click.option("--tokens", metavar="FILE", type=PATH, help="Tokens that requests need, with a filter each (JSON).")
@click.option("--write", is_flag=True, help="Let requests add, change and remove documents.")
@click.option("--rerank", metavar="MODEL", help="A cross-encoder for requests that ask for one.")
@click.option("--allow-host", metavar="NAME", multiple=True, help="A name of this server besides localhost.")
@click.option("--allow-origin", metavar="URL", multiple=True, help="A site with pages that may ask this server.")
@click.option("--threads", metavar="N", type=click.IntRange(1, 256), help="Requests at work. Default: processors + 1.")
@click.option(
    "--queue",
    default=128,
    show_default=True,
    metavar="N",
    type=click.IntRange(1, 100_000),
    help="Requests that may wait.",
)
@click.option(
    "--deadline",
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    type=FloatRange(min=0.1, max=3_600),
    help="Answer each request within this time.",
)
def serve(
    folder: Path | None,
    indexes: tuple[Path, ...],
    names: tuple[str, ...],
    host: str,
    port: int,
    path: Path | None,
    tokens: Path | None,
    write: bool,
    rerank: str | None,
    allow_host: tuple[str, ...],
    allow_origin: tuple[str, ...],
    threads: int | None,
    queue: int,
    deadline: float,
) -> None:
    """Answer searches over HTTP.

    / is a search page for people. Programs ask /search, /similar, /context, /documents, /status and /metrics;
    /openapi.json describes them. Clients of OpenAI (embeddings, vector stores) and Cohere (rerank) can use it too. It
    answers from the newest state of the index: run 'binocle index' at any time. Only programs on this machine reach it,
    unless --host and --tokens allow others.

    \b
    binocle serve ~/notes
    binocle serve --index docs --name all --port 8000
    binocle serve docs --host 0.0.0.0 --tokens tokens.json
    """
    from ..core.runtime.freed_memory import use_two_heaps
    from ..retriever.store.collection import existing_collection

    use_two_heaps()
    if path:
        refuse_options(("host", "port"), "does not go with --socket")
    opened = _open(folder, (*indexes, *map(existing_collection, names)))
    try:
        from ..retriever.servers.http import access, server, work_queue
        from ..retriever.servers.http.application import Server
    except ImportError as error:
        raise MissingExtraError("starlette", "serve", "binocle serve") from error
    rules = access.Access(
        access.read_tokens(tokens) if tokens else (),
        access.check_hosts([*allow_host, *([] if access.is_address(host) else [host])]),
        access.check_origins(allow_origin),
    )
    access.check_indexes(rules.tokens, opened)
    if path is None and not rules.tokens and not access.is_loopback(host):
        raise InputError(f"other machines may reach {host}: give --tokens FILE, or leave --host out")
    served = _served(opened, rerank, writable=write)
    requests = work_queue.WorkQueue(threads, queue, deadline)
    with _listener(host, port, path) as (listener, address):
        shown = ", ".join(served.indexes)
        server.serve(
            Server(served, rules, requests),
            listener,
            lambda: echo(f"binocle: serving {shown} at {address} (Ctrl-C stops it)", err=True),
        )


def _open(folder: Path | None, indexes: tuple[Path, ...]) -> dict[str, Retriever]:
    """The indexes under the names of their folders; the first is the default."""
    if folder is not None or not indexes:
        opened = [open_index(folder, None), *(open_index(None, index) for index in indexes)]
    else:
        opened = [open_index(None, index) for index in indexes]
    named: dict[str, Retriever] = {}
    for retriever in opened:
        retriever.snapshot()  # no index: one line now, not an error for each request
        name = _name(str(retriever.location))
        if name in named:
            raise InputError(
                f"{named[name].location} and {retriever.location} would both be {name!r}: expected folders of "
                "different names"
            )
        named[name] = retriever
    return named


def _name(location: str) -> str:
    """The last telling part of the name of an index's location."""
    from ..retriever.documents.scan import INDEX_NAME

    parts = [part for part in location.split("/") if part and part != INDEX_NAME]
    return parts[-1] if parts else "index"


def _served(opened: dict[str, Retriever], rerank: str | None, *, writable: bool) -> Served:
    from ..retriever.models.load import load_reranker
    from ..retriever.servers.http.caller import Served, ServedIndex

    indexes = {name: ServedIndex(name, retriever) for name, retriever in opened.items()}
    return Served(indexes, None if rerank is None else load_reranker(rerank), writable)


@contextlib.contextmanager
def _listener(host: str, port: int, path: Path | None) -> Iterator[tuple[socket.socket, object]]:
    """A socket to listen at, and its address for people."""
    from ..retriever.servers import listening

    if path is not None:
        with listening.listen_at(path) as listener:
            yield listener, path
        return
    with listening.listen(host, port) as listener:
        name = f"[{host}]" if ":" in host else host
        yield listener, f"http://{name}:{listener.getsockname()[1]}/"
