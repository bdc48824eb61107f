"""From a query to hits: candidates of two searches, fused, filtered, reranked and cited.

`arguments` checks and makes a `selection`; `request` corrects words. `query` runs the stages in order: `word_search`,
the vector index, then `ranking/`, which makes one order of both. `steps` runs many queries at once. `exact_matches`
puts identifiers and quotes first; `words/` parses them and corrects misspelt words. `results/` has the hits, `context`
packs them for a prompt, `grep` finds lines.
"""
