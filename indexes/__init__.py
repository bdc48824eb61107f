"""Vector indexes behind one protocol: exact, FAISS, GPU and sharded ones, published on disk with checksums.

`base` has the protocols, `registry` the kinds, `published` what lies on disk. `gpu` searches on GPUs, `flat` exactly.
This room imports `core` alone.
"""
