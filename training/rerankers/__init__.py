"""Train cross-encoders on the passages that the first stage of a search gives them.

`train` is the way in; `candidates` draws the negatives from an index, `first_stage_weight` mixes both scores.
"""
