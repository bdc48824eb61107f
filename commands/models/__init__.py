"""Commands that train, distill and pretrain models, and measure how much text their vectors give away.

Each imports torch only when it runs.
"""
