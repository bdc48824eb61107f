"""Indexes that a store can build again from its two tables: the text index, the vector index, neighbourhoods.

`vector_index` and `lexical` publish an index beside the tables. `live_index` makes one current for one state.
"""
