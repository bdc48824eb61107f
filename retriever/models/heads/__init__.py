"""Encoders with a head on top: a reader marks the answer to a question in a passage.

`head` loads one, `bert_head` computes it without torch, `torch_head` every other family.
"""
