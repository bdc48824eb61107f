"""Fill an index: find what changed, read it, chunk it, embed it, and commit it to the store.

`sync` does so for folders, `add` for documents; `indexer` serves both, and `batch` commits several writes in one step.
`delete` removes documents, `update` changes their metadata, and `switch` embeds all with another encoder.
"""
