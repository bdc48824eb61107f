"""BERT without torch: `numpy` computes a few texts, `openvino` many, and `model` chooses between them.

`weights` reads and checks the weights; the tests compare both backends with transformers.
"""
