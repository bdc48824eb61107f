"""Fill an index: find what changed, read it, chunk it, embed it, and commit it to the store.

`sync` does so for folders, `add` for documents; `delete` removes them; `switch` embeds with another encoder.
"""
