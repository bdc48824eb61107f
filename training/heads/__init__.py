"""Train heads on encoders: readers mark answers, classifiers name classes, taggers mark names.

Enter by `train`. `squad`, `examples` and `tagged` read the data. `head_training` has the steps that all heads share.
`calibration` says what scores mean.
"""
