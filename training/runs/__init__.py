"""One training run of any model: folder, checkpoints, trainer, loop, progress, plots and model card.

The lowest room of `training`: every other room of it may import this one.
"""
