"""Train, mine, evaluate, tune and audit encoders, rerankers, heads and inverters.

`runs` and `data` serve the other rooms; each other room trains or measures one kind of model. This room imports the
`retriever`; only `commands` stands above it.
"""
