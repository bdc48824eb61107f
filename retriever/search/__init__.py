"""From a query to hits: candidates of two searches, fused, filtered, reranked and cited.

`arguments` checks and makes a `selection`; `request` corrects words. `query` runs the stages in order: `candidates/`
by words and by meaning, then `ranking/`, which makes one order of both. `steps` runs many queries at once. `words/`
parses identifiers and quotes, and corrects misspelt words. `results/` has the hits, `context` packs them for a prompt,
`grep` finds lines.
"""
