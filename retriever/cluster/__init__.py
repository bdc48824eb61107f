"""Index and search on a Ray cluster, over an index on object storage.

`Cluster` distributes the work, `batch_worker` and `tasks` do it on the machines, `serving` searches shards there.
"""
