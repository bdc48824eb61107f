"""The decoders of an inverter: torch modules, their sizes and their weights.

`text_decoder` writes a text for a vector, `token_decoder` names the token of each hidden state; both build on
`bert_layer`. `decoder_settings` needs no torch. Programs enter by `inverter.load`, training by the modules themselves.
"""
