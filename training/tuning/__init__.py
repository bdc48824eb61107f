"""Fit an encoder to an index's documents without labels.

`tune` is the entry point. `queries` makes queries, `tuning_queries` parts them by their use, `teachers` rank the
passages, `verdict` decides. `generated_collection` makes a test collection of such queries.
"""
