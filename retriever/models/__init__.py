"""Encoders and rerankers: texts to unit vectors, and pairs of query and passage to scores.

`load` is the way in. `bert/` computes plain BERT without torch; the `torch_*` modules take all other models. `settings`
reads a model folder, `files` finds it, `defences` protect its vectors.
"""
