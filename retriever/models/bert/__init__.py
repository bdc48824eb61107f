"""BERT without torch: `openvino` computes documents, pairs and many queries, `numpy` a few queries.

`model` prepares batches for both. `weights` reads and checks the weights; the tests compare both with transformers.
"""
