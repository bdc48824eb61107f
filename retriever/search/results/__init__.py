"""The results of a search: hits with their citations, without copies, with neighbours joined.

`hit` has one hit with its citation, `hits` the whole answer; `snippet` prints a passage for people.
`currency` tells whether a citation still holds. `passage` and `extract` serve contexts.
"""
