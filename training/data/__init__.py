"""Training data: rows from files and tables, checked and written to disk, and cut into batches.

A row passes `sources`, `columns`, `validation` and `dataset` in this order; `batches` deals the rows out.
"""
