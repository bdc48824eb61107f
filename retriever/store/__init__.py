"""The store, the single source of truth: two tables of Lance, HEAD.json that names their versions, vector indexes.

`Store` opens it, `Snapshot` reads one committed state, `open_writer` writes the next.
"""
