"""The store, which is the truth: two Lance tables, HEAD.json that names their versions, and where they lie.

`store` opens, `snapshot` reads one committed state, `writer` makes the next.
"""
