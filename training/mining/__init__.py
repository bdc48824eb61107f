"""Mine hard negatives for training pairs, in bounded memory.

Enter by `mine`; `corpus` opens the inputs, `candidate_search` searches, `negatives` chooses, `row_writer` writes.
"""
