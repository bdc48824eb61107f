"""BERT and its family without torch: `openvino` computes documents, pairs and many queries, `numpy` a few queries.

`openvino_graph` builds the operations of the first. `model` prepares batches for both. `weights` reads and checks the
weights. `families` and `rotary` have what differs from BERT. The tests compare all with transformers.
"""
