"""Train encoders: base model and objective in, a sentence-transformers folder with its card out.

`train` is the way in; `losses` has the objectives, `heldout` the measurement, `distill` smaller students.
"""
