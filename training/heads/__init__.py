"""Train heads on encoders: readers mark answers, classifiers name classes, taggers mark names.

Enter by `train`. `classifiers/` has the ways to train a classifier. `head_training` has the steps that all heads share,
`calibration` says what scores mean. The rooms `data.heads` and `evaluation.heads` read the rows and measure.
"""
