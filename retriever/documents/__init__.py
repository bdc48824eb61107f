"""Documents before storage: `scan` lists files, `gitignore` excludes some, `chunker` cuts texts into chunks.

A chunk has at most `Encoder.max_tokens` tokens, its heading path included. `models/settings.py` reads that size from
the model's folder, and each encoder subtracts its special tokens and prompt; a static encoder has a constant. This room
imports `core` alone.
"""
