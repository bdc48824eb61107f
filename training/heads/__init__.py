"""Train heads on encoders: readers mark answers, classifiers name classes, taggers mark names.

Enter by `train`. `data/` reads the rows, `head_training` has the steps that all heads share, `metrics/` measures.
`calibration` says what scores mean.
"""
