"""Recover tokens and text from an encoder's output: decoders of hidden states and of embeddings.

Enter by `inverter.load`, which imports torch. `training.inversion` trains these decoders, `training.audit` attacks
with them.
"""
