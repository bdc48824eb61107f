"""Train encoders: base model and objective in, a sentence-transformers folder with its card out.

Enter by `train`. `objectives` has the objectives and their losses, `heldout` measures, `distill` makes smaller
students.
"""
