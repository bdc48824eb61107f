"""Train cross-encoders on the passages that the first stage of a search gives them.

Enter by `train`. `ranking_objectives` chooses the loss, `candidates` draws the negatives from an index,
`first_stage_weight` mixes both scores.
"""
