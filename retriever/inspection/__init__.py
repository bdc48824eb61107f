"""A look inside an encoder: the tokens of a text, their states and attention in each layer, and what made two similar.

Enter by `Inspector.load`. `contributions` splits a cosine between pairs of tokens, `rollout` sums attention,
`word_contexts` compares one word in several texts. `heat_map`, `plane` and `matrix_page` draw them.
`collection_map` gives the passages of an index places in a plane by `layout`.
"""
