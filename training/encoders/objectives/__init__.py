"""The objectives of encoders: the rows that each takes, and its loss.

`objectives` is the table, with the shapes of data and the paper of each. `objective_data` makes its rows: `tsdae` cuts
words out of texts, `teacher_vectors` encodes them with a teacher. `losses` builds the loss.
"""
