"""Check an index against its documents: verify it, find wrong vectors, repair it, measure it.

`verify` finds faults, `wrong_vectors` compares vectors with their texts, `repair` mends, and `status` counts.
"""
