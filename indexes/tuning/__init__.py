"""Choose the vector index that meets a recall, a latency and a memory limit, and prove it on held-out queries.

`optimize` is the way in; `benchmark` measures, `trial` sweeps one index, `renewal` measures again after a rebuild.
"""
