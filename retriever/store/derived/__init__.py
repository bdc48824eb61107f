"""What a store derives from its two tables and can build again: the text index, the vector index, neighbourhoods.

`vector_index` and `lexical` publish an index beside the tables. `live_index` makes one current for one state.
"""
