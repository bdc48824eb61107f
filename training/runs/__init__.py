"""One training run, whatever it trains: its folder, checkpoints, loop, progress, plots and model card.

The lowest room of `training`.
"""
