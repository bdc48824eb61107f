"""Documents before storage: `scan` lists files, `gitignore` excludes some, `chunker` cuts texts into chunks.

This room imports `core` alone.
"""
