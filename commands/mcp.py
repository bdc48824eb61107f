"""`binocle mcp`: let agents search an index, by the Model Context Protocol."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from ..core.errors import MissingExtraError
from .index_lookup import open_index
from .options import folder_argument, index_option
from .output import echo

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@folder_argument
@index_option
@click.option(
    "--http",
    "port",
    metavar="PORT",
    type=click.IntRange(1, 65_535),
    help="Serve http://127.0.0.1:PORT/mcp, to programs on this machine only. Default: standard input and output.",
)
def mcp(folder: Path | None, index: Path | None, port: int | None) -> None:
    """Let agents search an index (MCP).

    An agent's program starts this command and speaks the Model Context Protocol to it. The tools only read: search,
    context, similar, read, files, status. Text that a person does not see is left out. The index is not brought up to
    date: run 'binocle index'.

    \b
    binocle mcp ~/notes
    binocle mcp docs --http 8765
    """
    from ..core.runtime.freed_memory import use_two_heaps

    use_two_heaps()
    retriever = open_index(folder, index)
    retriever.snapshot()  # no index: one line now, not an error for the agent
    try:
        from ..retriever.servers.mcp_server import mcp_server, serve_http
    except ImportError as error:
        sdk = "another version of the MCP SDK" if find_spec("mcp") else "the MCP SDK"
        raise MissingExtraError(sdk, "mcp", "binocle mcp") from error
    server = mcp_server(retriever)
    if port is None:
        try:
            server.run("stdio")
        except* BrokenPipeError:
            echo("binocle: the agent reads no more answers", err=True)
        return
    from ..retriever.servers.listening import listen

    with listen("127.0.0.1", port) as listener:
        echo(f"binocle: serving http://127.0.0.1:{port}/mcp (Ctrl-C stops it)", err=True)
        serve_http(server, listener)
