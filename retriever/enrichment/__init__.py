"""Labels in the metadata of documents: heads fill keys, and each sync fills them for new documents.

`enrich` chooses the documents and commits. `labellers` gives the values of a few documents at a time.
"""
