"""Vector indexes behind one protocol: exact, FAISS, GPU and sharded ones, published on disk with checksums.

`base` has the protocols, `registry` the kinds, `published` the files on disk. `gpu` searches on GPUs, `flat` exactly.
`inverted` is the index of words, `tuning` chooses a kind. This room imports `core` alone.
"""
