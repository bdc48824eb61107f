"""Compare several models or modes on the same data.

Enter by `compare`. `contenders` parses the command's names of models, and `contender_runs` evaluates these. `table`
has the values, intervals and verdicts; `comparison_files` writes them.
"""
