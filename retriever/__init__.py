"""The engine of an application: index documents, search them, verify the index, invert vectors.

Enter by `Retriever`. This room imports `indexes` and `core`; `training` and `commands` stand above it.
"""
