"""Encoders with a head on top: readers mark answers, classifiers name classes, taggers mark names.

`head` loads one, with its `head_settings`. `bert_head` computes it without torch, `torch_head` every other family.
"""
