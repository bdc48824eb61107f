"""Heads: readers, classifiers, taggers, and labels without training."""
