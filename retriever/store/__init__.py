"""The store, the single source of truth: two Lance tables, and HEAD.json, which names their committed versions.

`store` opens it and `snapshot` reads one committed state. `writer` takes the lock (in `locations`) and writes the next
state; `commits` commits it by HEAD.json. `filters` has the filters of documents, `derived` the indexes that can be
built again, `foreign` the checks of an index from elsewhere.
"""
