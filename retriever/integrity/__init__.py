"""Check an index against its documents: verify it, find wrong vectors, repair it, measure it.

`verify` finds each `fault`, by `document_faults`, `index_faults` and, for vectors and their texts, `wrong_vectors`.
`repair` mends, and `status` counts.
"""
