"""Documents before storage: `scan` lists files, `gitignore` excludes some, `chunker` cuts texts into chunks.

A chunk has at most the `max_tokens` of its encoder, its heading path included: see `models/settings.py`. This room
imports `core` alone.
"""
