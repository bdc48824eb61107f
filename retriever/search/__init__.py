"""From a query to hits: candidates of two searches, fused, filtered, reranked and cited.

`arguments` checks, `request` corrects words, and `query` runs the stages in order. `ranking/` makes one order of the
scores of both searches, `words/` has identifiers, quotes and misspelt words, `results/` the hits. `context` packs them
for a prompt. `grep` finds lines.
"""
