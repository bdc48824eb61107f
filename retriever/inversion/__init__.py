"""What a vector gives away: decoders that recover tokens and text from hidden states and embeddings.

`inverter` is the way in; `training.inversion` trains these decoders and `training.audit` attacks with them.
"""
