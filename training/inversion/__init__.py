"""Train the decoders of `retriever.inversion`, and measure how much of a text they recover.

Enter by `train`, which imports torch when it is called. `text` trains on vectors, `tokens` on hidden states; `metrics`
compares texts.
"""
