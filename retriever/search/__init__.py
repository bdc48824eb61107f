"""From a query to hits: candidates of two searches, fused, filtered, reranked and cited.

`arguments` checks, `request` corrects words, and `query` runs the stages in order. `ranking` joins their scores with
the help of neighbours, in indexes of 1,000 passages up; `fusion` joins them without.
`exact` has identifiers and quotes, `results` the hits. `context` packs them for a prompt. `grep` finds lines.
"""
