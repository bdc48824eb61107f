"""Mine hard negatives for training pairs, in bounded memory.

`mine` is the way in; `negatives` chooses, `candidates` searches, `text_db` holds the texts on disk.
"""
