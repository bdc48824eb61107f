"""Evaluate heads on judged rows, with measures equal to scikit-learn's, seqeval's and SQuAD's.

`head_rows` chooses between `classes`, `names` and `answers`. The other modules have the measures that training takes.
"""
