"""From a query to hits: candidates of two searches, fused, filtered, reranked and cited.

`request` checks the arguments, `query` is the way through, `exact` finds what has to be found literally. `results`
has the hits. `context` packs them for a prompt. `grep` finds lines.
"""
