"""Check an index against its documents: verify it, find wrong vectors, repair it, measure it.

Only the `Retriever` uses this room.
"""
