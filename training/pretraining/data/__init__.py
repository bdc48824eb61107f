"""The data of pretraining: rows of tokens on disk, masked anew in every epoch and packed into batches.

`token_rows` writes and holds out, `masking` hides tokens, `segments` makes pairs of texts, `masked_batches` packs them.
"""
