"""The kinds of encoder beside the BERT family: each turns texts into unit vectors.

`torch_encoder` takes all models of sentence-transformers, `static_encoder` tables of word vectors, `no_encoder` an
index of given vectors. `adapted_encoder` and `defended_encoder` change another encoder's vectors.
"""
