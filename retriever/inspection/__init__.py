"""A look inside an encoder: tokens of a text, their states and attention in each layer, and why two texts are similar.

Enter by `Inspector.load`. `contributions` splits a cosine between pairs of tokens, `rollout` sums attention,
`word_contexts` compares one word in several texts. `heat_map`, `plane` and `matrix_page` draw them.
`collection_map` draws the passages of an index as points in a plane, which `layout` computes.
"""
