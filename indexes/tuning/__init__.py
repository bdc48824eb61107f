"""Choose the vector index that meets a recall, a latency and a memory limit, and prove it on held-out queries.

`optimize` is the way in. Below it, `sweep` tunes one index and `benchmark` measures; `renewal` repairs after a rebuild.
"""
