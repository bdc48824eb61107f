"""Servers over an index: what other programs search it through.

Each is a thin layer over `Retriever`, imported by the command that starts it. This room stands above the engine.
"""
