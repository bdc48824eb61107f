"""transformers' trainer as runs use it: it resumes exactly, without pickles, and reports its progress.

Enter by `trainer`, which makes one of transformers' or of sentence-transformers' trainers. `resumable_trainer` writes
its checkpoints, `callbacks` watch it, and `trackers` names the programs that may record it.
"""
