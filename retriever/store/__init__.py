"""The store, the single source of truth: two Lance tables, and HEAD.json, which names their committed versions.

`store` opens it. `snapshot` reads one committed state: its rows (`committed_rows`) and the indexes over them
(`derived`), which can always be rebuilt. `writer` takes the lock (in `locations`) and writes the next state; `commits`
commits it by HEAD.json. `filters` has the filters of documents, `foreign` the checks of an index from elsewhere.
"""
