"""Pretrain encoders on documents by masked language modelling, from an existing encoder or from scratch.

Enter by `pretrain` or `fill_mask`, which import torch when they are called. `data` masks rows and packs them, `learner`
has the loss, and `teacher` the lessons of a larger model.
"""
