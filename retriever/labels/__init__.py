"""Labels without training: each document gets the label that its vector fits best, or none.

`zero_shot` compares documents with the names of labels and with other `subjects`. `precision` says how sure a
label is, and which to keep.
"""
