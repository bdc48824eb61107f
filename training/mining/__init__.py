"""Mine hard negatives for training pairs, in bounded memory.

Enter by `mine`; `corpus` opens the inputs, `candidates` searches, `negatives` chooses, `row_writer` writes.
"""
