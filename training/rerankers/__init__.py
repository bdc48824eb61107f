"""Train cross-encoders on the passages that the first stage of a search gives them.

Enter by `train`. `ranking_objectives` names the loss of each objective, `reranker_training` builds and minimises it.
`candidates` draws the negatives from an index, `first_stage_weight` mixes both scores.
"""
