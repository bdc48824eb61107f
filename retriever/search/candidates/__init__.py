"""The first stage of a search: candidates by words and by meaning.

`first_stage` takes the best of both and fuses them. `word_search` finds the best by words; `exact_matches` finds
passages with the identifiers and quotes of the query, and puts them first.
"""
