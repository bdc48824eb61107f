"""Whether an index is what its documents say: verify, find wrong vectors, repair, measure.

Nothing but the `Retriever` stands above it.
"""
