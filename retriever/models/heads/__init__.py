"""Encoders with a head on top: readers mark answers, classifiers name classes, taggers mark names.

`head` loads one. `bert_head` computes it without torch, `torch_head` computes every other family.
"""
