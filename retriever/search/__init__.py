"""From a query to hits: candidates of two searches, fused, filtered, reranked and cited.

`arguments` checks, `request` corrects words, `query` runs the stages in order, and `fusion` joins their scores.
`exact` has identifiers and quotes, `results` the hits. `context` packs them for a prompt. `grep` finds lines.
"""
