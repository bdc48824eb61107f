"""An inverted index of passages: terms, and the passages that hold each.

Segments are immutable arrays, mapped from disk; an index searches several as one.
"""
