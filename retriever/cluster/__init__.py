"""Indexing and search on a Ray cluster, over an index on object storage.

`cluster` is the driver, `worker` and `tasks` run there, `serving` searches shards that live there.
"""
