"""Masked language modelling on documents, from any encoder or from scratch.

`pretrain` is the way in; `masking` hides tokens, `batches` packs them, `fill_mask` names them.
"""
