"""Measures of predicted classes, labelled spans and answers, equal to scikit-learn's, seqeval's and SQuAD's."""
