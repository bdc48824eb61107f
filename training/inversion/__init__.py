"""Train the decoders of `retriever.inversion`, and measure how much of a text comes back.

`train` is the way in; `text` trains on embeddings, `tokens` on hidden states, `metrics` compares texts.
"""
