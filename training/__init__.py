"""Train, mine, evaluate, tune and audit encoders, rerankers and inverters.

It imports the `retriever`; only `commands` stands above it.
"""
