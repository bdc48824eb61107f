"""Commands that print passages: search, similar, show and pick.

`hits` prints hits, `lines` the lines that a pattern matches. `remarks` are notes on the query, `retained` on its
vector. `places` links a hit to its line in the file.
"""
