"""A document before it is stored: which files a folder has, which git ignores, and where its text is cut into chunks.

It imports `core` alone.
"""
