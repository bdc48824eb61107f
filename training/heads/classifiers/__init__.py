"""Train classifiers: a probe on an encoder's vectors, or an encoder tuned on its own or together with its head.

Enter by `train` of the room above. `probe` fits a head by `kernel_ridge`; `contrastive` tunes the encoder below it.
`fine_tuning` trains both as one network. `judge` calibrates and measures any of them.
"""
