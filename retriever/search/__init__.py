"""From a query to hits: candidates of two searches, fused, filtered, reranked and cited.

`query` is the way through, `exact` finds what has to be found literally, `duplicates`
collapses copies, `joining` joins neighbours. `context` packs hits for a prompt,
`snippet` prints them. `grep` finds lines.
"""
