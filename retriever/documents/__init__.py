"""Documents before storage: `scan` lists files, `gitignore` excludes some, `chunker` cuts texts into chunks.

A chunk has at most `Encoder.max_tokens` tokens, its heading path included: `models/encoder.py` declares that size, and
each encoder reads it from its model's folder. This room imports `core` alone.
"""
