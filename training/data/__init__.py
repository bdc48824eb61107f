"""Training data: rows from files and tables, checked against their columns, and cut into batches.

`sources` reads, `validation` checks, `dataset` keeps them on disk, `batches` orders them.
"""
