"""Turn documents, metadata and filters of other frameworks into those of an index, and back.

`values` keeps metadata that are more than texts, numbers and lists, `embeddings` the lengths of vectors; `citations`
says where a passage stands. Each framework's filters and documents have a module. Only the adapters enter.
"""
