"""Train encoders: base model and objective in, a sentence-transformers folder with its card out.

Enter by `train`. `objectives` lists the objectives, `losses` computes them; `heldout` measures, `distill` makes smaller
students.
"""
