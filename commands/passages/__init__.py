"""Commands that print passages: search, similar, show, pick, answer and rank.

`hits` prints hits, `lines` the lines that a pattern matches. `remarks` are notes on the query, `retained` on its
vector, `word_shares` on its words. `places` links a hit to its line in the file. `picker` is the screen of pick.
"""
