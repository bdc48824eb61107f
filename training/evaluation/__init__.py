"""How good retrieval, similarity, pair classification and reranking are, and which differences are real.

`retrieval` runs a test collection, `compare` sets contenders side by side, `significance` has the statistics.
"""
