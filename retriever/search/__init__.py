"""From a query to hits: candidates of two searches, fused, filtered, reranked and cited.

`query` is the way through, `context` packs hits for a prompt, `snippet` prints them.
"""
