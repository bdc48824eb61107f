"""The results of a search: hits with their citations, without copies, with neighbours joined.

`hit` and `hits` are the answer, `citation` the place of a passage, `snippet` its print for people.
`currency` tells whether a citation still holds. `passage` and `extract` serve contexts.
"""
