"""The lowest layer: errors, array types, files, words, checks and units that every room shares.

It imports nothing of Binocle, and every room may import it.
"""
