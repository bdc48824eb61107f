"""Compare several models or modes on the same data.

Enter by `compare`. `contenders` parses the command's names of models, `table` has the values, intervals and verdicts.
"""
