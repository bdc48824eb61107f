"""Servers over an index: `http` and `mcp_server` answer other programs, `watch` keeps the index up to date.

Each is a thin layer over `Retriever`, imported by the command that starts it. `listening` opens the sockets of both.
`client` asks the HTTP server. This room stands above the engine.
"""
