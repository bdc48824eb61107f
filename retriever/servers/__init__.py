"""Servers over an index: what other programs search it through, and what keeps it up to date.

Each is a thin layer over `Retriever`, imported by the command that starts it. This room stands above the engine.
"""
