"""The store, the single source of truth: two tables of Lance, HEAD.json that names their versions, vector indexes.

`store` opens it and `snapshot` reads one committed state. `writer` takes the lock and writes the next, and `commits`
commits it by HEAD.json. `filters` has the filters of documents, `derived` the indexes that can be built again.
"""
