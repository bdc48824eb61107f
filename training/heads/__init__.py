"""Train heads on encoders: a reader marks the answer to a question in a passage.

Enter by `train_reader`. `squad` reads the questions, `span_metrics` has SQuAD's measures, `calibration` says what
scores mean.
"""
