"""Commands that train, tune, distill and pretrain models, and measure how much text their vectors give away.

Each imports torch only when it runs. `heads` trains heads, and has the commands that use them. `recipes` reads the
options of a run from a file; `idle_options` refuses options without an effect.
"""
