"""The engine of an application: index documents, search them, verify the index, invert vectors.

Enter by `Retriever`. `readers`, `documents` and `indexing` fill the `store`; `search` answers from it with `models`.
This room imports `indexes` and `core`; `training` and `commands` stand above it.
"""
