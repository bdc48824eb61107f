"""Train cross-encoders on what the first stage of the search puts before them.

`train` is the way in; `candidates` draws the negatives from an index, `first_stage_weight` mixes both scores.
"""
