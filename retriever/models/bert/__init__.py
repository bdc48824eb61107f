"""BERT without torch: `numpy` for a few texts, `openvino` for many, `model` chooses.

Held to transformers by the tests.
"""
