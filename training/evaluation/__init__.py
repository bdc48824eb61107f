"""Evaluate retrieval, similarity, pair classification and reranking, and test which differences are real.

`retrieval` runs a test collection, `evaluate_file` judged rows, `comparison/` several contenders; `significance` has
the statistics, `measures` has nDCG.
"""
