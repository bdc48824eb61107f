"""From a folder or a list of documents to one commit: what changed, read, chunked, embedded, stored.

`sync` is the recipe for folders, `add` for documents, `switch` for another encoder.
"""
