"""Encoders and rerankers: texts to unit vectors, and pairs of query and passage to scores.

`load` is the way in. `bert/` computes the BERT family without torch; `encoders/` has all other kinds. `heads/` compute
classes, tags and answers from an encoder's states. `settings` reads a model folder, `model_files` finds it, `defences`
protect its vectors.
"""
