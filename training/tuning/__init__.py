"""Fit an encoder to an index's documents without labels.

`tune` is the entry point; `tuning_queries` makes the queries, `teachers` rank the passages, `verdict` decides.
`generated_collection` makes a test collection of such queries.
"""
